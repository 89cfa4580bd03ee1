"""Which part of a function each thread computes.

Rows or columns of what is computed are shared out, never the terms of a sum. So every number is computed by one thread
in the order in which a single one would compute it, and the bits do not depend on how many there are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mepg.native.items import Item, Loops, Pack, Single
from mepg.native.place import reduced_variables

_WORTH_SHARING = 2**14  # multiplications, or elements: what a thread does in the time that two take to meet


class Range(NamedTuple):
    """From where to where a thread's loop goes, as C++."""

    first: str
    last: str


class Shares(NamedTuple):
    """A thread's rows and columns of an item, and the statements that compute them."""

    rows: Range
    columns: Range
    statements: list[str]


def is_shared(item: Item) -> bool:
    """Whether several threads compute an item together."""
    if isinstance(item, Loops):
        depth = item.product.settings["depth"] if item.product is not None else 1
        return math.prod(item.space) * depth >= _WORTH_SHARING and bool(_axes(item))
    if isinstance(item, Pack):
        return item.operand.rows * item.operand.columns >= _WORTH_SHARING
    return isinstance(item, Single) and item.node.op in ("bits", "bits_in_halves") and _is_large(item)


def shares(item: Loops, threads: int, tile: tuple[int, int]) -> Shares:
    """The part of the thread called `t`: whole tiles of so many rows and columns."""
    rows, columns = (item.space[-2] if len(item.space) > 1 else 1), (item.space[-1] if item.space else 1)
    all_rows, all_columns = Range("0", str(rows)), Range("0", str(columns))
    if threads == 1 or not is_shared(item):
        return Shares(all_rows, all_columns, [])
    sizes = {"columns": (columns, tile[1]), "rows": (rows, tile[0])}
    axis = max(_axes(item), key=lambda axis: _balance(-(-sizes[axis][0] // sizes[axis][1]), threads))
    size, step = sizes[axis]
    mine = Range("mine", "next")
    tiles = -(-size // step)
    statements = [
        f"const int mine = share({tiles}, t) * {step}, next = least(share({tiles}, t + 1) * {step}, {size});",
        "if (mine >= next) return;",
    ]
    return Shares(mine, all_columns, statements) if axis == "rows" else Shares(all_rows, mine, statements)


def _axes(item: Loops) -> list[str]:
    """Those along which no sum runs. Columns come first: a thread then meets the same weights again and again."""
    sums = [reduced_variables(root) for root in item.roots if root.target.op == "reduce"]
    if any(over not in ({"r"}, {"c"}) for over in sums):
        return []
    return [axis for axis, variable in (("columns", "c"), ("rows", "r")) if {variable} not in sums]


def _balance(tiles: int, threads: int) -> float:
    """How much of the threads' time is used."""
    return tiles / (-(-tiles // threads) * threads)


def _is_large(item: Single) -> bool:
    return math.prod(item.node.shape) >= _WORTH_SHARING // 8  # a random number costs more than a multiplication
