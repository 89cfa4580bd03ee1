"""From a jaxpr to a graph: calls, branches and loops, chance. The other primitives have a method in `Primitives`.

One that has none, or that looks different in another release of JAX, is taken apart by JAX's own lowering (`apart`).
What that does not help either is `Unsupported`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend import core

from mepg.errors import one_line
from mepg.native.apart import inputs, take_apart
from mepg.native.graph import COMPARISONS, FROM_LIBRARY, At, Graph, Node, Unsupported
from mepg.native.primitives import Primitives, form

_ELEMENTWISE = {
    "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf_inv",
    "rem", "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "pow", "sign",
    "floor", "population_count", "clz", *COMPARISONS, *FROM_LIBRARY,
}  # fmt: skip
_NOTHING = {"random_wrap", "random_unwrap", "copy", "stop_gradient", "optimization_barrier"}
_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat",
    "remat2", "checkpoint", "composite",
}  # fmt: skip
_LOGICAL = {"add": "or", "max": "or", "mul": "and", "min": "and"}  # what these are for true and false


def as_array(value: Any) -> npt.NDArray[Any]:
    """A NumPy array; of a random key, its words."""
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def opened(inner: Any) -> tuple[Any, Any]:
    """A jaxpr and its constants, whether it is closed over them or has none."""
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


class Hopeless(Unsupported):
    """Nor can JAX's own lowering help."""


