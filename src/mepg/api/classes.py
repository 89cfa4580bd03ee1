"""The class of each algorithm, such as `mepg.ME_SAC`: made from the registry, where an algorithm declares its name."""

from __future__ import annotations

import functools
import re
from typing import Any

from mepg import algos
from mepg.api.files import Location
from mepg.api.model import Model
from mepg.errors import RunFailure, UsageError


def algorithm(name: str) -> type[Model]:
    """The class for any name that `mepg list` prints, such as "me-sac-r", or for "my_module:name" of your own."""
    algos.import_named(name)
    return class_of(name)


def load(path: Location, env: Any = None, **kwargs: Any) -> Model:
    """A model of whichever algorithm, from a file that `save` wrote or from a folder of `mepg train`."""
    return Model.load(path, env, **kwargs)


@functools.cache
def class_of(name: str) -> type[Model]:
    """The class of an algorithm that is imported already; the same one each time."""
    entry = algos.find(name)
    namespace = {"algorithm": name, "__doc__": f"{entry.summary[:1].upper()}{entry.summary[1:]}.", "__module__": "mepg"}
    return type(entry.python_name or re.sub(r"\W", "_", name).upper(), (Model,), namespace)


def exports() -> dict[str, Any]:
    """What the package `mepg` offers, by name: the class of each algorithm that has a `python_name`, and a few more."""
    classes = {entry.python_name: class_of(name) for name, entry in algos.algorithms().items() if entry.python_name}
    common = (Model, RunFailure, UsageError, algorithm, load)
    return classes | {each.__name__: each for each in common}
