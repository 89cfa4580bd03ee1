"""Before a library is used: does it compute what the jitted function does?

Compilers have given wrong code for a kernel that was right. So a new library is called several times beside the jitted
function, from the same state, with numbers that go up so that every branch is taken, and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mepg.native.library import Compiled, Rows, State

Arguments = tuple[Any, ...]
_MOST = 100  # calls


class Disagrees(Exception):
    """A library that computes something else. One line: what, where, by how much."""


def compare(
    compiled: Compiled,
    function: Any,
    leaves: Sequence[Any],
    arguments: Callable[[int], Arguments],
    *,
    tolerance: float,
    calls: int = 4,
) -> None:
    """Call both so often, and on until every branch has been taken; raises Disagrees at the first difference.

    Both start each call from the state that the jitted function reached. So an error does not grow from call to call,
    and the tolerance is that of one call. `arguments` gives those of call 1, 2, ...
    """
    jitted, state = jax.jit(function), State.of(leaves)
    expected, number = [np.asarray(leaf) for leaf in leaves], 0
    while number < calls or compiled.untaken():
        number += 1
        if number > _MOST:
            raise Disagrees(f"in {_MOST} calls, branch {compiled.untaken()[0]} was never taken")
        given = arguments(number)
        state.put(expected)
        found = compiled(state, *jax.tree.leaves(given))
        new, *outputs = jitted(expected, *given)
        expected = [np.asarray(leaf) for leaf in new]
        wanted = [*expected, *(np.asarray(leaf) for leaf in jax.tree.leaves(outputs))]
        for place, (want, got) in enumerate(zip(wanted, [*state.get(), *found], strict=True)):
            off = difference(want, got)
            if not off <= tolerance:
                raise Disagrees(f"call {number}, array {place} of {len(wanted)}: {off:.1e} of its size away from XLA's")


def difference(want: Rows, got: Rows) -> float:
    """How far apart, relative to the norm of what is wanted; infinite where only one has NaN or infinity."""
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    special = ~np.isfinite(want)
    if (special != ~np.isfinite(got)).any() or not np.array_equal(want[special], got[special], equal_nan=True):
        return float("inf")
    want, got = want[~special], got[~special]
    size = float(np.linalg.norm(want))
    return float(np.linalg.norm(want - got)) / (size if size > 0 else 1.0)
