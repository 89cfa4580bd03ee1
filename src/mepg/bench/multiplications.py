"""The matrix products of an update, whichever algorithm it is of: the least that it has to compute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.core import Jaxpr, jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from mepg.core.types import Agent, Array, Sizes
from mepg.training.replay import row_width, unpack

Shape = tuple[int, int, int]  # (m, k, n): [m, k] times [k, n]


class Products(NamedTuple):
    """The matrix products of one update, forward and backward."""

    always: list[Shape]
    delayed: list[Shape]  # the policy's, where it is not updated every time


def multiplications(agent: Agent, sizes: Sizes, batch_size: int) -> Products:
    """The matrix products that JAX sees in `agent.update`, without those whose result is not used."""
    key = jax.random.key(0)
    rows = jax.ShapeDtypeStruct((batch_size, row_width(sizes)), jnp.float32)
    numbers = jax.ShapeDtypeStruct((batch_size,), jnp.uint32)

    def update(state: Any, rows: Array, numbers: Array) -> Any:
        return agent.update(state, unpack(rows, numbers, sizes), key)[0]

    traced = jax.make_jaxpr(update)(jax.eval_shape(agent.init, key), rows, numbers).jaxpr
    live, _ = dce_jaxpr(traced, [True] * len(traced.outvars))
    products = Products([], [])
    for shape, conditional in _products(live):
        (products.delayed if conditional else products.always).append(shape)
    return products


def _products(jaxpr: Jaxpr, conditional: bool = False) -> Iterator[tuple[Shape, bool]]:
    """Every product, and whether it depends on a condition; those of a loop once for each iteration."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            shape, times = _shape(equation)
            yield from [(shape, conditional)] * times
        inside = conditional or equation.primitive.name == "cond"
        for inner in jaxprs_in_params(equation.params):
            yield from list(_products(inner, inside)) * equation.params.get("length", 1)


def _shape(equation: Any) -> tuple[Shape, int]:
    """The shape of an equation as a product of two matrices, and how many such products it is."""
    (left_contracting, right_contracting), (left_batch, right_batch) = equation.params["dimension_numbers"]
    a, b = (var.aval.shape for var in equation.invars)

    def size(shape: tuple[int, ...], axes: Iterable[int]) -> int:
        return math.prod(shape[axis] for axis in axes)

    m = math.prod(a) // (size(a, left_contracting) * size(a, left_batch))
    n = math.prod(b) // (size(b, right_contracting) * size(b, right_batch))
    return (m, size(a, left_contracting), n), size(a, left_batch)


class Multiplier:
    """The machine's BLAS, as NumPy calls it, on matrices of given shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        rng = np.random.default_rng(0)

        def draw(*shape: int) -> npt.NDArray[np.float32]:
            return rng.standard_normal(shape, np.float32)

        self._work = {s: (draw(s[0], s[1]), draw(s[1], s[2]), np.empty((s[0], s[2]), np.float32)) for s in set(shapes)}
        self.shapes = shapes

    def __call__(self) -> None:
        for shape in self.shapes:
            a, b, out = self._work[shape]
            np.dot(a, b, out=out)
