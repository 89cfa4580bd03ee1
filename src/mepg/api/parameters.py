"""A state's arrays by name, nested as the networks are: what `get_parameters` gives and `set_parameters` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mepg.errors import UsageError, unknown
from mepg.storage.files import Arrays


def nested(arrays: Arrays) -> dict[str, Any]:
    """{"actor.params.0.w": ...} as {"actor": {"params": {"0": {"w": ...}}}}, of copies."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = np.array(array)
    return tree


def flat(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """The inverse of `nested`."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def replaced(arrays: Arrays, given: Mapping[str, Any], *, all_of_them: bool) -> Arrays:
    """The arrays, with those that are given in their place; a UsageError says which does not fit."""
    missing = [name for name in arrays if name not in given]
    if all_of_them and missing:
        raise UsageError(f"{missing[0]} is missing: exact_match=False sets only what is given")
    for name in given:
        if name not in arrays:
            raise unknown("parameter", name, arrays)
    return arrays | {name: _like(value, arrays[name], name) for name, value in given.items()}


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
