"""Sums, maxima and the like over axes, as nodes. Short ones are written out, number by number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mepg.native.graph import Graph, Node, Shape, Unsupported

_OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True}
_LONG = 64  # numbers: fewer are written out one by one


def reduce(graph: Graph, kind: str, below: Node, axes: Sequence[int]) -> Node:
    """sum, prod, max, min, any or all, over axes; over short ones that are not the last, written out."""
    if 0 in below.shape:
        if kind not in _OF_NOTHING:
            raise Unsupported(f"the {kind} of no numbers")
        return graph.constant(_OF_NOTHING[kind], [d for i, d in enumerate(below.shape) if i not in axes], below.type)
    if below.type == "bool" and max(below.shape[axis] for axis in axes) > _LONG:
        ones = reduce(graph, "max" if kind == "any" else "min", graph.elementwise("convert", (below,), "i32"), axes)
        return graph.elementwise("convert", (ones,), "bool")
    far: list[int] = []
    for axis in sorted(axes, reverse=True):
        size, rest = below.shape[axis], below.shape[:axis] + below.shape[axis + 1 :]
        inner = axis in _inner(below.shape) and (below.type == "f32" or size > _LONG)
        alone = math.prod(below.shape) == size
        if size == 1 or not inner or (size <= 16 and (alone or (axis < len(below.shape) - 1 and size * 4 < max(rest)))):
            if size > _LONG:
                far, axes = [*far, axis], [a for a in axes if a != axis]
            else:
                below = _write_out(graph, kind, below, axis)
                far, axes = [a - 1 for a in far], [a - (a > axis) for a in axes if a != axis]
    if axes:
        shape = [d for i, d in enumerate(below.shape) if i not in axes]
        below = graph.add("reduce", (below,), shape, below.type, kind=kind, axes=tuple(sorted(axes)))
        far = [axis - sum(a < axis for a in axes) for axis in far]
    return _reduce_far(graph, kind, below, far) if far else below


def _reduce_far(graph: Graph, kind: str, below: Node, axes: list[int]) -> Node:
    """Over long leading axes: one of them becomes the rows."""
    *leading, last = (a for a in range(len(below.shape)) if a != axes[0])
    order = [*leading, axes[0], last]
    return reduce(graph, kind, graph.transpose(below, order), [order.index(a) for a in axes])


def _along(graph: Graph, below: Node, axis: int) -> list[Node]:
    size, rest = below.shape[axis], below.shape[:axis] + below.shape[axis + 1 :]
    return [graph.reshape(graph.part(below, axis, i, i + 1), rest) for i in range(size)]


def _write_out(graph: Graph, kind: str, below: Node, axis: int) -> Node:
    op = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}[kind]
    first, *others = _along(graph, below, axis)
    for other in others:
        first = graph.elementwise(op, (first, other), first.type)
    return first


def best(graph: Graph, below: Node, axis: int, better: str) -> Node:
    """The place of the first best number (or NaN) along an axis."""
    if below.shape[axis] > _LONG:
        return _best_of_many(graph, below, axis, better)
    first, *others = _along(graph, below, axis)
    found = graph.constant(0, first.shape, "i32")
    for i, other in enumerate(others, 1):
        beats = graph.elementwise(better, (other, first), "bool")
        if other.type == "f32":
            missing = graph.elementwise("ne", (other, other), "bool")
            valid = graph.elementwise("eq", (first, first), "bool")
            beats = graph.elementwise("or", (beats, graph.elementwise("and", (missing, valid), "bool")), "bool")
        first = graph.elementwise("select", (beats, first, other), first.type)
        found = graph.elementwise("select", (beats, found, graph.constant(i, (), "i32")), "i32")
    return found


def _best_of_many(graph: Graph, below: Node, axis: int, better: str) -> Node:
    """The least place of a number that equals the best, or is NaN."""
    below = graph.elementwise("convert", (below,), "i32") if below.type == "bool" else below
    shape, size = below.shape, below.shape[axis]
    best = reduce(graph, "max" if better == "gt" else "min", below, [axis])
    best = graph.broadcast(best, shape, [a for a in range(len(shape)) if a != axis])
    found = graph.elementwise("eq", (below, best), "bool")
    if below.type == "f32":
        missing = graph.elementwise("ne", (below, below), "bool")
        found = graph.elementwise("or", (found, missing), "bool")
    place = graph.add("iota", (), shape, "i32", axis=axis)
    return reduce(
        graph, "min", graph.elementwise("select", (found, graph.constant(size, (), "i32"), place), "i32"), [axis]
    )


def _inner(shape: Shape) -> list[int]:
    """The axes that are a matrix's rows and columns in memory."""
    return [i for i, d in enumerate(shape) if d > 1][-2:]
