"""Buffer assignment: the state in place, everything else in one piece of memory that is used again and again.

A new value of the state may be written over the old one only if nothing reads the old one later. That is first assumed
for every value, then checked against all reads. Where it does not hold, the new value gets a buffer of its own and is
copied at the end of the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mepg.native.fusion import Fusion
from mepg.native.graph import AxisIndex, Block, Index, Node, Shape, loop_index, squeezed
from mepg.native.schedule import LoopNest, NodeStep, Read, Root, Step, panel_width

Write = tuple[int, Block]  # when and in which block
_ALIGNMENT = 16  # words: a cache line
_MARGIN = 32  # words after each buffer: a vector that begins in the buffer may end there


@dataclass(eq=False)
class Buffer:
    """Words in memory: matrices one after the other, each in panels of `width` columns."""

    dims: Shape
    width: int
    memory: str = "T"  # T: temporary, S: the state
    offset: int = -1

    @property
    def columns(self) -> int:
        return self.dims[-1] if self.dims else 1

    @property
    def rows(self) -> int:
        return self.dims[-2] if len(self.dims) > 1 else 1

    @property
    def matrices(self) -> int:
        return math.prod(self.dims[:-2])

    @property
    def panels(self) -> int:
        return -(-self.columns // self.width)

    @property
    def matrix_words(self) -> int:
        return self.rows * self.panels * self.width

    @property
    def words(self) -> int:
        return -(-(self.matrices * self.matrix_words + _MARGIN) // _ALIGNMENT) * _ALIGNMENT

    def strides(self) -> list[int]:
        """Words from one element to the next along each leading axis."""
        leading = self.dims[:-2]
        return [self.matrix_words * math.prod(leading[i + 1 :]) for i in range(len(leading))]


class BufferAssignment:
    """The buffer of every materialized node, and what is left to copy at the end of each block."""

    def __init__(self, fusion: Fusion, state: Sequence[Node], inputs: Sequence[Node]) -> None:
        self.fusion, self.state, self.inputs = fusion, state, inputs
        self.buffers: dict[Node, Buffer] = {}
        self.batch_index: dict[Node, Index] = {}  # which part of its buffer a node has
        self.final_copies: dict[Block, list[LoopNest]] = {}
        self.scratch: dict[Root, Buffer] = {}
        self.words = 0
        self._sequence: list[Step] = []
        self._block_ends: dict[Block, int] = {}
        self._step_ends: dict[Step, int] = {}  # of a branch or a loop: after its last block
        self._time = 0
        self._number(fusion.graph.top)
        self._state_buffers = dict(zip(state, state_buffers([node.shape for node in state]), strict=True))
        not_in_place: set[Node] = set()
        while clashes := self._assign(not_in_place):
            not_in_place |= clashes
        self._allocate()
        self.read = {node for step in self._steps() for node, _ in step.reads}
        self.read |= {node for block in fusion.schedule for node in block.outputs}

    def _number(self, block: Block) -> None:
        """Give every step its position."""
        self._tick()
        for step in self.fusion.schedule[block]:
            step.position = self._tick()
            self._sequence.append(step)
            for inner in step.node.blocks if isinstance(step, NodeStep) else ():
                self._number(inner)
            self._step_ends[step] = self._time
        self._block_ends[block] = self._tick()

    def _tick(self) -> int:
        self._time += 1
        return self._time

    def _steps(self) -> Iterator[Step]:
        yield from self._sequence
        for nests in self.final_copies.values():
            yield from nests

    # A buffer for each node

    def _assign(self, not_in_place: set[Node]) -> set[Node]:
        """Give every node a buffer. Returns those inputs that would be overwritten before their last read."""
        self.buffers, self.batch_index, self.final_copies = {**self._state_buffers}, {}, {}
        loops = [block for block in self.fusion.schedule if block.loop]
        for node in (*self.inputs, *(node for block in loops for node in block.carried)):
            self.buffers[node] = _new_buffer(node)
        writes = {}
        for block in (self.fusion.graph.top, *loops):
            for node, output in zip(block.carried, block.outputs, strict=False):
                if output is not node:
                    if node in not_in_place:
                        self._copy_at_end(output, self.buffers[node], [], block)
                    else:
                        writes[node] = self._assign_output(output, self.buffers[node], [], block)
        self._assign_results()
        for node in self.fusion.producers:
            if node not in self.buffers and node.op not in ("branch", "loop", "sort"):
                self.buffers[node] = _new_buffer(node)
        return {node for node, when in writes.items() if self._is_read_after(node, when)}

    def _assign_output(self, output: Node, buffer: Buffer, batch_index: Index, block: Block) -> list[Write]:
        """Have a block's output written into this buffer, at once or at the block's end. Returns when and where."""
        if self.buffers.get(output) is buffer and output.op == "input" and not batch_index:
            return []
        direct = output.block is block and output.op != "input" and output not in self.buffers
        owner = output.arguments[0] if output.op == "result" else None
        if not direct or (owner is not None and _is_carried(output)):
            return [self._copy_at_end(output, buffer, batch_index, block)]
        self.buffers[output], self.batch_index[output] = buffer, batch_index
        if owner is not None and owner.op == "branch":
            position = output.params["position"]
            inner = [self._assign_output(b.outputs[position], buffer, batch_index, b) for b in owner.blocks]
            return [write for writes in inner for write in writes]
        if owner is not None and owner.op == "loop":
            self._assign_stacked(output, buffer, batch_index)
        return [(self.fusion.producers[owner or output].position, block)]

    def _assign_stacked(self, result: Node, buffer: Buffer, batch_index: Index) -> None:
        """Each iteration of a loop writes its part of a stacked result."""
        body = result.arguments[0].blocks[0]
        output = body.outputs[result.params["position"]]
        self._assign_output(output, buffer, [*batch_index, AxisIndex(body.loop)], body)

    def _copy_at_end(self, output: Node, buffer: Buffer, batch_index: Index, block: Block) -> Write:
        target = Node("destination", [], output.shape, output.dtype, {}, block)
        self.buffers[target], self.batch_index[target] = buffer, batch_index
        end = self._block_ends[block]
        nest = LoopNest(block, [Read(output)], end, space=output.dims, roots=[Root(output, target)])
        self.final_copies.setdefault(block, []).append(nest)
        return end, block

    def _assign_results(self) -> None:
        """The results of branches and loops that are no outputs of a block themselves."""
        for node in self.fusion.live:
            if node.op != "result" or node in self.buffers:
                continue
            owner, position = node.arguments[0], node.params["position"]
            if _is_carried(node):
                self.buffers[node] = self.buffers[owner.blocks[0].carried[position]]
                continue
            self.buffers[node] = buffer = _new_buffer(node)
            if owner.op == "loop":
                self._assign_stacked(node, buffer, [])
            for block in owner.blocks if owner.op == "branch" else ():
                self._assign_output(block.outputs[position], buffer, [], block)

    def _is_read_after(self, node: Node, writes: list[Write]) -> bool:
        for step in self._steps():
            for read, same_element in step.reads:
                if read is node:
                    for time, block in writes:
                        after = step.position > time or (step.position == time and not same_element)
                        if after and not _are_exclusive(step.block, block):
                            return True
        return False

    # Memory

    def _allocate(self) -> None:
        """Give each temporary buffer the first words that no buffer of an overlapping live range has."""
        allocated: list[tuple[int, int, Buffer]] = []
        for buffer, (first, last) in sorted(self._live_ranges().items(), key=lambda x: (x[1][0], -x[0].words)):
            overlapping = [other for start, end, other in allocated if start <= last and first <= end]
            offset = 0
            for other in sorted(overlapping, key=lambda other: other.offset):
                if offset + buffer.words <= other.offset:
                    break
                offset = max(offset, other.offset + other.words)
            buffer.offset = offset
            allocated.append((first, last, buffer))
            self.words = max(self.words, offset + buffer.words)

    def _live_ranges(self) -> dict[Buffer, tuple[int, int]]:
        """The first and the last time at which each temporary buffer is needed."""
        ranges: dict[Buffer, tuple[int, int]] = {}

        def extend(node: Node, *times: int) -> None:
            buffer = self.buffers.get(node)
            if buffer is not None and buffer.memory == "T":
                before = ranges.get(buffer, (times[0], times[0]))
                ranges[buffer] = min(*before, *times), max(*before, *times)

        for node in self.inputs:
            extend(node, 0)
        for node in self.fusion.graph.top.outputs:
            extend(node, self._block_ends[self.fusion.graph.top])
        for node, step in self.fusion.producers.items():
            extend(node, step.position)
        for node in self.fusion.live:
            if node.op == "result":
                step = self.fusion.producers[node.arguments[0]]
                extend(node, step.position, self._step_ends[step])
        for step in self._steps():
            for node, _ in step.reads:
                extend(node, step.position, self._last_read(node, step))
            for root in step.roots if isinstance(step, LoopNest) else ():
                extend(root.target, step.position)
                if root.target.op == "reduce":
                    self.scratch[root] = buffer = Buffer((_scratch_words(root),), 32)
                    ranges[buffer] = step.position, step.position
        for block in self.fusion.schedule:
            for node in (*block.outputs, *block.carried):
                extend(node, self._block_ends[block])
        return ranges

    def _last_read(self, node: Node, step: Step) -> int:
        """What a loop reads from outside is needed until its last iteration is over."""
        block, last = step.block, step.position
        while block.parent is not None:
            inside = node.block.within(block) and node not in block.carried
            if block.loop and not inside:
                last = self._block_ends[block]
            block = block.parent
        return last


def _new_buffer(node: Node) -> Buffer:
    return Buffer(node.dims, panel_width(node))


def _is_carried(result: Node) -> bool:
    """Whether a result is the last value of what a loop carries."""
    owner = result.arguments[0]
    return owner.op == "loop" and bool(result.params["position"] < owner.params["carry"])


def state_buffers(shapes: Sequence[Shape]) -> list[Buffer]:
    """The same for every function of a state with these shapes."""
    buffers, offset = [], 0
    for dims in map(squeezed, shapes):
        buffers.append(Buffer(dims, 32 if dims and dims[-1] > 16 else 16, "S", offset))
        offset += buffers[-1].words
    return buffers


def reduced_variables(root: Root) -> set[str]:
    """The loops that a reduction is over."""
    index = loop_index(root.value.shape)
    return {index[axis].variable for axis in root.target.params["axes"]}


def _scratch_words(root: Root) -> int:
    """Partial results of a reduction: a vector for each row, one for the columns, or one."""
    space, over = root.value.dims, reduced_variables(root)
    if over == {"c"} and len(space) > 1:
        return -(-space[-2] // 16) * 16 * 16  # whole vectors of rows
    if over == {"r"}:
        return -(-space[-1] // 32) * 32
    return 16


def _are_exclusive(one: Block, other: Block) -> bool:
    """Whether they are in different branches of the same cond."""
    for a, b in zip(_path(one), _path(other), strict=False):
        if a is not b:
            return a.owner is b.owner
    return False


def _path(block: Block) -> list[Block]:
    return [*_path(block.parent), block] if block.parent is not None else [block]
