"""Where every value lies: the state in place, the rest in one piece of memory that is used again and again.

A new value may be written over the old one that it replaces only if nobody reads the old one later. That is first
assumed for all of them, then checked against everything that is read; where it does not hold, the new value lies
elsewhere until the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from mepg.native.fuse import Fusion
from mepg.native.graph import At, Block, Node, Shape, everywhere
from mepg.native.items import Item, Loops, Root, Single, panel_width

_ALIGN = 16  # words: a cache line
_MARGIN = 32  # words after each buffer, which a vector that begins inside of it may touch


@dataclass(eq=False)
class Buffer:
    """A place in memory: matrices one after the other, each in panels of `width` columns."""

    dims: Shape
    width: int
    base: str = "T"  # T: temporary, S: the state
    offset: int = -1

    @property
    def columns(self) -> int:
        return self.dims[-1] if self.dims else 1

    @property
    def rows(self) -> int:
        return self.dims[-2] if len(self.dims) > 1 else 1

    @property
    def matrix(self) -> int:
        """Words of one matrix."""
        return self.rows * -(-self.columns // self.width) * self.width

    @property
    def words(self) -> int:
        return -(-(math.prod(self.dims[:-2]) * self.matrix + _MARGIN) // _ALIGN) * _ALIGN

    def strides(self) -> list[int]:
        """Words between neighbours along each leading axis."""
        leading = self.dims[:-2]
        return [self.matrix * math.prod(leading[i + 1 :]) for i in range(len(leading))]


@dataclass
class Placement:
    """The buffers of a function, and what is left to copy at the end of each block."""

    fusion: Fusion
    state: list[Node]
    external: list[Node]
    buffers: dict[Node, Buffer] = field(default_factory=dict)
    leading: dict[Node, list[At]] = field(default_factory=dict)  # where in its buffer a node lies
    ends: dict[Block, list[Loops]] = field(default_factory=dict)
    scratch: dict[Root, Buffer] = field(default_factory=dict)
    words: int = 0

    def __post_init__(self) -> None:
        self._number()
        self.buffers = dict(zip(self.state, state_buffers([node.shape for node in self.state]), strict=True))
        apart: set[Node] = set()
        while clashes := self._try(apart):
            apart |= clashes
        self._allocate()
        self.read = {node for item in self._everything() for node, _ in item.reads}
        self.read |= {node for block in self.fusion.items for node in block.outputs}

    # The order in which things happen

    def _number(self) -> None:
        self.sequence: list[Item] = []
        self._finishes: dict[Block, int] = {}
        self._last: dict[Item, int] = {}  # of a branch or a loop: when it is over
        self._count = 0
        self._number_block(self.fusion.graph.top)

    def _number_block(self, block: Block) -> None:
        self._tick()
        for item in self.fusion.items[block]:
            item.at = self._tick()
            self.sequence.append(item)
            for inner in item.node.blocks if isinstance(item, Single) else ():
                self._number_block(inner)
            self._last[item] = self._count
        self._finishes[block] = self._tick()

    def _tick(self) -> int:
        self._count += 1
        return self._count

    # Which value goes where

    def _try(self, apart: set[Node]) -> set[Node]:
        """Give every value a buffer. Returns those inputs that would be written over too early."""
        fixed = {*self.state}
        self.buffers = {node: buffer for node, buffer in self.buffers.items() if node in fixed}
        self.leading, self.ends = {}, {}
        for node in self.external:
            self.buffers[node] = Buffer(node.dims, panel_width(node))
        blocks = [self.fusion.graph.top, *(b for b in self.fusion.items if b.loop)]
        for block in blocks[1:]:
            for node in block.carried:
                self.buffers[node] = Buffer(node.dims, panel_width(node))
        writes = {}
        for block in blocks:
            for node, output in zip(block.carried, block.outputs, strict=False):
                if output is not node:
                    if node in apart:
                        self._copy_at_end(output, self.buffers[node], [], block)
                    else:
                        writes[node] = self._give(output, self.buffers[node], [], block)
        self._give_the_rest()
        return {node for node, when in writes.items() if self._too_early(node, when)}

    def _give(self, output: Node, buffer: Buffer, leading: list[At], block: Block) -> list[tuple[int, Block]]:
        """Have a block's output computed in this place, or copied there at the block's end. Returns when and where."""
        if self.buffers.get(output) is buffer and output.op == "input" and not leading:
            return []
        direct = output.block is block and output.op != "input" and output not in self.buffers
        maker = output.arguments[0] if output.op == "result" else None
        if not direct or (
            maker is not None and maker.op == "loop" and maker.settings["carry"] > output.settings["which"]
        ):
            return [self._copy_at_end(output, buffer, leading, block)]
        self.buffers[output], self.leading[output] = buffer, leading
        if maker is not None and maker.op == "branch":
            inner = [self._give(b.outputs[output.settings["which"]], buffer, leading, b) for b in maker.blocks]
            return [event for events in inner for event in events]
        if maker is not None and maker.op == "loop":
            self._give_steps(output, maker, buffer, leading)
        return [(self.fusion.made_by[maker or output].at, block)]

    def _give_steps(self, result: Node, loop: Node, buffer: Buffer, leading: list[At]) -> None:
        body = loop.blocks[0]
        self._give(body.outputs[result.settings["which"]], buffer, [*leading, At(body.loop)], body)

    def _copy_at_end(self, output: Node, buffer: Buffer, leading: list[At], block: Block) -> tuple[int, Block]:
        target = Node("place", [], output.shape, output.type, {}, block)
        self.buffers[target], self.leading[target] = buffer, leading
        item = Loops(block, [(output, False)], self._finishes[block], space=output.dims, roots=[Root(output, target)])
        self.ends.setdefault(block, []).append(item)
        return self._finishes[block], block

    def _give_the_rest(self) -> None:
        for node in self.fusion.alive:
            if node.op == "result" and node not in self.buffers:
                maker, which = node.arguments[0], node.settings["which"]
                if maker.op == "loop" and which < maker.settings["carry"]:
                    self.buffers[node] = self.buffers[maker.blocks[0].carried[which]]
                else:
                    self.buffers[node] = buffer = Buffer(node.dims, panel_width(node))
                    if maker.op == "loop":
                        self._give_steps(node, maker, buffer, [])
                    for block in maker.blocks if maker.op == "branch" else ():
                        self._give(block.outputs[which], buffer, [], block)
        for node in self.fusion.made_by:
            if node not in self.buffers and node.op not in ("branch", "loop", "sort"):
                self.buffers[node] = Buffer(node.dims, panel_width(node))

    def _too_early(self, node: Node, writes: list[tuple[int, Block]]) -> bool:
        for item in self._everything():
            for read, exact in item.reads:
                if read is node:
                    for when, block in writes:
                        early = item.at > when or (item.at == when and not exact)
                        if early and not _exclusive(item.block, block):
                            return True
        return False

    def _everything(self) -> Iterator[Item]:
        yield from self.sequence
        for items in self.ends.values():
            yield from items

    # Memory

    def _allocate(self) -> None:
        """Each buffer of the temporary memory, where nothing lies that is needed at the same time."""
        spans = self._spans()
        placed: list[tuple[int, int, Buffer]] = []
        for buffer, (first, last) in sorted(spans.items(), key=lambda each: (each[1][0], -each[0].words)):
            taken = [other for start, end, other in placed if start <= last and first <= end]
            offset = 0
            for other in sorted(taken, key=lambda other: other.offset):
                if offset + buffer.words <= other.offset:
                    break
                offset = max(offset, other.offset + other.words)
            buffer.offset = offset
            placed.append((first, last, buffer))
            self.words = max(self.words, offset + buffer.words)

    def _spans(self) -> dict[Buffer, tuple[int, int]]:
        """From when until when each buffer is needed."""
        spans: dict[Buffer, tuple[int, int]] = {}

        def need(node: Node, *times: int) -> None:
            buffer = self.buffers.get(node)
            if buffer is not None and buffer.base == "T":
                before = spans.get(buffer, (times[0], times[0]))
                spans[buffer] = min(*before, *times), max(*before, *times)

        end = self._finishes[self.fusion.graph.top]
        for node in self.external:
            need(node, 0)
        for node in self.fusion.graph.top.outputs:
            need(node, end)
        for node, item in self.fusion.made_by.items():
            need(node, item.at)
        for node in self.fusion.alive:
            if node.op == "result":
                item = self.fusion.made_by[node.arguments[0]]
                need(node, item.at, self._last[item])
        for item in self._everything():
            for node, _ in item.reads:
                need(node, item.at, self._until(node, item))
            for root in item.roots if isinstance(item, Loops) else ():
                need(root.target, item.at)
                if root.target.op == "reduce":
                    self.scratch[root] = buffer = Buffer((_scratch_words(root),), 32)
                    spans[buffer] = item.at, item.at
        for block in self.fusion.items:
            for node in (*block.outputs, *block.carried):
                need(node, self._finishes[block])
        return spans

    def _until(self, node: Node, item: Item) -> int:
        """What a loop reads from outside is needed until it is over."""
        block, until = item.block, item.at
        while block.parent is not None:
            inside = node.block.within(block) and node not in block.carried
            if block.loop and not inside:
                until = self._finishes[block]
            block = block.parent
        return until


def state_buffers(shapes: list[Shape]) -> list[Buffer]:
    """The same for every function of a state with these shapes."""
    buffers, offset = [], 0
    for shape in shapes:
        dims = tuple(d for d in shape if d > 1)
        buffers.append(Buffer(dims, 32 if dims and dims[-1] > 16 else 16, "S", offset))
        offset += buffers[-1].words
    return buffers


def reduced_variables(root: Root) -> set[str]:
    """The loops that a reduction is over."""
    index = everywhere(root.value.shape)
    return {index[axis].variable for axis in root.target.settings["axes"]}


def _scratch_words(root: Root) -> int:
    space, over = root.value.dims, reduced_variables(root)
    if over == {"c"} and len(space) > 1:
        return space[-2] * 16
    if over == {"r"}:
        return -(-space[-1] // 32) * 32
    return 16


def _exclusive(one: Block, other: Block) -> bool:
    """Whether they lie in different branches of the same cond."""
    for a, b in zip(_path(one), _path(other), strict=False):
        if a is not b:
            return a.owner is b.owner
    return False


def _path(block: Block) -> list[Block]:
    return [*_path(block.parent), block] if block.parent is not None else [block]
