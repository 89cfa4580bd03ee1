"""The algorithms. Each module here exports `ALGORITHMS`; a new file is a new algorithm, found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mepg.core import agent
from mepg.core.types import Agent, Sizes
from mepg.errors import unknown


class Algorithm(NamedTuple):
    """A name's meaning: a spec, one line about it, and the algorithm that it is best understood from."""

    spec: Any
    summary: str
    parent: str | None = None
    build: Callable[[Any, Sizes], Agent] = agent.build
    count_parameters: Callable[[Any, Sizes], agent.Count] = agent.count_parameters


@cache
def algorithms() -> dict[str, Algorithm]:
    """Every algorithm by the name that the paper prints, in the order in which they build on each other."""
    found: dict[str, Algorithm] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= importlib.import_module(f"{__name__}.{module.name}").ALGORITHMS
    return dict(sorted(found.items(), key=lambda item: _lineage(found, item[0])))


def find(name: str) -> Algorithm:
    """The algorithm called `name`."""
    known = algorithms()
    if name not in known:
        raise unknown("algorithm", name, known, hint=" (mepg list shows them all)")
    return known[name]


def _lineage(found: dict[str, Algorithm], name: str) -> tuple[str, ...]:
    parent = found[name].parent
    return (name,) if parent is None else (*_lineage(found, parent), name)
