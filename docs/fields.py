"""Fills `<!-- fields: me-sac -->` with a table of the algorithm's spec, as the code has it when the site is built."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any

from mepg.algos import find
from mepg.settings import describe


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for every page."""
    return re.sub(r"<!-- fields: (\S+) -->", lambda found: table(found[1]), markdown)


def table(algorithm: str) -> str:
    """Every field that `--set` takes, its value, and what the source says about it."""
    spec = find(algorithm).spec
    meanings = comments(spec)
    rows = [f"| `{name}` | {value} | {meanings.get(name, '')} |" for name, value in describe(spec).items()]
    return "\n".join(["| field | value | |", "| --- | --- | --- |", *rows])


def comments(spec: Any, prefix: str = "") -> dict[str, str]:
    """The comment behind each field, `dropout.p` and the like included."""
    found: dict[str, str] = {}
    for kind in reversed(type(spec).__mro__[:-1]):
        for name, text in re.findall(r"^    (\w+): [^#\n]*# (.*)$", inspect.getsource(kind), re.MULTILINE):
            found[prefix + name] = text.replace("|", "\\|")
    for field in fields(spec):
        if is_dataclass(getattr(spec, field.name)):
            found |= comments(getattr(spec, field.name), f"{prefix}{field.name}.")
    return found
