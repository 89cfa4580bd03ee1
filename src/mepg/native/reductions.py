"""Reductions over axes: sums, maxima and the like. Short ones are unrolled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mepg.native.graph import Graph, Node, Shape, Unsupported

_IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
_UNROLLED = 64  # elements at most


def reduce(graph: Graph, kind: str, base: Node, axes: Sequence[int]) -> Node:
    """sum, prod, max, min, any or all, over axes."""
    if 0 in base.shape:
        if kind not in _IDENTITY:
            raise Unsupported(f"the {kind} of no numbers")
        return graph.constant(_IDENTITY[kind], [d for i, d in enumerate(base.shape) if i not in axes], base.dtype)
    if base.dtype == "bool" and max((base.shape[axis] for axis in axes), default=0) > _UNROLLED:
        counts = reduce(graph, "max" if kind == "any" else "min", graph.elementwise("convert", (base,), "i32"), axes)
        return graph.elementwise("convert", (counts,), "bool")
    outer: list[int] = []  # long axes that are neither rows nor columns in memory
    for axis in sorted(axes, reverse=True):
        size, rest = base.shape[axis], base.shape[:axis] + base.shape[axis + 1 :]
        inner = axis in _inner(base.shape) and (base.dtype == "f32" or size > _UNROLLED)
        vector = math.prod(base.shape) == size
        if size == 1 or not inner or (size <= 16 and (vector or (axis < len(base.shape) - 1 and size * 4 < max(rest)))):
            if size > _UNROLLED:
                outer, axes = [*outer, axis], [a for a in axes if a != axis]
            else:
                base = _unroll(graph, kind, base, axis)
                outer, axes = [a - 1 for a in outer], [a - (a > axis) for a in axes if a != axis]
    if axes:
        shape = [d for i, d in enumerate(base.shape) if i not in axes]
        base = graph.add("reduce", (base,), shape, base.dtype, kind=kind, axes=tuple(sorted(axes)))
        outer = [axis - sum(a < axis for a in axes) for axis in outer]
    return _reduce_outer(graph, kind, base, outer) if outer else base


def _reduce_outer(graph: Graph, kind: str, base: Node, axes: list[int]) -> Node:
    """Over long leading axes: the first of them becomes the rows."""
    others = [a for a in range(len(base.shape)) if a != axes[0]]
    order = [*others[:-1], axes[0], *others[-1:]]
    return reduce(graph, kind, graph.transpose(base, order), [order.index(a) for a in axes])


def _unstack(graph: Graph, base: Node, axis: int) -> list[Node]:
    size, rest = base.shape[axis], base.shape[:axis] + base.shape[axis + 1 :]
    return [graph.reshape(graph.slice_axis(base, axis, i, i + 1), rest) for i in range(size)]


def _unroll(graph: Graph, kind: str, base: Node, axis: int) -> Node:
    op = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}[kind]
    result, *others = _unstack(graph, base, axis)
    for other in others:
        result = graph.elementwise(op, (result, other), result.dtype)
    return result


def argbest(graph: Graph, base: Node, axis: int, better: str) -> Node:
    """argmax ("gt") or argmin ("lt") along an axis: the index of the first best number, or of the first NaN."""
    if base.shape[axis] > _UNROLLED:
        return _argbest_of_many(graph, base, axis, better)
    best, *others = _unstack(graph, base, axis)
    index = graph.constant(0, best.shape, "i32")
    for i, other in enumerate(others, 1):
        is_better = graph.elementwise(better, (other, best), "bool")
        if other.dtype == "f32":
            is_nan = graph.elementwise("ne", (other, other), "bool")
            was_number = graph.elementwise("eq", (best, best), "bool")
            first_nan = graph.elementwise("and", (is_nan, was_number), "bool")
            is_better = graph.elementwise("or", (is_better, first_nan), "bool")
        best = graph.elementwise("select", (is_better, best, other), best.dtype)
        index = graph.elementwise("select", (is_better, index, graph.constant(i, (), "i32")), "i32")
    return index


def _argbest_of_many(graph: Graph, base: Node, axis: int, better: str) -> Node:
    """The least index of a number that equals the best, or is NaN."""
    base = graph.elementwise("convert", (base,), "i32") if base.dtype == "bool" else base
    shape, size = base.shape, base.shape[axis]
    best = reduce(graph, "max" if better == "gt" else "min", base, [axis])
    best = graph.broadcast(best, shape, [a for a in range(len(shape)) if a != axis])
    is_best = graph.elementwise("eq", (base, best), "bool")
    if base.dtype == "f32":
        is_nan = graph.elementwise("ne", (base, base), "bool")
        is_best = graph.elementwise("or", (is_best, is_nan), "bool")
    index = graph.add("iota", (), shape, "i32", axis=axis)
    candidates = graph.elementwise("select", (is_best, graph.constant(size, (), "i32"), index), "i32")
    return reduce(graph, "min", candidates, [axis])


def _inner(shape: Shape) -> list[int]:
    """The axes that are a matrix's rows and columns in memory."""
    return [i for i, d in enumerate(shape) if d > 1][-2:]
