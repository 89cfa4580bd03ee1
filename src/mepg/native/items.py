"""What becomes a C++ function of its own: loops, a call, another form of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, field

from mepg.native.graph import At, Block, Node, Shape

CALLS = {"split_key", "fold_in_key", "bits", "bits_in_halves", "sort", "relayout", "order", "scatter"}


def panel_width(node: Node) -> int:
    """Matrices lie in panels of so many columns; what comes from outside, and words, in plain rows."""
    columns = node.dims[-1] if node.dims else 1
    if node.op in CALLS or node.settings.get("rows"):
        return columns
    return 32 if columns > 16 else 16


@dataclass(eq=False)
class Root:
    """What loops leave behind: a value, stored in a node's place from an offset on, or a reduction of one."""

    value: Node
    target: Node
    axis: int = 0
    offset: int = 0


@dataclass(eq=False)
class Item:
    """What becomes a function. `reads` says of each node whether an element is read only where the loops are."""

    block: Block
    reads: list[tuple[Node, bool]] = field(default_factory=list)
    at: int = 0  # its number in the whole sequence


@dataclass(eq=False)
class Loops(Item):
    """Loops over a space: a product (or none), and what is computed from it and from memory."""

    space: Shape = ()
    product: Node | None = None
    operands: list[Operand] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)


@dataclass(eq=False)
class Single(Item):
    """A node that is a function of its own: a call, a branch, a loop."""

    node: Node = None  # type: ignore[assignment]


@dataclass(eq=False)
class Pack(Item):
    """A matrix in another form, for a product."""

    node: Node = None  # type: ignore[assignment]
    operand: Operand = None  # type: ignore[assignment]


@dataclass(eq=False)
class Operand:
    """A side of a product: where it lies, which element (r, k or k, c), and in which form it is read."""

    leaf: Node
    leading: list[At]
    row: At
    column: At
    rounded: bool
    left: bool
    rows: int
    columns: int
    pack: Node | None = None

    @property
    def transposed(self) -> bool:
        """Whether memory has k where the product has its own axis."""
        return (self.row.variable == "k") == self.left

    @property
    def form(self) -> str:
        """The form that a product wants; empty if it is the one in memory."""
        if self.rounded:
            return ("pairs" if self.transposed else "pairs_in_rows") if self.left else self._right("pairs")
        return "" if self.left else self._right("")

    def _right(self, form: str) -> str:
        return f"{form or 'panels'}_transposed" if self.transposed else form

    @property
    def running(self) -> list[str]:
        """The loops that it follows."""
        return [f"l{i}" for i in range(8) if any(f"l{i}" in at.variables for at in self.leading)]


def words_of(operand: Operand) -> int:
    """The size of a packed form of one matrix, in words."""
    rows, columns = operand.rows, operand.columns
    width, height = (32 if columns > 16 else 16), (32 if rows > 16 else 16)
    across, down = -(-columns // width) * width, -(-rows // height) * height
    return {
        "pairs": across * ((rows + 1) // 2),
        "pairs_in_rows": -(-columns // 32) * 16 * rows,
        "pairs_transposed": down * ((columns + 1) // 2),
        "panels_transposed": down * columns,
    }[operand.form]
