"""The lowering rule of each primitive: elementwise operations, views, indexing, reductions, products, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from mepg.native.graph import ZERO, ArrayType, Graph, Node, Shape, Source, Unsupported
from mepg.native.reductions import argbest, reduce

Equation = core.JaxprEqn
_DTYPES = {"float32": "f32", "int32": "i32", "uint32": "u32", "bool": "bool"}


def array_type(aval: Any) -> ArrayType:
    """The shape and dtype of a JAX value; a random key is two words."""
    name = str(aval.dtype)
    if name.startswith("key<"):
        return ArrayType((*aval.shape, 2), "u32")
    if name not in _DTYPES:
        raise Unsupported(name)
    return ArrayType(tuple(aval.shape), _DTYPES[name])


class Primitives:
    """A method for each, named after it, of the equation, its arguments, and the shape and dtype of its result."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # Elementwise operations

    def _add_any(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        return self.graph.elementwise("add", arguments, dtype)

    def _square(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        return self.graph.elementwise("mul", (arguments[0], arguments[0]), dtype)

    def _integer_pow(self, equation: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        power, x = equation.params["y"], arguments[0]
        if power > 0:
            return self._multiply_out(x, power)
        one = self.graph.constant(1, x.shape, dtype)
        return self.graph.elementwise("div", (one, self._multiply_out(x, -power)), dtype) if power else one

    def _multiply_out(self, x: Node, power: int) -> Node:
        if power == 1:
            return x
        if power <= 4 or power % 2:
            return self.graph.elementwise("mul", (self._multiply_out(x, power - 1), x), x.dtype)
        half = self._multiply_out(x, power // 2)
        return self.graph.elementwise("mul", (half, half), x.dtype)

    def _one_minus_square(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        graph, one = self.graph, self.graph.constant(1, (), dtype)
        more, less = (
            graph.elementwise("add", (one, arguments[0]), dtype),
            graph.elementwise("sub", (one, arguments[0]), dtype),
        )
        return graph.elementwise("mul", (more, less), dtype)

    def _select_n(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        predicate, result, *cases = arguments
        for k, case in enumerate(cases, 1):
            this = predicate if predicate.dtype == "bool" else self._equals(predicate, k)
            result = self.graph.elementwise("select", (this, result, case), dtype)
        return result

    def _equals(self, x: Node, k: int) -> Node:
        return self.graph.elementwise("eq", (x, self.graph.constant(k, (), x.dtype)), "bool")

    def _clamp(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        lower, x, upper = arguments
        return self.graph.elementwise("min", (self.graph.elementwise("max", (x, lower), dtype), upper), dtype)

    def _round(self, equation: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        even = int(equation.params["rounding_method"]) == int(jax.lax.RoundingMethod.TO_NEAREST_EVEN)
        return self.graph.elementwise("rint" if even else "round_away", arguments, dtype)

    def _is_finite(self, _: Equation, arguments: list[Node], __: Shape, ___: str) -> Node:
        magnitude = self.graph.elementwise("abs", arguments, "f32")
        return self.graph.elementwise("lt", (magnitude, self.graph.constant(math.inf, (), "f32")), "bool")

    def _convert_element_type(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        return arguments[0] if arguments[0].dtype == dtype else self.graph.elementwise("convert", arguments, dtype)

    def _bitcast_convert_type(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        return self.graph.elementwise("bitcast", arguments, dtype)

    def _reduce_precision(self, equation: Equation, arguments: list[Node], _: Shape, dtype: str) -> Node:
        if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) != (8, 7):
            raise Unsupported("reduce_precision to something other than bfloat16")
        x = arguments[0]
        if x.op == "transpose":  # rounded first, so that the transpose stays a view
            rounded = self.graph.elementwise("round", x.arguments, dtype)
            return self.graph.transpose(rounded, x.params["permutation"])
        return self.graph.elementwise("round", arguments, dtype)

    def _logistic(self, _: Equation, arguments: list[Node], __: Shape, dtype: str) -> Node:
        graph, one = self.graph, self.graph.constant(1.0, (), dtype)
        exponential = graph.elementwise("exp", (graph.elementwise("neg", arguments, dtype),), dtype)
        return graph.elementwise("div", (one, graph.elementwise("add", (one, exponential), dtype)), dtype)

    def _iota(self, equation: Equation, _: list[Node], shape: Shape, dtype: str) -> Node:
        return self.graph.add("iota", (), shape, dtype, axis=equation.params["dimension"])

    # Views

    def _broadcast_in_dim(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        dims = list(equation.params["broadcast_dimensions"])
        return self.graph.broadcast(
            arguments[0], shape, dims + [len(shape) - 1] * (len(arguments[0].shape) - len(dims))
        )

    def _tile(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        pairs = zip(equation.params["reps"], arguments[0].shape, strict=True)
        split = tuple(size for pair in pairs for size in pair)  # an axis of repetitions before each axis
        return self.graph.reshape(self.graph.broadcast(arguments[0], split, range(1, len(split), 2)), shape)

    def _reshape(self, _: Equation, arguments: list[Node], shape: Shape, __: str) -> Node:
        return self.graph.reshape(arguments[0], shape)

    _squeeze = _expand_dims = _reshape

    def _transpose(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        permutation = list(equation.params["permutation"])
        return self.graph.transpose(arguments[0], permutation + list(range(len(permutation), len(shape))))

    def _slice(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        start, stop = list(equation.params["start_indices"]), list(equation.params["limit_indices"])
        words = len(shape) - len(start)  # a random key has one axis more
        strides = [*(equation.params["strides"] or [1] * len(start)), *[1] * words]
        x = self.graph.slice(arguments[0], start + [0] * words, stop + [2] * words)
        return self._strided(x, {axis: (0, step) for axis, step in enumerate(strides) if step != 1}, shape)

    def _rev(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        reversed_axes = {axis: (shape[axis] - 1, -1) for axis in equation.params["dimensions"]}
        return self._strided(arguments[0], reversed_axes, shape)

    def _strided(self, x: Node, axes: dict[int, tuple[int, int]], shape: Shape) -> Node:
        """From a start on in steps, (start, step) for each of these axes."""
        indices = {axis: self.graph.arange(start, step, shape[axis]) for axis, (start, step) in axes.items()}
        return self.graph.take(x, indices) if indices else x

    def _pad(self, equation: Equation, arguments: list[Node], _: Shape, __: str) -> Node:
        x, value = arguments
        graph = self.graph
        for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
            n = x.shape[axis]

            def filled(size: int, axis: int = axis, like: Node = x) -> Node:
                return graph.broadcast(value, (*like.shape[:axis], size, *like.shape[axis + 1 :]), ())

            if interior and n > 1:
                expanded = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
                gap = graph.broadcast(value, (*expanded[: axis + 1], interior, *expanded[axis + 2 :]), ())
                n *= interior + 1
                x = graph.concatenate([graph.reshape(x, expanded), gap], axis + 1)
                x = graph.reshape(x, (*expanded[:axis], n, *expanded[axis + 2 :]))
                n, x = n - interior, graph.slice_axis(x, axis, 0, n - interior)
            x = graph.slice_axis(x, axis, max(-low, 0), n - max(-high, 0))
            x = graph.concatenate([filled(max(low, 0)), x, filled(max(high, 0))], axis)
        return x

    def _split(self, _: Equation, arguments: list[Node], *, axis: int, sizes: Any) -> list[Node]:
        ends = np.cumsum(sizes)
        return [
            self.graph.slice_axis(arguments[0], axis, int(end - n), int(end))
            for n, end in zip(sizes, ends, strict=True)
        ]

    def _unstack(self, equation: Equation, arguments: list[Node], *, axis: int, **_: Any) -> list[Node]:
        parts = [self.graph.slice_axis(arguments[0], axis, i, i + 1) for i in range(arguments[0].shape[axis])]
        return [self.graph.reshape(x, array_type(v.aval)[0]) for x, v in zip(parts, equation.outvars, strict=True)]

    def _concatenate(self, equation: Equation, arguments: list[Node], _: Shape, __: str) -> Node:
        return self.graph.concatenate(arguments, equation.params["dimension"])

    def _stack(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        axis = equation.params["axis"]
        expanded = (*shape[:axis], 1, *shape[axis + 1 :])
        return self.graph.concatenate([self.graph.reshape(x, expanded) for x in arguments], axis)

    def _dynamic_slice(self, _: Equation, arguments: list[Node], shape: Shape, __: str) -> Node:
        x, *starts = arguments
        source: list[Source] = []
        for axis, size in enumerate(shape):
            if size == x.shape[axis]:
                source.append(axis)
            elif size == 1:
                source.append((axis + 1, ()))
            else:
                starts[axis] = self._window(starts[axis], size, x.shape[axis])
                source.append((axis + 1, (axis,)))
        return self.graph.gather(x, shape, source, *starts)

    def _window(self, start: Node, size: int, length: int) -> Node:
        """The indices of a window along an axis of some length, which it does not leave."""
        return self.graph.arange(self.graph.clip(start, length - size), 1, size)

    def _dynamic_update_slice(self, _: Equation, arguments: list[Node], shape: Shape, dtype: str) -> Node:
        x, updates, *starts = arguments
        source = tuple((axis, (), axis) for axis in range(len(shape)))
        return self.graph.add("scatter", (x, updates, *starts), shape, dtype, kind="set", source=source, clip=True)

    def _scatter(self, equation: Equation, arguments: list[Node], shape: Shape, dtype: str) -> Node:
        """For each axis: the array of indices, the updates' axes that say which element of it, the window's axis."""
        x, indices, updates = arguments
        d = equation.params["dimension_numbers"]
        batch = [axis for axis in range(len(updates.shape)) if axis not in d.update_window_dims]
        starts = self._components(indices, len(d.scatter_dims_to_operand_dims))
        windows = iter(d.update_window_dims)
        source: list[tuple[int | None, tuple[int, ...], int | None]] = []
        for axis in range(len(shape)):
            if axis in d.operand_batching_dims:
                batch_axis = d.scatter_indices_batching_dims[d.operand_batching_dims.index(axis)]
                source.append((None, (), batch[batch_axis]))
                continue
            window = None if axis in d.inserted_window_dims else int(next(windows))
            indexed = axis in d.scatter_dims_to_operand_dims
            source.append((d.scatter_dims_to_operand_dims.index(axis) if indexed else None, tuple(batch), window))
        kind = equation.primitive.name.replace("-", "_").removeprefix("scatter").strip("_") or "set"
        clip = equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
        return self.graph.add(
            "scatter", (x, updates, *starts), shape, dtype, kind=kind, source=tuple(source), clip=clip
        )

    def _components(self, indices: Node, count: int) -> list[Node]:
        """Vectors of indices as one array for each component."""
        last = len(indices.shape) - 1
        return [
            self.graph.reshape(self.graph.slice_axis(indices, last, k, k + 1), indices.shape[:-1]) for k in range(count)
        ]

    _scatter_add = _scatter_sub = _scatter_mul = _scatter_min = _scatter_max = _scatter

    def _gather(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        """One element of some axes, all or some of the others: x[i], x[i, j], take_along_axis."""
        x, indices = arguments
        d, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
        starts = self._components(indices, len(d.start_index_map))
        batch = [axis for axis in range(len(shape)) if axis not in d.offset_dims]
        offsets = map(int, d.offset_dims)
        source: list[Source] = []
        for axis, size in enumerate(sizes):
            offset = None if axis in (*d.collapsed_slice_dims, *d.operand_batching_dims) else next(offsets)
            if axis in d.operand_batching_dims:
                batch_axis = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
                source.append(batch[batch_axis])
            elif axis in d.start_index_map and x.shape[axis] > size:
                k = d.start_index_map.index(axis)
                if size == 1 or offset is None:
                    source.append((k + 1, tuple(batch)))
                else:
                    starts[k] = self._window(starts[k], size, x.shape[axis])
                    source.append((k + 1, (*batch, offset)))
            else:
                source.append(ZERO if offset is None else offset)
        return self.graph.gather(x, shape, source, *starts)

    # Reductions and products

    def _reduced(self, equation: Equation, arguments: list[Node], _: Shape, __: str) -> Node:
        kind = {"or": "any", "and": "all"}.get(equation.primitive.name[7:], equation.primitive.name[7:])
        return reduce(self.graph, kind, arguments[0], [int(a) for a in equation.params["axes"]])

    _reduce_sum = _reduce_prod = _reduce_max = _reduce_min = _reduce_or = _reduce_and = _reduced

    def _argbest(self, equation: Equation, arguments: list[Node], _: Shape, __: str) -> Node:
        better = {"argmin": "lt", "argmax": "gt"}[equation.primitive.name]
        return argbest(self.graph, arguments[0], equation.params["axes"][0], better)

    _argmin = _argmax = _argbest

    def _dot_general(self, equation: Equation, arguments: list[Node], shape: Shape, _: str) -> Node:
        """Axes are named: k is summed over, i and n are the result's rows and columns, l0, l1, ... lead."""
        (contracting_a, contracting_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
        a, b = arguments
        if len(contracting_a) != 1:
            a, contracting_a = self._merge_axes(a, contracting_a, batch_a)
            b, contracting_b = self._merge_axes(b, contracting_b, batch_b)
            batch_a = batch_b = tuple(range(len(batch_a)))
        names_a, names_b = [""] * len(a.shape), [""] * len(b.shape)
        names_a[contracting_a[0]] = names_b[contracting_b[0]] = "k"
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

    def _merge_axes(self, x: Node, axes: Sequence[int], batch: Sequence[int]) -> tuple[Node, list[int]]:
        """Some axes merged into one that comes last; the batch's come first."""
        rest = [*batch, *(a for a in range(len(x.shape)) if a not in (*batch, *axes))]
        shape = (*(x.shape[a] for a in rest), math.prod(x.shape[a] for a in axes))
        return self.graph.reshape(self.graph.transpose(x, [*rest, *axes]), shape), [len(rest)]

    def _product(
        self, a: Node, names_a: list[str], b: Node, names_b: list[str], leading: list[str], sizes: dict[str, int]
    ) -> Node:
        """A product if it has a matrix on both sides; otherwise a sum of elementwise products."""
        if min(sizes["i"], sizes["k"], sizes["n"]) > 1 and a.dtype == "f32":
            shape = [sizes[x] for x in (*leading, "i", "n")]
            return self.graph.add(
                "product", (a, b), shape, "f32", names=(tuple(names_a), tuple(names_b)), depth=sizes["k"]
            )
        space = [*leading, "i", "k", "n"]
        full = tuple(sizes[x] for x in space)
        x = self.graph.broadcast(a, full, [space.index(name) for name in names_a])
        y = self.graph.broadcast(b, full, [space.index(name) for name in names_b])
        return reduce(self.graph, "sum", self.graph.elementwise("mul", (x, y), a.dtype), [len(leading) + 1])

    # Sorting

    def _results(self, node: Node, types: Sequence[ArrayType]) -> list[Node]:
        return [self.graph.add("result", (node,), *each, position=k) for k, each in enumerate(types)]

    def _sort(self, _: Equation, arguments: list[Node], *, num_keys: int, dimension: int, **__: Any) -> list[Node]:
        keys = arguments[0]
        if len(arguments) == 2 and num_keys == 1 and len(keys.shape) == 1 and keys.dtype == "u32":  # of a permutation
            node = self.graph.new("sort", arguments, (), "i32")
            return self._results(node, [ArrayType(x.shape, x.dtype) for x in arguments])
        order = self._argsort(arguments[:num_keys], dimension)
        axes = tuple(range(len(order.shape)))
        source = [(1, axes) if axis == dimension else axis for axis in axes]
        return [self.graph.gather(x, x.shape, source, order) for x in arguments]

    def _argsort(self, keys: list[Node], axis: int) -> Node:
        """The indices along an axis that sort these keys, the first of which decides."""
        graph, shape = self.graph, keys[0].shape
        last = [*(a for a in range(len(shape)) if a != axis), axis]
        n, rows = shape[axis], math.prod(shape) // shape[axis]
        row_major = [graph.add("relayout", (graph.transpose(x, last),), (rows, n), x.dtype) for x in keys]
        order = graph.slice_axis(graph.add("order", row_major, (rows + 1, n), "i32"), 0, 0, rows)
        return graph.transpose(
            graph.reshape(order, tuple(shape[a] for a in last)), [last.index(a) for a in range(len(shape))]
        )

    def _top_k(self, equation: Equation, arguments: list[Node], **params: Any) -> list[Node]:
        graph, x, (shape, dtype) = self.graph, arguments[0], array_type(equation.outvars[0].aval)
        axis = params.get("axis", len(shape) - 1)
        order = self._argsort([graph.elementwise("neg" if dtype == "f32" else "not", arguments, dtype)], axis)
        order = graph.slice_axis(order, axis, 0, shape[axis])
        source = [(1, tuple(range(len(shape)))) if a == axis else a for a in range(len(shape))]
        return [graph.gather(x, shape, source, order), order]
