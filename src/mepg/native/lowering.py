"""From a jaxpr to a graph: calls, branches, loops and random bits. The other primitives have a rule in `Primitives`.

A primitive without a rule, or one that looks different in another release of JAX, is decomposed by JAX's own lowering
(`decompose`). What that does not help either is `Unsupported`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend import core

from mepg.errors import one_line
from mepg.native.decompose import decompose, input_variables
from mepg.native.graph import COMPARISONS, LIBM, ZERO, ArrayType, AxisIndex, Graph, Node, Shape, Unsupported
from mepg.native.primitives import Equation, Primitives, array_type

Value = TypeVar("Value")
_ELEMENTWISE = {
    "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf_inv",
    "rem", "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "pow", "sign",
    "floor", "population_count", "clz", *COMPARISONS, *LIBM,
}  # fmt: skip
_IDENTITIES = {"random_wrap", "random_unwrap", "copy", "stop_gradient", "optimization_barrier"}
_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat",
    "remat2", "checkpoint", "composite",
}  # fmt: skip
_SEVERAL_RESULTS = {"cond", "scan", "while", "split", "unstack", "sort", "top_k"}
_BOOLEAN = {"add": "or", "max": "or", "mul": "and", "min": "and"}  # arithmetic on booleans


def lower(function: core.ClosedJaxpr, state: int = 0) -> Graph:
    """A function as a graph. The first inputs, as many as `state` says, are its state; the others are row-major."""
    graph = Graph()
    for k, variable in enumerate(function.jaxpr.invars):
        graph.inputs.append(graph.new("input", (), *array_type(variable.aval), row_major=k >= state))
    graph.top.outputs = Lowering(graph).inline(function, graph.inputs)
    return graph


def evaluate(
    jaxpr: core.Jaxpr, constants: Sequence[Value], arguments: Sequence[Value],
    literal: Callable[[core.Literal], Value], apply: Callable[[Equation, list[Value]], Sequence[Value]],
) -> list[Value]:  # fmt: skip
    """A jaxpr's outputs in any representation of values: `apply` gives an equation's results."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

    def read(atom: core.Var | core.Literal) -> Value:
        return literal(atom) if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        results = apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def as_array(value: Any) -> npt.NDArray[Any]:
    """A NumPy array; of a random key, its words."""
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _closed(jaxpr: core.Jaxpr | core.ClosedJaxpr) -> core.ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, [])


class NotDecomposable(Unsupported):
    """JAX's own lowering does not help either."""


