"""From a graph to loops: which values get a place in memory, and which are computed together.

An item is what becomes one C++ function. `Loops` go over a space of elements once. They may begin with a product, whose
tiles are still in registers when what follows is computed from them, and they end in stores and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mepg.native.graph import (
    VIEWS, At, Block, Graph, Index, Node, Shape, everywhere, look, of_argument, place, variables_of,
)  # fmt: skip

CALLS = {"split_key", "fold_in_key", "bits", "bits_in_halves", "sort", "relayout"}
_IN_MEMORY = CALLS | {"input", "product", "reduce", "concatenate", "result", "branch", "loop", "pack"}
_COSTLY = {"exp", "log", "log1p", "tanh", "erf_inv", "pow", "div", "sqrt", "rsqrt", "rem"}
_CHEAP = 6  # a value that costs no more is rather computed twice than stored
_FREE = {"constant", "iota"}


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


class Fusion:
    """The items of every block, in order."""

    def __init__(self, graph: Graph, *, bfloat16: bool) -> None:
        self.graph, self.bfloat16 = graph, bfloat16
        self.items: dict[Block, list[Item]] = {}
        self.made_by: dict[Node, Item] = {}
        self._kept: set[Node] = set()
        self._packs: dict[Block, dict[object, Node]] = {}
        self.alive = self._reachable()
        self._copy_outputs()
        self._place_operands()
        self.alive = self._reachable()
        self._keep()
        self._schedule(graph.top)

    # The graph

    def _reachable(self) -> list[Node]:
        found, todo = set(), list(self.graph.top.outputs)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += node.arguments
                for block in node.blocks:
                    todo += block.outputs
        return sorted(found, key=lambda node: node.number)

    def blocks(self) -> Iterator[Block]:
        """Every block, the outer ones first."""
        yield self.graph.top
        for node in self.alive:
            yield from node.blocks

    def in_memory(self, node: Node) -> bool:
        """Whether others read it from memory."""
        return node in self._kept or node.op in _IN_MEMORY

    def base(self, node: Node) -> Node:
        """What a view shows."""
        while node.op in VIEWS and node not in self._kept:
            node = node.arguments[0]
        return node

    def resolve(self, node: Node, index: Index) -> tuple[Node, Index]:
        """The element that a view shows."""
        while node.op in VIEWS and node not in self._kept:
            node, index = look(node, index)
        return node, index

    def alias(self, node: Node) -> Node:
        """Below views that show the same numbers in the same order."""
        while node.op in VIEWS and node not in self._kept and node.dims == node.arguments[0].dims:
            below, index = look(node, everywhere(node.shape))
            if place(below, index) != place(below, everywhere(below.shape)):
                break
            node = below
        return node

    def _copy(self, node: Node, block: Block, before: Node | None = None, which: int = 0) -> Node:
        """A node with the same numbers and a place of its own, at the block's end or before another node."""
        around, self.graph.block = self.graph.block, block
        copy = self.graph.new("copy", (node,), node.shape, node.type)
        self.graph.block = around
        if before is not None:
            copy.number = before.number - 0.5 + which / 16
        return copy

    def _copy_outputs(self) -> None:
        """Every output of a block is computed there, so that its place can be chosen: copy the others."""
        for block in self.blocks():
            seen: set[Node] = set()
            branch = block.parent is not None and not block.loop
            for k, output in enumerate(block.outputs):
                node = self.alias(output)
                own = node.op == "input" and k < len(block.carried) and node is block.carried[k]
                outer = branch and not node.block.within(block) and node.op != "constant" and node.op not in VIEWS
                if not (own or outer):
                    elsewhere = node.block is not block or node.op in {"input", "constant", "iota"} | VIEWS
                    if elsewhere or node in seen or node.op in CALLS:
                        node = self._copy(output, block)
                seen.add(node)
                block.outputs[k] = node

    def _place_operands(self) -> None:
        """What a product cannot read as it lies is copied."""
        copies: dict[tuple[Node, tuple[int, ...]], Node] = {}
        for node in self.alive:
            for side in (0, 1) if node.op == "product" else ():
                if self.operand(node, side) is not None:
                    continue
                order = self._order(node, side)
                argument = node.arguments[side]
                copy = copies.get((argument, order))
                if copy is None or not node.block.within(copy.block):
                    copy = self._copy(self.graph.transpose(argument, order), node.block, before=node, which=side)
                    copies[argument, order] = copy
                back = self.graph.transpose(copy, [order.index(a) for a in range(len(order))])
                if self._rounds(node):  # rounding twice is rounding once: what is copied is rounded already
                    back = Node("round", [back], back.shape, "f32", {}, node.block, node.number - 0.25 + side / 16)
                node.arguments[side] = back

    def _order(self, product: Node, side: int) -> tuple[int, ...]:
        """An operand's axes: leading ones, then the two others in the order in which they lie."""
        names = product.settings["names"][side]
        node, index = product.arguments[side], [At(name) for name in names]
        while node.op in VIEWS or node.op == "round":
            node, index = (node.arguments[0], index) if node.op == "round" else look(node, index)
        lies = [at.variable for at in index]
        last = sorted((x for x in names if x[0] != "l"), key=lambda x: (lies.index(x) if x in lies else 0, x))
        return tuple(names.index(x) for x in (*sorted(x for x in names if x[0] == "l"), *last))

    def _rounds(self, product: Node) -> bool:
        """Whether bfloat16 instructions compute this product."""
        return self.bfloat16 and all(self._rounded(argument) for argument in product.arguments)

    def _rounded(self, node: Node) -> bool:
        while node.op in VIEWS:
            node = node.arguments[0]
        return node.op == "round"

    def operand(self, product: Node, side: int) -> Operand | None:
        """How a product reads one side; None if it cannot."""
        names, where = product.settings["names"][side], everywhere(product.shape)
        leading = sorted({x for both in product.settings["names"] for x in both if x[0] == "l"})
        known = {**dict(zip([*leading, "i", "n"], where, strict=True)), "k": At("k")}
        node, index, rounds = product.arguments[side], [known[x] for x in names], self._rounds(product)
        while not self.in_memory(node) and (node.op in VIEWS or (rounds and node.op == "round")):
            node, index = (node.arguments[0], index) if node.op == "round" else look(node, index)
        lies = place(node, index)
        own = "r" if side == 0 else "c"
        if len(lies) < 2 or {lies[-1].variable, lies[-2].variable} != {own, "k"} or node.op in ("constant", "iota"):
            return None
        sizes = dict(zip(names, product.arguments[side].shape, strict=True))
        size = {"k": product.settings["depth"], "r": sizes.get("i", 0), "c": sizes.get("n", 0)}
        found = Operand(
            node, list(lies[:-2]), lies[-2], lies[-1], rounds, side == 0,
            size[lies[-2].variable], size[lies[-1].variable],
        )  # fmt: skip
        single = node.dims[-1] <= panel_width(node)
        plain = panel_width(node) not in (16, 32) or node.settings.get("rows") or node.op in CALLS
        direct = side == 0 and not rounds
        if (lies[-1].offset and not (direct and single)) or (plain and not direct):
            return None
        return found

    # What is kept

    def _users(self) -> dict[Node, list[Node | Block]]:
        users: dict[Node, list[Node | Block]] = {}

        def use(node: Node, by: Node | Block) -> None:
            while node.op in VIEWS:
                for number in node.arguments[1:]:
                    use(number, by)
                node = node.arguments[0]
            users.setdefault(node, []).append(by)

        for node in self.alive:
            for argument in node.arguments if node.op not in VIEWS else ():
                use(argument, node)
            for block in node.blocks:
                for output in block.outputs:
                    use(output, block)
        for output in self.graph.top.outputs:
            use(output, self.graph.top)
        return users

    def _need(self, node: Node) -> None:
        node = self.base(node)
        if node.op not in _IN_MEMORY | _FREE:
            self._kept.add(node)

    def _keep(self) -> None:
        """Decide what gets a place in memory."""
        for node in self.alive:
            if node.op == "product":
                for side in (0, 1):
                    operand = self.operand(node, side)
                    assert operand is not None
                    self._need(operand.leaf)
            elif node.op in CALLS or node.op in ("branch", "loop"):
                for k, argument in enumerate(node.arguments):
                    if node.op != "loop" and (self.base(argument).op in _FREE or not self._words(argument)):
                        node.arguments[k] = self._copy(argument, node.block, before=node, which=k)
                    self._need(node.arguments[k])
            elif node.op == "take":
                for number in node.arguments[1:]:
                    if number.op != "constant":
                        self._need(number)
        for block in self.blocks():
            for output in block.outputs:
                self._need(output)
        self.alive = self._reachable()
        self._weigh(self._users())

    def _words(self, key: Node) -> bool:
        """Whether a call can read its argument where it lies: the last axes of something, all of them."""
        below, index = self.resolve(key, everywhere(key.shape))
        lies = place(below, index)
        varying = [at for at in lies if at.variable in ("r", "c")]
        return [at.variable for at in varying] == variables_of(key.dims) and lies[len(lies) - len(varying) :] == tuple(varying)

    def _weigh(self, users: dict[Node, list[Node | Block]]) -> None:
        cost: dict[Node, int] = {}
        for node in self.alive:
            if node.op in VIEWS or node.op in _IN_MEMORY or node.op in _FREE:
                continue
            by = users.get(node, [])
            inputs = [self.base(argument) for argument in node.arguments]
            cost[node] = 12 if node.op in _COSTLY and node.dims else 1
            cost[node] += sum(cost.get(below, 0) for below in inputs if below not in self._kept)
            apart = any((user if isinstance(user, Block) else user.block) is not node.block for user in by)
            larger = any(isinstance(user, Node) and _work(user) > math.prod(node.shape) for user in by)
            if apart or larger or (len({id(user) for user in by}) > 1 and cost[node] > _CHEAP):
                self._kept.add(node)

    # Items

    def leaves(self, node: Node, index: Index, found: Callable[[Node, tuple[At, ...]], None], *, top: bool) -> None:
        """Everything in memory that an element is computed from."""
        node, index = self.resolve(node, index)
        for at in index:
            if at.through:
                self.leaves(at.through[0], list(at.through[1]), found, top=False)
        if node.op in _FREE:
            return
        if not top and self.in_memory(node):
            found(node, place(node, index))
            return
        for argument in node.arguments:
            self.leaves(argument, of_argument(argument, index), found, top=False)

    def _schedule(self, block: Block) -> None:
        self.items[block] = []
        self._packs[block] = {}
        for node in self.alive:
            if node.block is not block or node.op in ("input", "result") or not self.in_memory(node):
                continue
            if node.op in ("branch", "loop"):
                for inner in node.blocks:
                    self._schedule(inner)
                if node.op == "loop":
                    for start, carried in zip(node.arguments, node.blocks[0].carried, strict=True):
                        self._add_root(Root(start, carried), block)
            if node.op in CALLS or node.op in ("branch", "loop"):
                self._append(Single(block, [(self.base(a), False) for a in node.arguments], node=node), node)
            elif node.op == "product":
                self._add_product(node)
            elif node.op == "reduce":
                self._add_root(Root(node.arguments[0], node), block)
            elif node.op == "concatenate":
                offset, axis = 0, node.settings["axis"]
                for piece in node.arguments:
                    self._add_root(Root(piece, node, axis, offset), block)
                    offset += piece.shape[axis]
            else:
                self._add_root(Root(node, node), block)

    def _append(self, item: Item, *nodes: Node) -> None:
        self.items[item.block].append(item)
        self.made_by.update(dict.fromkeys(nodes, item))

    def _add_product(self, node: Node) -> None:
        item = Loops(node.block, space=node.dims, product=node)
        for side in (0, 1):
            operand = self.operand(node, side)
            assert operand is not None
            if operand.form:
                operand.pack = self._pack(operand, node)
                item.reads.append((operand.pack, False))
            else:
                item.reads.append((operand.leaf, False))
                item.reads += [(self.base(at.through[0]), False) for at in operand.leading if at.through]
            item.operands.append(operand)
        self._append(item, node)

    def _pack(self, operand: Operand, product: Node) -> Node:
        """Its other form, made where it is first wanted."""
        block: Block | None = product.block
        sizes = dict(zip(variables_of(product.dims), product.dims, strict=True))
        lengths = tuple(sizes[variable] for variable in operand.running)
        key = (operand.leaf, operand.form, operand.row, operand.rows, operand.columns, tuple(operand.leading), lengths)
        while block is not None:
            if key in self._packs[block]:
                return self._packs[block][key]
            block = block.parent
        words = words_of(operand)
        around, self.graph.block = self.graph.block, product.block
        node = self.graph.new("pack", (operand.leaf,), (math.prod(lengths) * words,), "u32", lengths=lengths, words=words)
        self.graph.block = around
        reads = [(operand.leaf, False), *((self.base(at.through[0]), False) for at in operand.leading if at.through)]
        self._append(Pack(product.block, reads, node=node, operand=operand), node)
        self._packs[product.block][key] = node
        return node

    def _add_root(self, root: Root, block: Block) -> None:
        """To the loops that make the last of what it reads, to some that come later, or to new ones."""
        items = self.items[block]
        space, here = root.value.dims, tuple(At(v) for v in variables_of(root.value.dims))
        seen: list[tuple[Node, tuple[At, ...]]] = []
        top = root.value is root.target
        self.leaves(root.value, everywhere(root.value.shape), lambda *leaf: seen.append(leaf), top=top)
        order = {item: i for i, item in enumerate(items)}
        where = {node: order[item] for node, _ in seen if (item := self._maker(node)) in order}
        last = max(where.values(), default=-1)

        def fits(i: int) -> bool:
            item = items[i]
            return isinstance(item, Loops) and item.space == space and all(
                where.get(node, -1) < i or (self._same_loops(node, item) and at == here) for node, at in seen
            )

        found = last if last >= 0 and fits(last) else None
        if found is None:
            later = (i for i in range(len(items) - 1, last, -1) if getattr(items[i], "product", 0) is None and fits(i))
            found = next(later, None)
        if found is None:
            self._append(Loops(block, space=space))
            found = len(items) - 1
        item = items[found]
        assert isinstance(item, Loops)
        item.roots.append(root)
        item.reads += [(node, at == here) for node, at in seen if not self._same_loops(node, item)]
        previous = self.made_by.get(root.target)
        if previous is None or order.get(previous, len(items)) <= found:
            self.made_by[root.target] = item

    def _maker(self, node: Node) -> Item | None:
        return self.made_by.get(node.arguments[0] if node.op == "result" else node)

    def _same_loops(self, node: Node, item: Loops) -> bool:
        """Whether a value is at hand in these loops, not in memory."""
        return self.made_by.get(node) is item and node.op not in ("reduce", "concatenate")


def _work(user: Node) -> int:
    """How many elements are computed from what this uses."""
    return 0 if user.op in ("product", "concatenate") else math.prod((user.arguments[0] if user.op == "reduce" else user).shape)


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
