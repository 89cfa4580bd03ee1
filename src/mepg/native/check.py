"""The self-check of a new library, before it is used: does it compute what the jitted function does?

A compiler has miscompiled a kernel that was right. So a new library and the jitted function are called several times
from the same state, with arguments that take every branch, and their results are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mepg.native.library import Array, Compiled, State

Arguments = tuple[Any, ...]
_MAX_CALLS = 100
_PERTURBATION, _PERTURBATIONS, _MARGIN = 1e-7, 8, 10


class Disagrees(Exception):
    """A library that computes something else. One line: what, where, by how much."""


def compare(
    compiled: Compiled, function: Callable[..., Any], leaves: Sequence[Any], arguments: Callable[[int], Arguments], *,
    tolerance: float, calls: int = 4,
) -> None:  # fmt: skip
    """Call both, and go on until every branch has been taken; raises Disagrees at the first difference.

    Both start each call from the state that the jitted function reached. So an error does not grow from call to call,
    and the tolerance is that of one call. It is wider where the jitted function itself is sensitive to the last bits of
    its state: Adam amplifies a gradient that is nearly 0. `arguments` gives those of call 1, 2, ...
    """
    # Without its optimisations XLA compiles faster, to the same numbers.
    jitted = jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
    state, rng = State.of(leaves), np.random.default_rng(0)
    reference, call = [np.asarray(leaf) for leaf in leaves], 0
    while call < calls or compiled.untaken():
        call += 1
        if call > _MAX_CALLS:
            raise Disagrees(f"in {_MAX_CALLS} calls, branch {compiled.untaken()[0]} was never taken")
        inputs = arguments(call)
        state.put(reference)
        outputs = compiled(state, *jax.tree.leaves(inputs))
        new_state = state.get() if compiled.writes_state else []

        def run(state: Sequence[Array], inputs: Arguments = inputs) -> list[Array]:
            return [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(state, *inputs))]

        expected = run(reference)
        min_norms = [0.0] * len(new_state) + [1.0] * len(outputs)
        errors = np.array([*map(difference, expected, [*new_state, *outputs], min_norms)])
        allowed, tries = np.full(len(errors), tolerance), 0
        # The effect of a perturbation varies: often it is one gradient among hundreds that is nearly 0.
        while not (errors <= allowed).all() and tries < _PERTURBATIONS:
            tries, perturbed = tries + 1, run([_perturb(leaf, rng) for leaf in reference])
            allowed = np.maximum(allowed, [_MARGIN * x for x in map(difference, expected, perturbed, min_norms)])
        for k in np.flatnonzero(~(errors <= allowed)):
            raise Disagrees(
                f"call {call}, array {k} of {len(expected)}: {errors[k]:.1e} of its size away from XLA's, "
                f"where rounding explains {allowed[k]:.0e}"
            )
        reference = expected[: len(new_state)] or reference


def _perturb(leaf: Array, rng: np.random.Generator) -> Array:
    """About the last bit of each number, up or down."""
    if leaf.dtype != np.float32:
        return leaf
    perturbed: Array = leaf * (1 + _PERTURBATION * rng.choice([-1.0, 1.0], leaf.shape)).astype(np.float32)
    return perturbed


def difference(expected: Array, actual: Array, min_norm: float = 0.0) -> float:
    """The distance relative to the norm of what is expected; infinite where only one has NaN or infinity.

    :param min_norm: a smaller norm counts as this one: an action may be 0 but for rounding
    """
    expected, actual = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    special = ~np.isfinite(expected)
    same = np.array_equal(special, ~np.isfinite(actual))
    if not same or not np.array_equal(expected[special], actual[special], equal_nan=True):
        return float("inf")
    expected, actual = expected[~special], actual[~special]
    norm = max(float(np.linalg.norm(expected)), min_norm)
    return float(np.linalg.norm(expected - actual)) / (norm if norm > 0 else 1.0)