class Lowering(Primitives):
    """Adds a jaxpr's equations to a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._decomposing = False

    def inline(self, closed: core.Jaxpr | core.ClosedJaxpr, arguments: list[Node]) -> list[Node]:
        """The nodes of a jaxpr's outputs."""
        closed = _closed(closed)
        constants = [self._constant(v.aval, x) for v, x in zip(closed.jaxpr.constvars, closed.consts, strict=True)]
        return evaluate(closed.jaxpr, constants, arguments, lambda x: self._constant(x.aval, x.val), self._lower)

    def _constant(self, aval: Any, value: Any) -> Node:
        return self.graph.constant_array(as_array(value), *array_type(aval))

    def _lower(self, equation: Equation, arguments: list[Node]) -> list[Node]:
        try:
            return self._by_rule(equation, arguments)
        except NotDecomposable:
            raise
        except Exception as error:  # no rule, or one for an equation that looks different in another JAX
            if self._decomposing:
                raise
            return self._decompose(equation, arguments, error)

    def _decompose(self, equation: Equation, arguments: list[Node], reason: Exception) -> list[Node]:
        """By JAX's own lowering, once. The reason is why there is no rule."""
        self._decomposing = True
        try:
            variables = input_variables(equation)
            positions = [next(i for i, v in enumerate(equation.invars) if v is variable) for variable in variables]
            return self.inline(decompose(equation), [arguments[i] for i in positions])
        except Exception as error:
            if isinstance(reason, Unsupported):
                raise NotDecomposable(str(reason)) from error
            raise NotDecomposable(f"{equation.primitive.name}: {one_line(reason)}") from error
        finally:
            self._decomposing = False

    def _by_rule(self, equation: Equation, arguments: list[Node]) -> list[Node]:
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
            return self.inline(inner, arguments)
        types = [array_type(variable.aval) for variable in equation.outvars]
        if not types:
            raise Unsupported(name)
        if all(0 in shape for shape, _ in types):
            return [self.graph.constant(0, *each) for each in types]
        if name in _SEVERAL_RESULTS:
            several: Callable[..., list[Node]] = getattr(self, f"_{name}")
            return several(equation, arguments, **params)
        shape, dtype = types[0]
        if name in _IDENTITIES:
            return arguments[: len(types)]
        if name in _ELEMENTWISE:
            name = _BOOLEAN.get(name, name) if dtype == "bool" else name
            return [self.graph.elementwise(name, arguments, dtype)]
        rule: Callable[..., Node] | None = getattr(self, f"_{name.replace('-', '_')}", None)
        if rule is None:
            raise Unsupported(name)
        return [rule(equation, arguments, shape, dtype)]

    # Random bits

    def _random(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        key: Any = equation.invars[0].aval
        if (implementation := key.dtype._impl.name) != "threefry2x32":
            raise Unsupported(f"{equation.primitive.name} of {implementation} keys")
        if (width := equation.params.get("bit_width", 32)) != 32:
            raise Unsupported(f"random_bits of {width} bits")
        bits = "bits" if equation.ctx.threefry_partitionable else "bits_in_halves"
        ops = {"random_split": "split_key", "random_fold_in": "fold_in_key", "random_bits": bits}
        op = ops[equation.primitive.name]
        words = 2 if op == "fold_in_key" else math.prod(shape) // math.prod(arguments[0].shape[:-1])
        return self.graph.add(op, arguments, shape, "u32", words=words)

    _random_split = _random_fold_in = _random_bits = _random

    # Branches and loops

    def _cond(self, equation: Equation, arguments: list[Node], *, branches: Any, **_: Any) -> list[Node]:
        node = self.graph.new("branch", arguments[:1], (), "i32")
        inside = partial(self.graph.inside, node)
        node.params["blocks"] = [inside(partial(self.inline, branch, arguments[1:])) for branch in branches]
        return self._results(node, [array_type(v.aval) for v in equation.outvars])

    def _scan(
        self, equation: Equation, arguments: list[Node], *, jaxpr: Any, length: int, reverse: bool, **_: Any
    ) -> list[Node]:
        """Scanned arrays have one axis more outside than in the body. The other arguments are constant or carried."""
        closed = _closed(jaxpr)
        scanned = _scanned(equation.invars, closed.jaxpr.invars)
        carry = len(equation.outvars) - _scanned(equation.outvars, closed.jaxpr.outvars)
        first = len(arguments) - scanned - carry
        constant, init, xs = arguments[:first], arguments[first : first + carry], arguments[first + carry :]
        if length == 1:
            results = self.inline(closed, [*constant, *init, *(self._element(x, ZERO) for x in xs)])
            return results[:carry] + [self.graph.reshape(y, (1, *y.shape)) for y in results[carry:]]

        def body(carried: list[Node], counter: str) -> list[Node]:
            return self.inline(closed, [*constant, *carried, *(self._element(x, AxisIndex(counter)) for x in xs)])

        return self._loop(init, body, [array_type(v.aval) for v in equation.outvars], length, reverse)

    def _while(
        self, equation: Equation, arguments: list[Node], *, cond_jaxpr: Any, body_jaxpr: Any, **_: Any
    ) -> list[Node]:
        """The condition is one more value that the loop carries."""
        condition = _closed(cond_jaxpr)
        if condition.jaxpr.outvars[0].aval.shape:
            raise Unsupported("while with an answer for each row")  # JAX's lowering makes it one
        carry = len(equation.outvars)
        count = len(condition.jaxpr.invars) - carry
        constant, init = arguments[count : len(arguments) - carry], arguments[len(arguments) - carry :]

        def test(values: list[Node]) -> list[Node]:
            return self.inline(condition, [*arguments[:count], *values])

        def body(carried: list[Node], _: str) -> list[Node]:
            new = self.inline(body_jaxpr, [*constant, *carried[:-1]])
            return [*new, *test(new)]

        types = [array_type(v.aval) for v in equation.outvars]
        return self._loop([*init, *test(init)], body, [*types, ArrayType((), "bool")], None)[:-1]

    def _loop(
        self, init: list[Node], body: Callable[[list[Node], str], list[Node]], types: list[ArrayType],
        length: int | None, reverse: bool = False,
    ) -> list[Node]:  # fmt: skip
        node = self.graph.new("loop", init, (), "i32", length=length, carry=len(init), reverse=reverse)
        counter = f"t{len(self.graph.nodes)}"

        def inside() -> list[Node]:
            block = self.graph.block
            block.carried = [self.graph.new("input", (), x.shape, x.dtype) for x in init]
            return body(block.carried, counter)

        node.params["blocks"] = [self.graph.inside(node, inside, counter)]
        return self._results(node, types)

    def _element(self, x: Node, index: AxisIndex) -> Node:
        """x[index]"""
        return self.graph.gather(x, x.shape[1:], [index, *range(len(x.shape) - 1)])


def _scanned(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many variables have fewer axes in a loop's body."""
    return sum(len(a.aval.shape) > len(b.aval.shape) for a, b in zip(outside, inside, strict=True))
