"""Which part of a loop nest each thread computes.

The rows or columns of a result are divided, never the terms of a sum. So every number is computed by one thread, in the
order in which a single thread would compute it, and the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mepg.native.buffers import reduced_variables
from mepg.native.schedule import LoopNest, NodeStep, PackStep, Step

_WORTHWHILE = 2**14  # multiplications, or elements: about what a thread computes in the time of a barrier


class Range(NamedTuple):
    """The bounds of a thread's loop, as C++."""

    first: str
    last: str


class Partition(NamedTuple):
    """A thread's rows and columns of a loop nest, and the statements that compute the bounds."""

    rows: Range
    columns: Range
    statements: list[str]


def is_parallel(step: Step) -> bool:
    """Whether several threads compute a step together."""
    if isinstance(step, LoopNest):
        depth = step.product.params["depth"] if step.product is not None else 1
        return math.prod(step.space) * depth >= _WORTHWHILE and bool(_parallel_axes(step))
    if isinstance(step, PackStep):
        return step.operand.rows * step.operand.columns >= _WORTHWHILE
    return (
        isinstance(step, NodeStep)
        and step.node.op in ("bits", "bits_in_halves")
        and math.prod(step.node.shape) >= _WORTHWHILE // 8  # a random number costs more than a multiplication
    )


def partition(nest: LoopNest, threads: int, tile: tuple[int, int]) -> Partition:
    """The part of thread `t`: whole tiles of so many rows and columns."""
    rows, columns = (nest.space[-2] if len(nest.space) > 1 else 1), (nest.space[-1] if nest.space else 1)
    all_rows, all_columns = Range("0", str(rows)), Range("0", str(columns))
    if threads == 1 or not is_parallel(nest):
        return Partition(all_rows, all_columns, [])
    sizes = {"columns": (columns, tile[1]), "rows": (rows, tile[0])}
    axis = max(_parallel_axes(nest), key=lambda axis: _utilization(-(-sizes[axis][0] // sizes[axis][1]), threads))
    size, step = sizes[axis]
    tiles, part = -(-size // step), Range("first", "last")
    statements = [
        f"const int first = first_tile({tiles}, t) * {step}, last = min_(first_tile({tiles}, t + 1) * {step}, {size});",
        "if (first >= last) return;",
    ]
    return Partition(part, all_columns, statements) if axis == "rows" else Partition(all_rows, part, statements)


def _parallel_axes(nest: LoopNest) -> list[str]:
    """Those that no reduction is over. Columns come first: a thread then reads the same weights again and again."""
    reduced = [reduced_variables(root) for root in nest.roots if root.target.op == "reduce"]
    if any(over not in ({"r"}, {"c"}) for over in reduced):
        return []
    return [axis for axis, variable in (("columns", "c"), ("rows", "r")) if {variable} not in reduced]


def _utilization(tiles: int, threads: int) -> float:
    """The part of the threads' time in which they work."""
    return tiles / (-(-tiles // threads) * threads)
