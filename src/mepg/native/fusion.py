"""From a graph to a schedule: which values are computed in the same loop nest.

A loop nest goes over a space of elements once. It may begin with a product, whose tiles are still in registers when its
consumers are computed from them. It ends in stores and reductions, its roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mepg.native.graph import AxisIndex, Block, Graph, Index, Node, broadcast_index, loop_index, loop_variables
from mepg.native.materialize import FREE, Materialization
from mepg.native.schedule import CALLS, LoopNest, NodeStep, Operand, PackStep, Read, Root, Step

_INDIRECT = (AxisIndex("memory"),)


class Fusion(Materialization):
    """The schedule of every block."""

    def __init__(self, graph: Graph, *, bfloat16: bool) -> None:
        super().__init__(graph, bfloat16=bfloat16)
        self.schedule: dict[Block, list[Step]] = {}
        self.producers: dict[Node, Step] = {}
        self._packed: dict[Block, dict[object, Node]] = {}
        self._schedule(graph.top)

    def _schedule(self, block: Block) -> None:
        self.schedule[block] = []
        self._packed[block] = {}
        for node in self.live:
            if node.block is not block or node.op in ("input", "result") or not self.is_materialized(node):
                continue
            if node.op in ("branch", "loop"):
                for inner in node.blocks:
                    self._schedule(inner)
                if node.op == "loop":
                    for init, carried in zip(node.arguments, node.blocks[0].carried, strict=True):
                        self._add_root(Root(init, carried), block)
            if node.op in CALLS or node.op in ("branch", "loop"):
                self._append(NodeStep(block, [Read(self.base(a)) for a in node.arguments], node=node), node)
            elif node.op == "product":
                self._add_product(node)
            elif node.op == "reduce":
                self._add_root(Root(node.arguments[0], node), block)
            elif node.op == "concatenate":
                offset, axis = 0, node.params["axis"]
                for piece in node.arguments:
                    self._add_root(Root(piece, node, axis, offset), block)
                    offset += piece.shape[axis]
            else:
                self._add_root(Root(node, node), block)

    def _append(self, step: Step, *nodes: Node) -> None:
        self.schedule[step.block].append(step)
        self.producers.update(dict.fromkeys(nodes, step))

    def _add_product(self, node: Node) -> None:
        nest = LoopNest(node.block, space=node.dims, product=node)
        for side in (0, 1):
            operand = self.operand(node, side)
            assert operand is not None
            if operand.packing:
                operand.packed = self._pack(operand, node)
                nest.reads.append(Read(operand.packed))
            else:
                nest.reads += self._operand_reads(operand)
            nest.operands.append(operand)
        self._append(nest, node)

    def _operand_reads(self, operand: Operand) -> list[Read]:
        indirect = [self.base(index.indirect[0]) for index in operand.batch_index if index.indirect]
        return [Read(operand.node), *map(Read, indirect)]

    def _pack(self, operand: Operand, product: Node) -> Node:
        """The packed operand, made before the first product that needs it."""
        sizes = dict(zip(loop_variables(product.dims), product.dims, strict=True))
        lengths = tuple(sizes[variable] for variable in operand.batch_variables)
        matrix = (operand.row, operand.rows, operand.columns, tuple(operand.batch_index))
        key = (operand.node, operand.packing, *matrix, lengths)
        block: Block | None = product.block
        while block is not None:
            if key in self._packed[block]:
                return self._packed[block][key]
            block = block.parent
        words = operand.packed_words
        with self.graph.insert(product.block):
            shape = (math.prod(lengths) * words,)
            node = self.graph.new("pack", (operand.node,), shape, "u32", lengths=lengths, words=words)
        self._append(PackStep(product.block, self._operand_reads(operand), node=node, operand=operand), node)
        self._packed[product.block][key] = node
        return node

    def _leaves(
        self, node: Node, index: Index, visit: Callable[[Node, tuple[AxisIndex, ...]], None], *, top: bool
    ) -> None:
        """Every element in memory that an element is computed from."""
        node, index = self.resolve(node, index)
        for axis in index:
            if axis.indirect:
                # An index is read from memory, so loops must not use one that they compute themselves.
                array, element = axis.indirect
                self._leaves(array, list(element), lambda leaf, _: visit(leaf, _INDIRECT), top=False)
        if node.op in FREE:
            return
        if not top and self.is_materialized(node):
            visit(node, node.squeeze(index))
            return
        for argument in node.arguments:
            self._leaves(argument, broadcast_index(argument, index), visit, top=False)

    def _add_root(self, root: Root, block: Block) -> None:
        """To the loop nest that produces the last of what it reads, to one that comes later, or to a new one."""
        steps = self.schedule[block]
        space, same_element = root.value.dims, tuple(AxisIndex(v) for v in loop_variables(root.value.dims))
        leaves: list[tuple[Node, tuple[AxisIndex, ...]]] = []
        top = root.value is root.target
        self._leaves(root.value, loop_index(root.value.shape), lambda *leaf: leaves.append(leaf), top=top)
        order = {step: i for i, step in enumerate(steps)}
        produced = {node: order[step] for node, _ in leaves if (step := self._producer(node)) in order}
        last = max(produced.values(), default=-1)

        def fits(i: int) -> bool:
            nest = steps[i]
            return (
                isinstance(nest, LoopNest)
                and nest.space == space
                and all(
                    produced.get(node, -1) < i or (self._in_registers(node, nest) and element == same_element)
                    for node, element in leaves
                )
            )

        found = last if last >= 0 and fits(last) else None
        if found is None:
            later = (i for i in range(len(steps) - 1, last, -1) if getattr(steps[i], "product", 0) is None and fits(i))
            found = next(later, None)
        if found is None:
            self._append(LoopNest(block, space=space))
            found = len(steps) - 1
        nest = steps[found]
        assert isinstance(nest, LoopNest)
        nest.roots.append(root)
        nest.reads += [Read(node, i == same_element) for node, i in leaves if not self._in_registers(node, nest)]
        previous = self.producers.get(root.target)
        if previous is None or order.get(previous, len(steps)) <= found:
            self.producers[root.target] = nest

    def _producer(self, node: Node) -> Step | None:
        return self.producers.get(node.arguments[0] if node.op == "result" else node)

    def _in_registers(self, node: Node, nest: LoopNest) -> bool:
        """Whether a loop nest computes a value itself, and so need not read it from memory."""
        return self.producers.get(node) is nest and node.op not in ("reduce", "concatenate")
