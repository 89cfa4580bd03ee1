"""From a graph to loops: which values are computed together.

`Loops` go over a space of elements once. They may begin with a product, whose tiles are still in registers when what
follows is computed from them, and they end in stores and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mepg.native.graph import At, Block, Graph, Index, Node, everywhere, of_argument, place, variables_of
from mepg.native.items import CALLS, Item, Loops, Operand, Pack, Root, Single, words_of
from mepg.native.keep import FREE, Values

_ELSEWHERE = (At("memory"),)


class Fusion(Values):
    """The items of every block, in order."""

    def __init__(self, graph: Graph, *, bfloat16: bool) -> None:
        super().__init__(graph, bfloat16=bfloat16)
        self.items: dict[Block, list[Item]] = {}
        self.made_by: dict[Node, Item] = {}
        self._packs: dict[Block, dict[object, Node]] = {}
        self._schedule(graph.top)

    def leaves(self, node: Node, index: Index, found: Callable[[Node, tuple[At, ...]], None], *, top: bool) -> None:
        """Everything in memory that an element is computed from."""
        node, index = self.resolve(node, index)
        for at in index:
            if at.through:
                # An index is read from memory, so loops must not use one that they compute themselves.
                self.leaves(at.through[0], list(at.through[1]), lambda node, _: found(node, _ELSEWHERE), top=False)
        if node.op in FREE:
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
        with self.graph.insert(product.block):
            shape = (math.prod(lengths) * words,)
            node = self.graph.new("pack", (operand.leaf,), shape, "u32", lengths=lengths, words=words)
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
            return (
                isinstance(item, Loops)
                and item.space == space
                and all(where.get(node, -1) < i or (self._same_loops(node, item) and at == here) for node, at in seen)
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
