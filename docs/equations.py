"""Typesets ```math blocks as MathML when the site is built: browsers show that without fetching anything."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

PRIME = "<mi>(&#x0203[23];)</mi>"  # one or two
LETTER = "(<mi>[^<]*</mi>)"
INDEX = "(?:(?!</msubsup>).)*"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for every page."""
    return re.sub(r"^```math\n(.*?)^```$", typeset, markdown, flags=re.MULTILINE | re.DOTALL)


def typeset(found: re.Match[str]) -> str:
    """A block of HTML, which Markdown leaves alone. On a narrow screen the equation scrolls, not the page."""
    math = convert(found[1].strip(), display="block")
    math = math.replace('columnalign="left"', 'style="text-align: left"')  # browsers know only the latter
    # A prime is raised already: beside its letter, not a superscript.
    math = re.sub(f"<msup>{LETTER}{PRIME}</msup>", r"\1<mo>\2</mo>", math)
    math = re.sub(f"<msubsup>{LETTER}({INDEX}){PRIME}</msubsup>", r"<msub><mrow>\1<mo>\3</mo></mrow>\2</msub>", math)
    math = math.replace("<mi>log</mi>", '<mo lspace="0.17em" rspace="0.17em">log</mo>')
    return f'<div style="overflow-x: auto">{math}</div>'
