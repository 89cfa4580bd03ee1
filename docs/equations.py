"""Typesets ```math blocks as MathML when the site is built: browsers show that without fetching anything."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for every page."""
    return re.sub(r"^```math\n(.*?)^```$", typeset, markdown, flags=re.MULTILINE | re.DOTALL)


def typeset(found: re.Match[str]) -> str:
    """A block of HTML, which Markdown leaves alone."""
    math = convert(found[1].strip(), display="block")
    math = math.replace('columnalign="left"', 'style="text-align: left"')  # browsers know only the latter
    math = re.sub(r"<msup>(<mi>[^<]*</mi>)<mi>&#x02032;</mi></msup>", r"\1<mo>&#x02032;</mo>", math)  # raised already
    return f"<div>{math}</div>"
