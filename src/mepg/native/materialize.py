"""Which values are materialized, that is stored in memory, and which are computed again where they are used.

Stored are outputs, what products and calls read, and what costs too much to compute twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mepg.native.graph import (
    LIBM,
    VIEWS,
    AxisIndex,
    Block,
    Graph,
    Index,
    Node,
    loop_index,
    loop_variables,
    through_view,
)
from mepg.native.schedule import CALLS, Operand, panel_width

_ALWAYS = CALLS | {"input", "product", "reduce", "concatenate", "result", "branch", "loop", "pack"}
_COSTLY = {"exp", "log", "log1p", "tanh", "erf_inv", "pow", "div", "sqrt", "rsqrt", "rem", *LIBM}
_CHEAP = 6  # operations: a value that costs no more is computed twice rather than stored
FREE = {"constant", "iota"}


class Materialization:
    """The live nodes of a graph, in order, and which of them are materialized."""

    def __init__(self, graph: Graph, *, bfloat16: bool) -> None:
        self.graph, self.bfloat16 = graph, bfloat16
        self._materialized: set[Node] = set()
        self.live = self._reachable()
        self._copy_outputs()
        self._copy_operands()
        self.live = self._reachable()
        self._materialize_needed()
        self.live = self._reachable()
        self._materialize_costly(self._users())

    def _reachable(self) -> list[Node]:
        """The nodes that an output depends on: dead code is left out."""
        found, pending = set(), list(self.graph.top.outputs)
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                pending += node.arguments
                for block in node.blocks:
                    pending += block.outputs
        return [node for node in self.graph.nodes if node in found]

    def blocks(self) -> Iterator[Block]:
        """Every block, the outer ones first."""
        yield self.graph.top
        for node in self.live:
            yield from node.blocks

    def is_materialized(self, node: Node) -> bool:
        """Whether its users read it from memory."""
        return node in self._materialized or node.op in _ALWAYS

    # Views

    def _is_view(self, node: Node) -> bool:
        return node.op in VIEWS and node not in self._materialized

    def base(self, node: Node) -> Node:
        """What a view is a view of."""
        while self._is_view(node):
            node = node.arguments[0]
        return node

    def resolve(self, node: Node, index: Index) -> tuple[Node, Index]:
        """The base of a view, and the element that the view shows."""
        while self._is_view(node):
            node, index = through_view(node, index)
        return node, index

    def _alias(self, node: Node) -> Node:
        """The base, as long as the view has the same elements in the same order."""
        while self._is_view(node) and node.dims == node.arguments[0].dims:
            base, index = through_view(node, loop_index(node.shape))
            if base.squeeze(index) != base.squeeze(loop_index(base.shape)):
                break
            node = base
        return node

    # Copies

    def _copy(self, node: Node, block: Block, before: Node | None = None) -> Node:
        """A copy at the end of a block, or before another node."""
        with self.graph.insert(block, before):
            return self.graph.new("copy", (node,), node.shape, node.dtype)

    def _copy_outputs(self) -> None:
        """Copy the outputs that a block does not compute itself, so that each has a buffer of its own."""
        for block in self.blocks():
            seen: set[Node] = set()
            branch = block.parent is not None and not block.loop
            for k, output in enumerate(block.outputs):
                node = self._alias(output)
                unchanged = node.op == "input" and k < len(block.carried) and node is block.carried[k]
                outer = branch and not node.block.within(block) and node.op != "constant" and node.op not in VIEWS
                if not (unchanged or outer):
                    foreign = node.block is not block or node.op in {"input", "constant", "iota"} | VIEWS
                    if foreign or node in seen or node.op in CALLS:
                        node = self._copy(output, block)
                seen.add(node)
                block.outputs[k] = node

    def _copy_operands(self) -> None:
        """Copy the operands that a product cannot read in their layout."""
        copies: dict[tuple[Node, tuple[int, ...]], Node] = {}
        for node in self.live:
            for side in (0, 1) if node.op == "product" else ():
                if self.operand(node, side) is not None:
                    continue
                order = self._axis_order(node, side)
                argument = node.arguments[side]
                copy = copies.get((argument, order))
                with self.graph.insert(node.block, before=node):
                    if copy is None or not node.block.within(copy.block):
                        copy = self._copy(self.graph.transpose(argument, order), node.block, before=node)
                        copies[argument, order] = copy
                    back = self.graph.transpose(copy, [order.index(a) for a in range(len(order))])
                    if self._uses_bfloat16(node):  # the copy is rounded already, and rounding it again changes nothing
                        back = self.graph.new("round", [back], back.shape, "f32")
                node.arguments[side] = back

    def _axis_order(self, product: Node, side: int) -> tuple[int, ...]:
        """An operand's axes: the leading ones, then the other two in the order of their base's."""
        names = product.params["names"][side]
        node, index = product.arguments[side], [AxisIndex(name) for name in names]
        while node.op in VIEWS or node.op == "round":
            node, index = (node.arguments[0], index) if node.op == "round" else through_view(node, index)
        base_order = [axis.variable for axis in index]
        last = [x for x in names if x[0] != "l"]
        last.sort(key=lambda x: (base_order.index(x) if x in base_order else 0, x))
        return tuple(names.index(x) for x in (*sorted(x for x in names if x[0] == "l"), *last))

    def _uses_bfloat16(self, product: Node) -> bool:
        """Whether bfloat16 instructions compute this product."""
        return self.bfloat16 and all(self._is_rounded(argument) for argument in product.arguments)

    def _is_rounded(self, node: Node) -> bool:
        while node.op in VIEWS:
            node = node.arguments[0]
        return node.op == "round"

    def operand(self, product: Node, side: int) -> Operand | None:
        """How a product reads one side; None if it cannot."""
        names, element = product.params["names"][side], loop_index(product.shape)
        leading = sorted({x for both in product.params["names"] for x in both if x[0] == "l"})
        axes = {**dict(zip([*leading, "i", "n"], element, strict=True)), "k": AxisIndex("k")}
        node, index, bfloat16 = product.arguments[side], [axes[x] for x in names], self._uses_bfloat16(product)
        while not self.is_materialized(node) and (node.op in VIEWS or (bfloat16 and node.op == "round")):
            node, index = (node.arguments[0], index) if node.op == "round" else through_view(node, index)
        stored = node.squeeze(index)
        own = "r" if side == 0 else "c"
        if len(stored) < 2 or {axis.variable for axis in stored[-2:]} != {own, "k"} or node.op in FREE:
            return None
        *batch_index, row, column = stored
        row_major = panel_width(node) not in (16, 32) or node.params.get("row_major") or node.op in CALLS
        direct = side == 0 and not bfloat16
        one_panel = node.dims[-1] <= panel_width(node)
        if (column.offset and not (direct and one_panel)) or (row_major and not direct):
            return None
        sizes = dict(zip(names, product.arguments[side].shape, strict=True))
        size = {"k": product.params["depth"], "r": sizes.get("i", 0), "c": sizes.get("n", 0)}
        return Operand(node, batch_index, row, column, bfloat16, side == 0, size[row.variable], size[column.variable])

    # What is materialized

    def _users(self) -> dict[Node, list[Node | Block]]:
        users: dict[Node, list[Node | Block]] = {}

        def use(node: Node, user: Node | Block) -> None:
            while node.op in VIEWS:
                for indices in node.arguments[1:]:
                    use(indices, user)
                node = node.arguments[0]
            users.setdefault(node, []).append(user)

        for node in self.live:
            for argument in node.arguments if node.op not in VIEWS else ():
                use(argument, node)
            for block in node.blocks:
                for output in block.outputs:
                    use(output, block)
        for output in self.graph.top.outputs:
            use(output, self.graph.top)
        return users

    def _materialize(self, node: Node) -> None:
        node = self.base(node)
        if node.op not in _ALWAYS | FREE:
            self._materialized.add(node)

    def _materialize_needed(self) -> None:
        """Outputs, indices, and what products, calls, branches and loops read."""
        for node in self.live:
            if node.op == "product":
                for side in (0, 1):
                    operand = self.operand(node, side)
                    assert operand is not None
                    self._materialize(operand.node)
            elif node.op in CALLS or node.op in ("branch", "loop"):
                for k, argument in enumerate(node.arguments):
                    if node.op != "loop" and (self.base(argument).op in FREE or not self._is_contiguous(argument)):
                        node.arguments[k] = self._copy(argument, node.block, before=node)
                    self._materialize(node.arguments[k])
            elif node.op == "gather":
                for indices in node.arguments[1:]:
                    if indices.op != "constant":
                        self._materialize(indices)
        for block in self.blocks():
            for output in block.outputs:
                self._materialize(output)

    def _is_contiguous(self, argument: Node) -> bool:
        """Whether a call can read its argument where it is stored: the whole of the last axes of its base."""
        base, index = self.resolve(argument, loop_index(argument.shape))
        element = base.squeeze(index)
        varying = [axis for axis in element if axis.variable in ("r", "c")]
        last = element[len(element) - len(varying) :]
        return [axis.variable for axis in varying] == loop_variables(argument.dims) and last == tuple(varying)

    def _materialize_costly(self, users: dict[Node, list[Node | Block]]) -> None:
        """What is used in another block, more often than it has elements, or twice at more than a low cost."""
        cost: dict[Node, int] = {}
        for node in self.live:
            if node.op in VIEWS or node.op in _ALWAYS or node.op in FREE:
                continue
            used_by = users.get(node, [])
            inputs = [self.base(argument) for argument in node.arguments]
            cost[node] = 12 if node.op in _COSTLY and node.dims else 1
            cost[node] += sum(cost.get(base, 0) for base in inputs if base not in self._materialized)
            outside = any((user if isinstance(user, Block) else user.block) is not node.block for user in used_by)
            repeated = any(isinstance(user, Node) and _elements(user) > math.prod(node.shape) for user in used_by)
            if outside or repeated or (len({id(user) for user in used_by}) > 1 and cost[node] > _CHEAP):
                self._materialized.add(node)


def _elements(user: Node) -> int:
    """How many elements are computed from what a node uses."""
    if user.op in ("product", "concatenate"):
        return 0
    return math.prod((user.arguments[0] if user.op == "reduce" else user).shape)
