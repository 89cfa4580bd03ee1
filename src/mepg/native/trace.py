"""From a jaxpr to a graph. Every primitive that can be compiled has a line here; any other is `Unsupported`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jax.extend import core

from mepg.native.graph import COMPARISONS, At, Graph, Node, Unsupported

_TYPES = {"float32": "f32", "int32": "i32", "uint32": "u32", "bool": "bool"}
_ELEMENTWISE = {
    "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf_inv",
    "rem", "and", "or", "xor", "not", "shift_left", "shift_right_logical", "pow", "sign", "floor", *COMPARISONS,
}  # fmt: skip
_NOTHING = {"random_wrap", "random_unwrap", "copy", "stop_gradient", "optimization_barrier"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


def form(aval: Any) -> tuple[tuple[int, ...], str]:
    """The shape and type of a value; a random key is two words."""
    name = str(aval.dtype)
    if name.startswith("key<"):
        return (*aval.shape, 2), "u32"
    if name not in _TYPES:
        raise Unsupported(name)
    return tuple(aval.shape), _TYPES[name]


class Tracer:
    """Adds a jaxpr's equations to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def inline(self, jaxpr: Any, constants: Any, arguments: list[Node]) -> list[Node]:
        """The nodes of a jaxpr's outputs."""
        graph = self.graph
        values: dict[Any, Node] = {}

        def read(variable: Any) -> Node:
            if isinstance(variable, core.Literal):
                return graph.constant(np.asarray(variable.val).item(), *form(variable.aval))
            return values[variable]

        for variable, constant in zip(jaxpr.constvars, constants, strict=True):
            array = np.asarray(constant)
            if array.size != 1:
                raise Unsupported("an array of constants")
            values[variable] = graph.constant(array.item(), *form(variable.aval))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, found, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, equation: Any, given: list[Node]) -> list[Node]:
        name, settings = equation.primitive.name, equation.params
        if name in _CALLS:
            inner = settings.get("jaxpr") or settings.get("call_jaxpr")
            jaxpr, constants = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
            return self.inline(jaxpr, constants, given)
        if name in ("cond", "scan", "split", "sort"):
            several: Callable[..., list[Node]] = getattr(self, f"_{name}")
            return several(equation, given, **settings)
        shape, type = form(equation.outvars[0].aval)
        if name in _NOTHING:
            return [given[0]]
        if name in _ELEMENTWISE:
            return [self.graph.elementwise(name, given, type)]
        method: Callable[..., Node] | None = getattr(self, f"_{name}", None)
        if method is None:
            raise Unsupported(name)
        return [method(equation, given, shape, type)]

    # Elements

    def _add_any(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return self.graph.elementwise("add", given, type)

    def _square(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return self.graph.elementwise("mul", (given[0], given[0]), type)

    def _integer_pow(self, equation: Any, given: list[Node], __: Any, type: str) -> Node:
        power, x = equation.params["y"], given[0]
        if not 1 <= power <= 4:
            raise Unsupported(f"integer_pow of {power}")
        product = x
        for _ in range(power - 1):
            product = self.graph.elementwise("mul", (product, x), type)
        return product

    def _select_n(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        if len(given) != 3 or given[0].type != "bool":
            raise Unsupported("select_n among many")
        return self.graph.elementwise("select", given, type)

    def _convert_element_type(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return given[0] if given[0].type == type else self.graph.elementwise("convert", given, type)

    def _bitcast_convert_type(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return self.graph.elementwise("bitcast", given, type)

    def _reduce_precision(self, equation: Any, given: list[Node], _: Any, type: str) -> Node:
        if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) != (8, 7):
            raise Unsupported("reduce_precision to something other than bfloat16")
        below = given[0]
        if below.op == "transpose":  # the same numbers, rounded where they lie
            rounded = self.graph.elementwise("round", below.arguments, type)
            return self.graph.transpose(rounded, below.settings["permutation"])
        return self.graph.elementwise("round", given, type)

    def _logistic(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        graph, one = self.graph, self.graph.constant(1.0, (), type)
        power = graph.elementwise("exp", (graph.elementwise("neg", given, type),), type)
        return graph.elementwise("div", (one, graph.elementwise("add", (one, power), type)), type)

    def _iota(self, equation: Any, _: list[Node], shape: Any, type: str) -> Node:
        return self.graph.add("iota", (), shape, type, axis=equation.params["dimension"])

    # Views

    def _broadcast_in_dim(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        dims = list(equation.params["broadcast_dimensions"])
        return self.graph.broadcast(given[0], shape, dims + [len(shape) - 1] * (len(given[0].shape) - len(dims)))

    def _tile(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        pairs = zip(equation.params["reps"], given[0].shape, strict=True)
        apart = tuple(size for pair in pairs for size in pair)  # how often, and each time so many
        return self.graph.reshape(self.graph.broadcast(given[0], apart, range(1, len(apart), 2)), shape)

    def _reshape(self, _: Any, given: list[Node], shape: Any, __: str) -> Node:
        return self.graph.reshape(given[0], shape)

    _squeeze = _expand_dims = _reshape

    def _transpose(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        permutation = list(equation.params["permutation"])
        return self.graph.transpose(given[0], permutation + list(range(len(permutation), len(shape))))

    def _slice(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        start, stop = list(equation.params["start_indices"]), list(equation.params["limit_indices"])
        if set(equation.params["strides"] or ()) - {1}:
            raise Unsupported("slice with strides")
        words = len(shape) - len(start)  # of a key
        return self.graph.slice(given[0], start + [0] * words, stop + [2] * words)

    def _split(self, _: Any, given: list[Node], *, axis: int, sizes: Any) -> list[Node]:
        ends = np.cumsum(sizes)
        return [self.graph.part(given[0], axis, int(end - n), int(end)) for n, end in zip(sizes, ends, strict=True)]

    def _concatenate(self, equation: Any, given: list[Node], shape: Any, type: str) -> Node:
        return self.graph.add("concatenate", given, shape, type, axis=equation.params["dimension"])

    def _stack(self, equation: Any, given: list[Node], shape: Any, type: str) -> Node:
        axis = equation.params["axis"]
        one = [(*shape[:axis], 1, *shape[axis + 1 :])] * len(given)
        pieces = [self.graph.reshape(x, each) for x, each in zip(given, one, strict=True)]
        return self.graph.add("concatenate", pieces, shape, type, axis=axis)

    def _dynamic_slice(self, _: Any, given: list[Node], shape: Any, __: str) -> Node:
        below, *starts = given
        source: list[tuple[Any, ...]] = []
        for axis, size in enumerate(shape):
            if size == below.shape[axis]:
                source.append(("axis", axis))
            elif size == 1:
                source.append(("number", axis + 1, ()))
            else:
                raise Unsupported("dynamic_slice of several")
        return self.graph.take(below, shape, source, *starts)

    def _gather(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        """One element of some axes, all of the others: x[i], take_along_axis."""
        below, numbers = given
        d, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
        if len(d.start_index_map) != 1 or numbers.shape[-1] != 1:
            raise Unsupported("gather along several axes")
        numbers = self.graph.reshape(numbers, numbers.shape[:-1])
        batch = [axis for axis in range(len(shape)) if axis not in d.offset_dims]
        offsets = iter(d.offset_dims)
        source: list[tuple[Any, ...]] = []
        for axis, size in enumerate(sizes):
            offset = None if axis in (*d.collapsed_slice_dims, *d.operand_batching_dims) else next(offsets)
            if axis in d.operand_batching_dims:
                which = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
                source.append(("axis", batch[which]))
            elif axis in d.start_index_map and below.shape[axis] > 1:
                if size != 1:
                    raise Unsupported("gather of several")
                source.append(("number", 1, tuple(batch)))
            else:
                source.append(("at", At()) if offset is None else ("axis", int(offset)))
        return self.graph.take(below, shape, source, numbers)

    # Reductions and products

    def _reduce(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        kind = {"or": "any", "and": "all"}.get(equation.primitive.name[7:], equation.primitive.name[7:])
        return self.graph.reduce(kind, given[0], [int(a) for a in equation.params["axes"]])

    _reduce_sum = _reduce_max = _reduce_min = _reduce_or = _reduce_and = _reduce

    def _argmin(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        return self.graph.best(given[0], equation.params["axes"][0], "lt")

    def _argmax(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        return self.graph.best(given[0], equation.params["axes"][0], "gt")

    def _dot_general(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        """Axes are named: k is summed over, i and n are the result's rows and columns, l0, l1, ... lead."""
        (ours, theirs), (batch_a, batch_b) = equation.params["dimension_numbers"]
        a, b = given
        if len(ours) != 1 or a.type != "f32":
            raise Unsupported("dot_general over several axes")
        names_a, names_b = [""] * len(a.shape), [""] * len(b.shape)
        names_a[ours[0]] = names_b[theirs[0]] = "k"
        leading: list[str] = []
        for i, j in zip(batch_a, batch_b, strict=True):
            names_a[i] = names_b[j] = f"l{len(leading)}"
            leading.append(names_a[i])
        result = list(leading)
        for names, last in ((names_a, "i"), (names_b, "n")):
            free = [axis for axis, name in enumerate(names) if not name]
            for axis in free[:-1]:
                names[axis] = f"l{len(leading)}"
                leading.append(names[axis])
            if free:
                names[free[-1]] = last
            result += [names[axis] for axis in free]
        sizes = {"i": 1, "n": 1, **dict(zip(names_a, a.shape, strict=True)), **dict(zip(names_b, b.shape, strict=True))}
        order = [*leading, "i", "n"]
        product = self._product(a, names_a, b, names_b, leading, sizes)
        product = self.graph.transpose(
            product, [*map(order.index, result), *(order.index(x) for x in order if x not in result)]
        )
        return self.graph.reshape(product, shape)

    def _product(
        self, a: Node, names_a: list[str], b: Node, names_b: list[str], leading: list[str], sizes: dict[str, int]
    ) -> Node:
        if min(sizes["i"], sizes["k"], sizes["n"]) > 1:
            shape = [sizes[x] for x in (*leading, "i", "n")]
            return self.graph.add(
                "product", (a, b), shape, "f32", names=(tuple(names_a), tuple(names_b)), depth=sizes["k"]
            )
        space = [*leading, "i", "k", "n"]
        full = tuple(sizes[x] for x in space)
        x = self.graph.broadcast(a, full, [space.index(name) for name in names_a])
        y = self.graph.broadcast(b, full, [space.index(name) for name in names_b])
        return self.graph.reduce("sum", self.graph.elementwise("mul", (x, y), "f32"), [len(leading) + 1])

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

    # Several results

    def _sort(self, _: Any, given: list[Node], *, num_keys: int, **__: Any) -> list[Node]:
        if len(given) != 2 or num_keys != 1 or len(given[0].shape) != 1 or given[0].type != "u32":
            raise Unsupported("sort of anything but two vectors by unsigned numbers")
        node = self.graph.new("sort", given, (), "i32")
        return self._results(node, [(x.shape, x.type) for x in given])

    def _results(self, node: Node, forms: list[tuple[Any, str]]) -> list[Node]:
        return [self.graph.add("result", (node,), shape, type, which=k) for k, (shape, type) in enumerate(forms)]

    def _cond(self, equation: Any, given: list[Node], *, branches: Any, **_: Any) -> list[Node]:
        node = self.graph.new("branch", given[:1], (), "i32")
        node.settings["blocks"] = [
            self.graph.inside(node, partial(self.inline, branch.jaxpr, branch.consts, given[1:])) for branch in branches
        ]
        return self._results(node, [form(v.aval) for v in equation.outvars])

    def _scan(
        self, equation: Any, given: list[Node], *, jaxpr: Any, length: int, num_consts: int, num_carry: int,
        reverse: bool, **_: Any,
    ) -> list[Node]:  # fmt: skip
        if reverse:
            raise Unsupported("scan in reverse")
        fixed, start, each = given[:num_consts], given[num_consts:][:num_carry], given[num_consts + num_carry :]
        if length == 1:
            found = self.inline(jaxpr.jaxpr, jaxpr.consts, [*fixed, *start, *(self._step(x, At()) for x in each)])
            return found[:num_carry] + [self.graph.reshape(x, (1, *x.shape)) for x in found[num_carry:]]
        node = self.graph.new("loop", start, (), "i32", length=length, carry=num_carry)
        variable = f"t{node.number}"

        def body() -> list[Node]:
            block = self.graph.block
            block.carried = [self.graph.new("input", (), x.shape, x.type) for x in start]
            steps = [self._step(x, At(variable)) for x in each]
            return self.inline(jaxpr.jaxpr, jaxpr.consts, [*fixed, *block.carried, *steps])

        node.settings["blocks"] = [self.graph.inside(node, body, variable)]
        return self._results(node, [form(v.aval) for v in equation.outvars])

    def _step(self, x: Node, at: At) -> Node:
        return self.graph.take(x, x.shape[1:], [("at", at), *(("axis", a) for a in range(len(x.shape) - 1))])