class Tracer(Primitives):
    """Adds a jaxpr's equations to a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._apart = False

    def inline(self, jaxpr: Any, constants: Any, arguments: list[Node]) -> list[Node]:
        """The nodes of a jaxpr's outputs."""
        graph = self.graph
        values: dict[Any, Node] = {}

        def read(variable: Any) -> Node:
            if isinstance(variable, core.Literal):
                return graph.table(as_array(variable.val), *form(variable.aval))
            return values[variable]

        for variable, constant in zip(jaxpr.constvars, constants, strict=True):
            values[variable] = graph.table(as_array(constant), *form(variable.aval))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, found, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, equation: Any, given: list[Node]) -> list[Node]:
        try:
            return self._known(equation, given)
        except Hopeless:
            raise
        except Exception as error:  # no method, or one for an equation that looked different in another JAX
            if self._apart:
                raise
            return self._take_apart(equation, given, error)

    def _take_apart(self, equation: Any, given: list[Node], reason: Exception) -> list[Node]:
        """By JAX's own lowering, once: what that does not know is hopeless."""
        self._apart = True
        try:
            which = [next(i for i, v in enumerate(equation.invars) if v is each) for each in inputs(equation)]
            return self.inline(*opened(take_apart(equation)), [given[i] for i in which])
        except Exception as error:
            if isinstance(reason, Unsupported):
                raise Hopeless(str(reason)) from error
            raise Hopeless(f"{equation.primitive.name}: {one_line(reason)}") from error
        finally:
            self._apart = False

    def _known(self, equation: Any, given: list[Node]) -> list[Node]:
        name, settings = equation.primitive.name, equation.params
        if name in _CALLS:
            inner = next(settings[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in settings)
            return self.inline(*opened(inner), given)
        forms = [form(variable.aval) for variable in equation.outvars]
        if not forms:
            raise Unsupported(name)
        if all(0 in shape for shape, _ in forms):
            return [self.graph.constant(0, *each) for each in forms]
        if name in ("cond", "scan", "while", "split", "unstack", "sort", "top_k"):
            several: Callable[..., list[Node]] = getattr(self, f"_{name}")
            return several(equation, given, **settings)
        shape, type = forms[0]
        if name in _NOTHING:
            return given[: len(forms)]
        if name in _ELEMENTWISE:
            name = _LOGICAL.get(name, name) if type == "bool" else name
            return [self.graph.elementwise(name, given, type)]
        method: Callable[..., Node] | None = getattr(self, f"_{name.replace('-', '_')}", None)
        if method is None:
            raise Unsupported(name)
        return [method(equation, given, shape, type)]

    # Chance

    def _random(self, op: str, equation: Any, given: list[Node], shape: Any) -> Node:
        implementation = equation.invars[0].aval.dtype._impl.name
        if implementation not in ("mepg-threefry", "threefry2x32"):
            raise Unsupported(f"{equation.primitive.name} of {implementation} keys")
        each = 2 if op == "fold_in_key" else math.prod(shape) // math.prod(given[0].shape[:-1])
        return self.graph.add(op, given, shape, "u32", each=each)

    def _random_split(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        return self._random("split_key", equation, given, shape)

    def _random_fold_in(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        return self._random("fold_in_key", equation, given, shape)

    def _random_bits(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        if equation.params["bit_width"] != 32:
            raise Unsupported(f"random_bits of {equation.params['bit_width']} bits")
        return self._random("bits" if equation.ctx.threefry_partitionable else "bits_in_halves", equation, given, shape)

    # Branches and loops

    def _cond(self, equation: Any, given: list[Node], *, branches: Any, **_: Any) -> list[Node]:
        node = self.graph.new("branch", given[:1], (), "i32")
        node.settings["blocks"] = [
            self.graph.inside(node, partial(self.inline, *opened(branch), given[1:])) for branch in branches
        ]
        return self._results(node, [form(v.aval) for v in equation.outvars])

    def _scan(
        self, equation: Any, given: list[Node], *, jaxpr: Any, length: int, reverse: bool, **_: Any
    ) -> list[Node]:
        """What is given to each step, and what each leaves, has one axis more outside. The rest is carried or fixed."""
        inner, constants = opened(jaxpr)
        each = sum(
            len(out.aval.shape) > len(v.aval.shape) for out, v in zip(equation.invars, inner.invars, strict=True)
        )
        left = sum(len(o.aval.shape) > len(v.aval.shape) for o, v in zip(equation.outvars, inner.outvars, strict=True))
        carry = len(inner.outvars) - left
        first = len(given) - each - carry
        fixed, start, steps = given[:first], given[first : first + carry], given[first + carry :]
        if length == 1:
            found = self.inline(inner, constants, [*fixed, *start, *(self._step(x, At()) for x in steps)])
            return found[:carry] + [self.graph.reshape(x, (1, *x.shape)) for x in found[carry:]]

        def body(carried: list[Node], variable: str) -> list[Node]:
            return self.inline(inner, constants, [*fixed, *carried, *(self._step(x, At(variable)) for x in steps)])

        return self._loop(start, body, [form(v.aval) for v in equation.outvars], length, reverse)

    def _while(self, equation: Any, given: list[Node], *, cond_jaxpr: Any, body_jaxpr: Any, **_: Any) -> list[Node]:
        """Whether it goes on is one more value that it carries."""
        condition, body = opened(cond_jaxpr), opened(body_jaxpr)
        if condition[0].outvars[0].aval.shape:
            raise Unsupported("while with an answer for each row")  # JAX's lowering makes it one
        count = len(equation.outvars)
        asked = len(condition[0].invars) - count
        fixed, start = given[asked : len(given) - count], given[len(given) - count :]

        def goes_on(values: list[Node]) -> list[Node]:
            return self.inline(*condition, [*given[:asked], *values])

        def step(carried: list[Node], _: str) -> list[Node]:
            new = self.inline(*body, [*fixed, *carried[:-1]])
            return [*new, *goes_on(new)]

        forms = [form(v.aval) for v in equation.outvars]
        return self._loop([*start, *goes_on(start)], step, [*forms, ((), "bool")], None)[:-1]

    def _loop(
        self, start: list[Node], body: Callable[[list[Node], str], list[Node]], forms: list[tuple[Any, str]],
        length: int | None, reverse: bool = False,
    ) -> list[Node]:  # fmt: skip
        node = self.graph.new("loop", start, (), "i32", length=length, carry=len(start), reverse=reverse)
        variable = f"t{len(self.graph.nodes)}"

        def inside() -> list[Node]:
            block = self.graph.block
            block.carried = [self.graph.new("input", (), x.shape, x.type) for x in start]
            return body(block.carried, variable)

        node.settings["blocks"] = [self.graph.inside(node, inside, variable)]
        return self._results(node, forms)

    def _step(self, x: Node, at: At) -> Node:
        return self.graph.take(x, x.shape[1:], [("at", at), *(("axis", a) for a in range(len(x.shape) - 1))])
