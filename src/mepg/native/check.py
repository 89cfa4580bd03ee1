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
_NUDGE, _MARGIN, _NUDGES = 1e-7, 10, 8


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
    and the tolerance is that of one call. It is wider where the jitted function itself comes out further away if the
    last bits of its state are others: Adam makes much of a gradient that is nearly 0. `arguments` gives those of call
    1, 2, ...
    """
    # Without its optimisations XLA is sooner done, with the same numbers.
    jitted = jax.jit(function, compiler_options={"xla_backend_optimization_level": 1})
    state, rng = State.of(leaves), np.random.default_rng(0)
    expected, number = [np.asarray(leaf) for leaf in leaves], 0
    while number < calls or compiled.untaken():
        number += 1
        if number > _MOST:
            raise Disagrees(f"in {_MOST} calls, branch {compiled.untaken()[0]} was never taken")
        given = arguments(number)
        state.put(expected)
        found = compiled(state, *jax.tree.leaves(given))
        new = state.get() if compiled.writes_state else []

        def run(before: Sequence[Rows], given: Arguments = given) -> list[Rows]:
            return [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(before, *given))]

        wanted = run(expected)
        leasts = [0.0] * len(new) + [1.0] * len(found)
        offs = np.array([*map(difference, wanted, [*new, *found], leasts)])
        allowed, nudges = np.full(len(offs), tolerance), 0
        # How far a nudge carries differs from nudge to nudge: often it is one gradient among hundreds that is nearly 0.
        while not (offs <= allowed).all() and nudges < _NUDGES:
            nudges, nudged = nudges + 1, run([_nudge(leaf, rng) for leaf in expected])
            allowed = np.maximum(allowed, [_MARGIN * each for each in map(difference, wanted, nudged, leasts)])
        for place in np.flatnonzero(~(offs <= allowed)):
            raise Disagrees(
                f"call {number}, array {place} of {len(wanted)}: {offs[place]:.1e} of its size away from XLA's, "
                f"where rounding explains {allowed[place]:.0e}"
            )
        expected = wanted[: len(new)] or expected


def _nudge(leaf: Rows, rng: np.random.Generator) -> Rows:
    """About the last bit of each number, up or down."""
    if leaf.dtype != np.float32:
        return leaf
    nudged: Rows = leaf * (1 + _NUDGE * rng.choice([-1.0, 1.0], leaf.shape)).astype(np.float32)
    return nudged


def difference(want: Rows, got: Rows, least: float = 0.0) -> float:
    """How far apart, relative to the norm of what is wanted; infinite where only one has NaN or infinity.

    :param least: a norm below which it is not a matter of relation: an action may be 0 but for rounding
    """
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    special = ~np.isfinite(want)
    if (special != ~np.isfinite(got)).any() or not np.array_equal(want[special], got[special], equal_nan=True):
        return float("inf")
    want, got = want[~special], got[~special]
    size = max(float(np.linalg.norm(want)), least)
    return float(np.linalg.norm(want - got)) / (size if size > 0 else 1.0)
