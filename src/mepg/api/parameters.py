"""A state's arrays by name, nested as the networks are: what `get_parameters` gives and `set_parameters` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mepg.api.files import Location, read_model
from mepg.api.learner import Learner
from mepg.errors import UsageError, unknown
from mepg.storage.checkpoint import flatten, unflatten
from mepg.storage.files import Arrays

PREFIX = "agent."  # of the arrays' names in files


def get_parameters(learner: Learner) -> dict[str, Any]:
    """Copies of an agent's arrays: {"actor": {"params": {"0": {"w": ...}}}}."""
    tree: dict[str, Any] = {}
    with learner.lock:
        for name, array in _arrays(learner.state).items():
            *path, last = name.split(".")
            inner = tree
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = np.array(array)
    return tree


def set_parameters(learner: Learner, source: Location | Mapping[str, Any], *, exact_match: bool) -> None:
    """Put arrays into an agent's state: those of a file that `save` wrote, or what `get_parameters` returned."""
    values = _flatten_dict(source) if isinstance(source, Mapping) else _without_prefix(read_model(source).arrays)
    with learner.lock:
        learner.set_state(_with_parameters(learner.state, values, exact_match=exact_match))


def _flatten_dict(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        arrays |= _flatten_dict(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return arrays


def _with_parameters(state: Any, values: Mapping[str, Any], *, exact_match: bool) -> Any:
    """The state with these values in the place of its own; a UsageError says which does not fit."""
    arrays = _arrays(state)
    missing = [name for name in arrays if name not in values]
    if exact_match and missing:
        raise UsageError(f"{missing[0]} is missing: exact_match=False sets only what is given")
    for name in values:
        if name not in arrays:
            raise unknown("parameter", name, arrays)
    arrays |= {name: _like(value, arrays[name], name) for name, value in values.items()}
    return unflatten({PREFIX + name: array for name, array in arrays.items()}, state, "agent")


def _arrays(state: Any) -> Arrays:
    return _without_prefix(flatten(state, "agent"))


def _without_prefix(arrays: Arrays) -> Arrays:
    return {name.removeprefix(PREFIX): array for name, array in arrays.items()}


def _like(value: Any, expected: Any, name: str) -> Any:
    try:
        array = np.asarray(value)
    except Exception:  # ragged, or another library's array that will not be one of NumPy's
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, expected.dtype, "same_kind"):
        raise UsageError(f"{name} has to be numbers of type {expected.dtype}, not {array.dtype}")
    if array.shape != expected.shape:
        raise UsageError(f"{name} has shape {expected.shape}, not {array.shape}")
    with np.errstate(over="ignore"):
        array = array.astype(expected.dtype)
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds a number that is not finite")
    return array
