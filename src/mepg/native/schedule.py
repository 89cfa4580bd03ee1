"""The steps of a block's schedule. Each becomes a C++ function, but for branches and loops, which hold steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mepg.native.graph import AxisIndex, Block, Index, Node, Shape

# Operations that are no loops over elements: a function of kernels.h or a loop of its own computes them.
CALLS = {"split_key", "fold_in_key", "bits", "bits_in_halves", "sort", "relayout", "order", "scatter"}


def panel_width(node: Node) -> int:
    """How many columns a panel has; a call's result and the function's inputs are row-major, so in one panel."""
    columns = node.dims[-1] if node.dims else 1
    if node.op in CALLS or node.params.get("row_major"):
        return columns
    return 32 if columns > 16 else 16


class Read(NamedTuple):
    """A node that a step reads from memory."""

    node: Node
    same_element: bool = False  # whether only the element that the loops are at


@dataclass(eq=False)
class Root:
    """What a loop nest produces: a value stored in the target from an offset on, or a reduction of one."""

    value: Node
    target: Node
    axis: int = 0
    offset: int = 0


@dataclass(eq=False)
class Step:
    """One step of a schedule."""

    block: Block
    reads: list[Read] = field(default_factory=list)
    position: int = 0  # in the schedule of the whole function


@dataclass(eq=False)
class LoopNest(Step):
    """Loops over a space: a product (or none), and what is computed from it and from memory."""

    space: Shape = ()
    product: Node | None = None
    operands: list[Operand] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class NodeStep(Step):
    """A node that is a step by itself: a call, a branch, a loop."""

    node: Node


@dataclass(eq=False, kw_only=True)
class PackStep(Step):
    """A product's operand, packed."""

    node: Node
    operand: Operand


@dataclass(eq=False)
class Operand:
    """One side of a product: a matrix in memory, its element (r, k or k, c), and how it is packed."""

    node: Node
    batch_index: Index  # of the matrix, along the node's leading axes
    row: AxisIndex
    column: AxisIndex
    bfloat16: bool
    left: bool
    rows: int
    columns: int
    packed: Node | None = None

    @property
    def transposed(self) -> bool:
        """Whether memory has k where the product has its own axis."""
        return (self.row.variable == "k") == self.left

    @property
    def packing(self) -> str:
        """The layout that the product needs; empty if it is the one in memory."""
        if self.left:
            return ("pairs" if self.transposed else "pairs_in_rows") if self.bfloat16 else ""
        layout = "pairs" if self.bfloat16 else ""
        return f"{layout or 'panels'}_transposed" if self.transposed else layout

    @property
    def packed_words(self) -> int:
        """The size of one packed matrix."""
        rows, columns = self.rows, self.columns
        width, height = (32 if columns > 16 else 16), (32 if rows > 16 else 16)
        across, down = -(-columns // width) * width, -(-rows // height) * height
        return {
            "pairs": across * ((rows + 1) // 2),
            "pairs_in_rows": -(-columns // 32) * 16 * rows,
            "pairs_transposed": down * ((columns + 1) // 2),
            "panels_transposed": down * columns,
        }[self.packing]

    @property
    def batch_variables(self) -> list[str]:
        """The loops that choose the matrix."""
        return [f"l{i}" for i in range(8) if any(f"l{i}" in index.variables for index in self.batch_index)]
