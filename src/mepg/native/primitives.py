"""What each primitive is in a graph: elements, views, indices, reductions, products, sorting."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from mepg.native.graph import At, Graph, Node, Unsupported
from mepg.native.reductions import best, reduce

_TYPES = {"float32": "f32", "int32": "i32", "uint32": "u32", "bool": "bool"}


def form(aval: Any) -> tuple[tuple[int, ...], str]:
    """The shape and type of a value; a random key is two words."""
    name = str(aval.dtype)
    if name.startswith("key<"):
        return (*aval.shape, 2), "u32"
    if name not in _TYPES:
        raise Unsupported(name)
    return tuple(aval.shape), _TYPES[name]


class Primitives:
    """A method for each, called like it: of the equation, its operands, and the shape and type of its result."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # Elements

    def _add_any(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return self.graph.elementwise("add", given, type)

    def _square(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        return self.graph.elementwise("mul", (given[0], given[0]), type)

    def _integer_pow(self, equation: Any, given: list[Node], __: Any, type: str) -> Node:
        power, x = equation.params["y"], given[0]
        if power > 0:
            return self._power(x, power)
        one = self.graph.constant(1, x.shape, type)
        return self.graph.elementwise("div", (one, self._power(x, -power)), type) if power else one

    def _power(self, x: Node, power: int) -> Node:
        if power == 1:
            return x
        if power <= 4 or power % 2:
            return self.graph.elementwise("mul", (self._power(x, power - 1), x), x.type)
        half = self._power(x, power // 2)
        return self.graph.elementwise("mul", (half, half), x.type)

    def _one_minus_square(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        graph, one = self.graph, self.graph.constant(1, (), type)
        more, less = graph.elementwise("add", (one, given[0]), type), graph.elementwise("sub", (one, given[0]), type)
        return graph.elementwise("mul", (more, less), type)

    def _select_n(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        which, chosen, *others = given
        for k, other in enumerate(others, 1):
            this = which if which.type == "bool" else self._is(which, k)
            chosen = self.graph.elementwise("select", (this, chosen, other), type)
        return chosen

    def _is(self, number: Node, k: int) -> Node:
        return self.graph.elementwise("eq", (number, self.graph.constant(k, (), number.type)), "bool")

    def _clamp(self, _: Any, given: list[Node], __: Any, type: str) -> Node:
        least, x, most = given
        return self.graph.elementwise("min", (self.graph.elementwise("max", (x, least), type), most), type)

    def _round(self, equation: Any, given: list[Node], __: Any, type: str) -> Node:
        even = int(equation.params["rounding_method"]) == int(jax.lax.RoundingMethod.TO_NEAREST_EVEN)
        return self.graph.elementwise("rint" if even else "round_away", given, type)

    def _is_finite(self, _: Any, given: list[Node], __: Any, ___: str) -> Node:
        size = self.graph.elementwise("abs", given, "f32")
        return self.graph.elementwise("lt", (size, self.graph.constant(math.inf, (), "f32")), "bool")

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
        words = len(shape) - len(start)  # of a key
        strides = [*(equation.params["strides"] or [1] * len(start)), *[1] * words]
        below = self.graph.slice(given[0], start + [0] * words, stop + [2] * words)
        return self._pick_every(below, {axis: (0, step) for axis, step in enumerate(strides) if step != 1}, shape)

    def _rev(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        return self._pick_every(
            given[0], {axis: (shape[axis] - 1, -1) for axis in equation.params["dimensions"]}, shape
        )

    def _pick_every(self, below: Node, along: dict[int, tuple[int, int]], shape: Any) -> Node:
        """Along these axes, from one element on in steps."""
        numbers = {axis: self.graph.counting(first, step, shape[axis]) for axis, (first, step) in along.items()}
        return self.graph.pick(below, numbers) if numbers else below

    def _pad(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        x, value = given
        graph = self.graph
        for axis, (low, high, between) in enumerate(equation.params["padding_config"]):
            n = x.shape[axis]

            def filled(size: int, axis: int = axis, like: Node = x) -> Node:
                return graph.broadcast(value, (*like.shape[:axis], size, *like.shape[axis + 1 :]), ())

            if between and n > 1:
                apart = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
                gap = graph.broadcast(value, (*apart[: axis + 1], between, *apart[axis + 2 :]), ())
                n *= between + 1
                x = graph.join([graph.reshape(x, apart), gap], axis + 1)
                x = graph.reshape(x, (*apart[:axis], n, *apart[axis + 2 :]))
                n, x = n - between, graph.part(x, axis, 0, n - between)
            x = graph.part(x, axis, max(-low, 0), n - max(-high, 0))
            x = graph.join([filled(max(low, 0)), x, filled(max(high, 0))], axis)
        return x

    def _split(self, _: Any, given: list[Node], *, axis: int, sizes: Any) -> list[Node]:
        ends = np.cumsum(sizes)
        return [self.graph.part(given[0], axis, int(end - n), int(end)) for n, end in zip(sizes, ends, strict=True)]

    def _unstack(self, equation: Any, given: list[Node], *, axis: int, **_: Any) -> list[Node]:
        parts = [self.graph.part(given[0], axis, i, i + 1) for i in range(given[0].shape[axis])]
        return [self.graph.reshape(x, form(v.aval)[0]) for x, v in zip(parts, equation.outvars, strict=True)]

    def _concatenate(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        return self.graph.join(given, equation.params["dimension"])

    def _stack(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        axis = equation.params["axis"]
        one = [(*shape[:axis], 1, *shape[axis + 1 :])] * len(given)
        pieces = [self.graph.reshape(x, each) for x, each in zip(given, one, strict=True)]
        return self.graph.join(pieces, axis)

    def _dynamic_slice(self, _: Any, given: list[Node], shape: Any, __: str) -> Node:
        below, *starts = given
        source: list[tuple[Any, ...]] = []
        for axis, size in enumerate(shape):
            if size == below.shape[axis]:
                source.append(("axis", axis))
            elif size == 1:
                source.append(("number", axis + 1, ()))
            else:
                starts[axis] = self._window(starts[axis], size, below.shape[axis])
                source.append(("number", axis + 1, (axis,)))
        return self.graph.take(below, shape, source, *starts)

    def _window(self, start: Node, size: int, limit: int) -> Node:
        """The numbers of so many elements that lie side by side, all of them below a limit."""
        return self.graph.counting(self.graph.clip(start, limit - size), 1, size)

    def _dynamic_update_slice(self, _: Any, given: list[Node], shape: Any, type: str) -> Node:
        below, updates, *starts = given
        source = tuple((axis, (), axis) for axis in range(len(shape)))
        return self.graph.add("scatter", (below, updates, *starts), shape, type, kind="set", source=source, clip=True)

    def _scatter(self, equation: Any, given: list[Node], shape: Any, type: str) -> Node:
        """For each axis: which of the numbers is added, the updates' axes that it depends on, the window's axis."""
        below, numbers, updates = given
        d = equation.params["dimension_numbers"]
        batch = [axis for axis in range(len(updates.shape)) if axis not in d.update_window_dims]
        last = len(numbers.shape) - 1
        each = [self.graph.part(numbers, last, k, k + 1) for k in range(len(d.scatter_dims_to_operand_dims))]
        each = [self.graph.reshape(x, x.shape[:-1]) for x in each]
        windows = iter(d.update_window_dims)
        source: list[tuple[int | None, tuple[int, ...], int | None]] = []
        for axis in range(len(shape)):
            if axis in d.operand_batching_dims:
                which = d.scatter_indices_batching_dims[d.operand_batching_dims.index(axis)]
                source.append((None, (), batch[which]))
                continue
            window = None if axis in d.inserted_window_dims else int(next(windows))
            known = axis in d.scatter_dims_to_operand_dims
            source.append((d.scatter_dims_to_operand_dims.index(axis) if known else None, tuple(batch), window))
        kind = equation.primitive.name.replace("-", "_").removeprefix("scatter").strip("_") or "set"
        clip = equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
        return self.graph.add(
            "scatter", (below, updates, *each), shape, type, kind=kind, source=tuple(source), clip=clip
        )

    _scatter_add = _scatter_sub = _scatter_mul = _scatter_min = _scatter_max = _scatter

    def _gather(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        """One element of some axes, all or some of the others: x[i], x[i, j], take_along_axis."""
        below, numbers = given
        d, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
        last = len(numbers.shape) - 1
        each = [self.graph.part(numbers, last, k, k + 1) for k in range(len(d.start_index_map))]
        each = [self.graph.reshape(x, x.shape[:-1]) for x in each]
        batch = [axis for axis in range(len(shape)) if axis not in d.offset_dims]
        offsets = map(int, d.offset_dims)
        source: list[tuple[Any, ...]] = []
        for axis, size in enumerate(sizes):
            offset = None if axis in (*d.collapsed_slice_dims, *d.operand_batching_dims) else next(offsets)
            if axis in d.operand_batching_dims:
                which = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
                source.append(("axis", batch[which]))
            elif axis in d.start_index_map and below.shape[axis] > size:
                k = d.start_index_map.index(axis)
                if size == 1:
                    source.append(("number", k + 1, tuple(batch)))
                else:
                    each[k] = self._window(each[k], size, below.shape[axis])
                    source.append(("number", k + 1, (*batch, offset)))
            else:
                source.append(("at", At()) if offset is None else ("axis", offset))
        return self.graph.take(below, shape, source, *each)

    # Reductions and products

    def _reduced(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        kind = {"or": "any", "and": "all"}.get(equation.primitive.name[7:], equation.primitive.name[7:])
        return reduce(self.graph, kind, given[0], [int(a) for a in equation.params["axes"]])

    _reduce_sum = _reduce_prod = _reduce_max = _reduce_min = _reduce_or = _reduce_and = _reduced

    def _argmin(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        return best(self.graph, given[0], equation.params["axes"][0], "lt")

    def _argmax(self, equation: Any, given: list[Node], _: Any, __: str) -> Node:
        return best(self.graph, given[0], equation.params["axes"][0], "gt")

    def _dot_general(self, equation: Any, given: list[Node], shape: Any, _: str) -> Node:
        """Axes are named: k is summed over, i and n are the result's rows and columns, l0, l1, ... lead."""
        (ours, theirs), (batch_a, batch_b) = equation.params["dimension_numbers"]
        a, b = given
        if len(ours) != 1:
            a, ours = self._as_one_axis(a, ours, batch_a)
            b, theirs = self._as_one_axis(b, theirs, batch_b)
            batch_a = batch_b = tuple(range(len(batch_a)))
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

    def _as_one_axis(self, x: Node, axes: Any, first: Any) -> tuple[Node, list[int]]:
        """Some axes as one that comes last, others first."""
        rest = [*first, *(a for a in range(len(x.shape)) if a not in (*first, *axes))]
        shape = (*(x.shape[a] for a in rest), math.prod(x.shape[a] for a in axes))
        return self.graph.reshape(self.graph.transpose(x, [*rest, *axes]), shape), [len(rest)]

    def _product(
        self, a: Node, names_a: list[str], b: Node, names_b: list[str], leading: list[str], sizes: dict[str, int]
    ) -> Node:
        if min(sizes["i"], sizes["k"], sizes["n"]) > 1 and a.type == "f32":
            shape = [sizes[x] for x in (*leading, "i", "n")]
            return self.graph.add(
                "product", (a, b), shape, "f32", names=(tuple(names_a), tuple(names_b)), depth=sizes["k"]
            )
        space = [*leading, "i", "k", "n"]
        full = tuple(sizes[x] for x in space)
        x = self.graph.broadcast(a, full, [space.index(name) for name in names_a])
        y = self.graph.broadcast(b, full, [space.index(name) for name in names_b])
        return reduce(self.graph, "sum", self.graph.elementwise("mul", (x, y), a.type), [len(leading) + 1])

    # Sorting

    def _results(self, node: Node, forms: list[tuple[Any, str]]) -> list[Node]:
        return [self.graph.add("result", (node,), shape, type, which=k) for k, (shape, type) in enumerate(forms)]

    def _sort(self, _: Any, given: list[Node], *, num_keys: int, dimension: int, **__: Any) -> list[Node]:
        first = given[0]
        if len(given) == 2 and num_keys == 1 and len(first.shape) == 1 and first.type == "u32":  # a permutation's
            node = self.graph.new("sort", given, (), "i32")
            return self._results(node, [(x.shape, x.type) for x in given])
        order = self._order(given[:num_keys], dimension)
        axes = tuple(range(len(order.shape)))
        source = [("number", 1, axes) if axis == dimension else ("axis", axis) for axis in axes]
        return [self.graph.take(x, x.shape, source, order) for x in given]

    def _order(self, keys: list[Node], axis: int) -> Node:
        """The places of the numbers along an axis, in rising order."""
        graph, shape = self.graph, keys[0].shape
        last = [*(a for a in range(len(shape)) if a != axis), axis]
        n, rows = shape[axis], math.prod(shape) // shape[axis]
        plain = [graph.add("relayout", (graph.transpose(x, last),), (rows, n), x.type) for x in keys]
        order = graph.part(graph.add("order", plain, (rows + 1, n), "i32"), 0, 0, rows)
        return graph.transpose(
            graph.reshape(order, tuple(shape[a] for a in last)), [last.index(a) for a in range(len(shape))]
        )

    def _top_k(self, equation: Any, given: list[Node], **settings: Any) -> list[Node]:
        graph, x, (shape, type) = self.graph, given[0], form(equation.outvars[0].aval)
        axis = settings.get("axis", len(shape) - 1)
        order = self._order([graph.elementwise("neg" if type == "f32" else "not", given, type)], axis)
        order = graph.part(order, axis, 0, shape[axis])
        source = [("number", 1, tuple(range(len(shape)))) if a == axis else ("axis", a) for a in range(len(shape))]
        return [graph.take(x, shape, source, order), order]
