"""Which values get a place in memory: what products and calls read, what is too costly to compute twice, outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mepg.native.graph import FROM_LIBRARY, VIEWS, At, Block, Graph, Index, Node, everywhere, look, place, variables_of
from mepg.native.items import CALLS, Operand, panel_width

_IN_MEMORY = CALLS | {"input", "product", "reduce", "concatenate", "result", "branch", "loop", "pack"}
_COSTLY = {"exp", "log", "log1p", "tanh", "erf_inv", "pow", "div", "sqrt", "rsqrt", "rem", *FROM_LIBRARY}
_CHEAP = 6  # a value that costs no more is rather computed twice than stored
FREE = {"constant", "iota"}


class Values:
    """A graph's values: which of them lie in memory, and which are computed where they are used."""

    def __init__(self, graph: Graph, *, bfloat16: bool) -> None:
        self.graph, self.bfloat16 = graph, bfloat16
        self._kept: set[Node] = set()
        self.alive = self._reachable()
        self._copy_outputs()
        self._place_operands()
        self.alive = self._reachable()
        self._keep()

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
        return [node for node in self.graph.nodes if node in found]

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

    def _copy(self, node: Node, block: Block, before: Node | None = None) -> Node:
        """A node with the same numbers and a place of its own, at the block's end or before another node."""
        with self.graph.insert(block, before):
            return self.graph.new("copy", (node,), node.shape, node.type)

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
                with self.graph.insert(node.block, before=node):
                    if copy is None or not node.block.within(copy.block):
                        transposed = self.graph.transpose(argument, order)
                        copy = self.graph.new("copy", (transposed,), transposed.shape, transposed.type)
                        copies[argument, order] = copy
                    back = self.graph.transpose(copy, [order.index(a) for a in range(len(order))])
                    if self._rounds(node):  # rounding twice is rounding once: what is copied is rounded already
                        back = self.graph.new("round", [back], back.shape, "f32")
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
        if node.op not in _IN_MEMORY | FREE:
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
                    if node.op != "loop" and (self.base(argument).op in FREE or not self._words(argument)):
                        node.arguments[k] = self._copy(argument, node.block, before=node)
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
        return [at.variable for at in varying] == variables_of(key.dims) and lies[len(lies) - len(varying) :] == tuple(
            varying
        )

    def _weigh(self, users: dict[Node, list[Node | Block]]) -> None:
        cost: dict[Node, int] = {}
        for node in self.alive:
            if node.op in VIEWS or node.op in _IN_MEMORY or node.op in FREE:
                continue
            by = users.get(node, [])
            inputs = [self.base(argument) for argument in node.arguments]
            cost[node] = 12 if node.op in _COSTLY and node.dims else 1
            cost[node] += sum(cost.get(below, 0) for below in inputs if below not in self._kept)
            apart = any((user if isinstance(user, Block) else user.block) is not node.block for user in by)
            larger = any(isinstance(user, Node) and _work(user) > math.prod(node.shape) for user in by)
            if apart or larger or (len({id(user) for user in by}) > 1 and cost[node] > _CHEAP):
                self._kept.add(node)


def _work(user: Node) -> int:
    """How many elements are computed from what this uses."""
    return (
        0
        if user.op in ("product", "concatenate")
        else math.prod((user.arguments[0] if user.op == "reduce" else user).shape)
    )
