"""A function as a graph of array operations, and what an element of it depends on.

Every value is a `Node`. Those of a branch or a loop's body belong to a `Block` of their own. The same operation on the
same values is one node (in its block or one around it). A view (a transpose, a slice, ...) computes nothing: `look`
says which element of which other node it shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
NUMPY: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.bool_}
VIEWS = {"broadcast", "reshape", "transpose", "slice", "take"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
FROM_LIBRARY = {  # functions of C's library: an element at a time
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp2",
    "expm1", "nextafter", "sin", "sinh", "tan",
}  # fmt: skip


class Unsupported(Exception):
    """The generator has no C++ for this. Its text is the primitive's name, with what is special about it if need be."""


@dataclass(eq=False, repr=False)
class Block:
    """What runs together: the function, one branch of a cond, the body of a loop."""

    parent: Block | None = None
    loop: str = ""  # the variable that counts, if this is a loop's body
    owner: Node | None = None  # the branch or loop that it is part of
    outputs: list[Node] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)  # inputs whose place the first outputs take
    known: dict[Any, Node] = field(default_factory=dict)

    def within(self, other: Block) -> bool:
        """Whether this is the other or lies in it."""
        block: Block | None = self
        while block is not None and block is not other:
            block = block.parent
        return block is other


@dataclass(eq=False, repr=False)
class Node:
    """One value."""

    op: str
    arguments: list[Node]
    shape: Shape
    type: str
    settings: dict[str, Any]
    block: Block

    @property
    def dims(self) -> Shape:
        """The shape as it lies in memory: without axes of one."""
        return proper(self.shape)

    @property
    def blocks(self) -> list[Block]:
        """The branches of a cond, the body of a loop."""
        blocks: list[Block] = self.settings.get("blocks", [])
        return blocks


@dataclass(frozen=True)
class At:
    """An index along one axis: a loop's variable (or none) and an offset, or a number that is itself computed."""

    variable: str = ""
    offset: int = 0
    through: tuple[Node, tuple[At, ...]] | None = None  # an element of an integer node, kept below `limit`
    limit: int = 0

    def shift(self, by: int) -> At:
        """So many further on."""
        return At(self.variable, self.offset + by, self.through, self.limit) if by else self

    @property
    def variables(self) -> set[str]:
        """Every loop variable it depends on."""
        inner = {v for at in self.through[1] for v in at.variables} if self.through else set()
        return inner | ({self.variable} if self.variable else set())


ZERO = At()
Index = list[At]


def proper(shape: Iterable[int]) -> Shape:
    """Without axes of one."""
    return tuple(d for d in shape if d > 1)


def variables_of(space: Shape) -> list[str]:
    """The loops over a space: l0, l1, ..., then r for rows, c for columns."""
    return [*(f"l{i}" for i in range(len(space) - 2)), *["r", "c"][-min(2, len(space)) :]] if space else []


def everywhere(shape: Shape) -> Index:
    """The index of the element that the loops over this shape are at."""
    names = iter(variables_of(proper(shape)))
    return [At(next(names)) if d > 1 else ZERO for d in shape]


def place(node: Node, index: Index) -> tuple[At, ...]:
    """An index without axes of one."""
    return tuple(at for at, d in zip(index, node.shape, strict=True) if d > 1)


def of_argument(argument: Node, index: Index) -> Index:
    """Where an elementwise operation looks in an argument, which may have axes of one or none at all."""
    return [at if d > 1 else ZERO for at, d in zip(index, argument.shape, strict=True)] if argument.shape else []


def look(view: Node, index: Index) -> tuple[Node, Index]:
    """Through one view: the node below it, and the element of that."""
    below, settings = view.arguments[0], view.settings
    if view.op == "broadcast":
        return below, [index[d] if below.shape[i] > 1 else ZERO for i, d in enumerate(settings["dims"])]
    if view.op == "reshape":
        rest = iter(place(view, index))
        return below, [next(rest) if d > 1 else ZERO for d in below.shape]
    if view.op == "transpose":
        found = [ZERO] * len(index)
        for at, axis in zip(index, settings["permutation"], strict=True):
            found[axis] = at
        return below, found
    if view.op == "slice":
        return below, [at.shift(start) for at, start in zip(index, settings["start"], strict=True)]
    return below, _take(view, index)


def _take(view: Node, index: Index) -> Index:
    """For each axis below: ("axis", a): the view's own a; ("at", At): that; ("number", k, axes): the k-th argument."""
    found = []
    for (kind, *rest), size in zip(view.settings["source"], view.arguments[0].shape, strict=True):
        if kind == "axis":
            found.append(index[rest[0]])
        elif kind == "at":
            found.append(rest[0])
        else:
            number = view.arguments[rest[0]]
            at = of_argument(number, [index[a] if a is not None else ZERO for a in rest[1]])
            found.append(At(through=(number, tuple(at)), limit=size))
    return found


class Graph:
    """Makes nodes at an insertion point: at the end of a block, or before another node."""

    def __init__(self) -> None:
        self.top = self.block = Block()
        self.nodes: list[Node] = []  # in order: arguments first
        self.tables: dict[Any, Node] = {}  # arrays of constants: inputs that are always the same
        self._before: Node | None = None

    @contextlib.contextmanager
    def insert(self, block: Block, before: Node | None = None) -> Iterator[None]:
        """Move the insertion point for a while."""
        previous = self.block, self._before
        self.block, self._before = block, before
        try:
            yield
        finally:  # an equation that cannot be added here is tried once more, taken apart
            self.block, self._before = previous

    def add(self, op: str, arguments: Sequence[Node], shape: Iterable[int], type: str, **settings: Any) -> Node:
        """A node; one that is there already if it is the same."""
        shape = tuple(int(d) for d in shape)
        key = (op, tuple(arguments), shape, type, repr(sorted(settings.items())))
        block: Block | None = self.block
        while block is not None:
            if key in block.known:
                return block.known[key]
            block = block.parent
        node = self.new(op, arguments, shape, type, **settings)
        self.block.known[key] = node
        return node

    def new(self, op: str, arguments: Sequence[Node], shape: Shape, type: str, **settings: Any) -> Node:
        """A node that is like no other."""
        node = Node(op, list(arguments), shape, type, settings, self.block)
        self.nodes.insert(len(self.nodes) if self._before is None else self.nodes.index(self._before), node)
        return node

    def inside(self, owner: Node, make: Callable[[], list[Node]], loop: str = "") -> Block:
        """A block with what `make` gives for outputs."""
        block = Block(self.block, loop, owner)
        with self.insert(block):
            block.outputs = make()
        return block

    def constant(self, value: Any, shape: Iterable[int], type: str) -> Node:
        """The same number everywhere."""
        with self.insert(self.top):
            return self.add("constant", (), shape, type, value=NUMPY[type](value).item())

    def table(self, array: npt.NDArray[Any], shape: Iterable[int], type: str) -> Node:
        """An array of constants."""
        array, shape = np.ascontiguousarray(array, NUMPY[type]), tuple(int(d) for d in shape)
        words = array.tobytes()
        if array.size and words == array.ravel()[:1].tobytes() * array.size:
            return self.constant(array.ravel()[0], shape, type)
        if (shape, type, words) not in self.tables:
            with self.insert(self.top):
                self.tables[shape, type, words] = self.new("input", (), shape, type, rows=True, array=array)
        return self.tables[shape, type, words]

    def _view(self, op: str, below: Node, shape: Iterable[int], *others: Node, **settings: Any) -> Node:
        if below.op == "constant":
            return self.constant(below.settings["value"], shape, below.type)
        return self.add(op, (below, *others), shape, below.type, **settings)

    def broadcast(self, below: Node, shape: Shape, dims: Sequence[int]) -> Node:
        """Axis i of what is below is axis dims[i] here."""
        if shape == below.shape and list(dims) == list(range(len(shape))):
            return below
        return self._view("broadcast", below, shape, dims=tuple(int(d) for d in dims))

    def reshape(self, below: Node, shape: Shape) -> Node:
        """Other axes of one; anything else has to be copied."""
        if shape == below.shape:
            return below
        if proper(shape) != below.dims and below.op != "constant":
            return self.add("relayout", (below,), shape, below.type)
        return self._view("reshape", below, shape)

    def transpose(self, below: Node, permutation: Sequence[int]) -> Node:
        """Axis i here is axis permutation[i] of what is below."""
        permutation = tuple(int(i) for i in permutation)
        if below.op == "transpose":
            return self.transpose(below.arguments[0], [below.settings["permutation"][i] for i in permutation])
        if permutation == tuple(range(len(permutation))):
            return below
        return self._view("transpose", below, [below.shape[i] for i in permutation], permutation=permutation)

    def slice(self, below: Node, start: Sequence[int], stop: Sequence[int]) -> Node:
        """From start to stop along every axis."""
        shape = tuple(int(b - a) for a, b in zip(start, stop, strict=True))
        if shape == below.shape:
            return below
        if below.op == "product" and shape[:-1] == below.shape[:-1] and shape[-1] > 1:
            return self._columns(below, int(start[-1]), int(stop[-1]))
        return self._view("slice", below, shape, start=tuple(int(a) for a in start))

    def _columns(self, product: Node, start: int, stop: int) -> Node:
        """Some columns of a product: no others need be computed."""
        a, b = product.arguments
        names = product.settings["names"]
        b = self.part(b, names[1].index("n"), start, stop)
        return self.add("product", (a, b), (*product.shape[:-1], stop - start), "f32", **product.settings)

    def part(self, below: Node, axis: int, start: int, stop: int) -> Node:
        """A slice along one axis."""
        starts, stops = [0] * len(below.shape), list(below.shape)
        starts[axis], stops[axis] = start, stop
        return self.slice(below, starts, stops)

    def take(self, below: Node, shape: Shape, source: Sequence[tuple[Any, ...]], *numbers: Node) -> Node:
        """Along each axis below: an axis of this shape, a fixed place, or a number that is computed. See `_take`."""
        return self._view("take", below, shape, *numbers, source=tuple(source))

    def counting(self, start: Node | int, step: int, size: int) -> Node:
        """start, start + step, start + 2 step, ...: along one more axis if the start is an array."""
        begin = self.constant(start, (), "i32") if isinstance(start, int) else start
        shape = (*begin.shape, size)
        count = self.add("iota", (), shape, "i32", axis=len(shape) - 1)
        steps = self.elementwise("mul", (count, self.constant(step, (), "i32")), "i32")
        begin = self.reshape(begin, (*begin.shape, 1)) if begin.shape else begin
        return self.elementwise("add", (steps, begin), "i32")

    def clip(self, number: Node, most: int) -> Node:
        """A whole number from 0 to so many."""
        low = self.elementwise("max", (number, self.constant(0, (), "i32")), "i32")
        return self.elementwise("min", (low, self.constant(most, (), "i32")), "i32")

    def pick(self, below: Node, numbers: dict[int, Node]) -> Node:
        """Along some axes, the elements with these numbers."""
        shape = tuple(numbers[a].shape[0] if a in numbers else d for a, d in enumerate(below.shape))
        which = list(numbers)
        source = [("number", which.index(a) + 1, (a,)) if a in numbers else ("axis", a) for a in range(len(shape))]
        return self.take(below, shape, source, *numbers.values())

    def join(self, pieces: Sequence[Node], axis: int) -> Node:
        """One after the other along an axis."""
        pieces = [piece for piece in pieces if piece.shape[axis]]
        if len(pieces) == 1:
            return pieces[0]
        shape = list(pieces[0].shape)
        shape[axis] = sum(piece.shape[axis] for piece in pieces)
        return self.add("concatenate", pieces, shape, pieces[0].type, axis=axis)

    def elementwise(self, op: str, arguments: Sequence[Node], type: str, **settings: Any) -> Node:
        """An operation on elements, or something simpler that gives the same."""
        rank = max(len(a.shape) for a in arguments)
        shape = tuple(max(a.shape[d] for a in arguments if a.shape) for d in range(rank))
        values = [a.settings["value"] if a.op == "constant" else None for a in arguments]
        if op in _FOLD and None not in values:
            with np.errstate(all="ignore"):
                given = [NUMPY[a.type](v) for a, v in zip(arguments, values, strict=True)]
                return self.constant(_FOLD[op](*given), shape, type)
        simpler = self._simplify(op, arguments, values, shape)
        return simpler if simpler is not None else self.add(op, arguments, shape, type, **settings)

    def _simplify(self, op: str, arguments: Sequence[Node], values: list[Any], shape: Shape) -> Node | None:
        """Only what holds for every number, NaN and infinity included (the sign of a zero is not looked at)."""
        first, other = arguments[0], arguments[-1]
        if len(arguments) == 2:
            if (op in ("mul", "div") and values[1] == 1) or (op in ("add", "sub") and values[1] == 0):
                return self._spread(first, shape)
            if (op == "mul" and values[0] == 1) or (op == "add" and values[0] == 0):
                return self._spread(other, shape)
            if op in ("rem", "div") and first.type == "u32" and values[1] and values[1] & (values[1] - 1) == 0:
                bits = values[1].bit_length() - 1
                if op == "rem":
                    return self.elementwise("and", (first, self.constant(values[1] - 1, (), "u32")), "u32")
                return self.elementwise("shift_right_logical", (first, self.constant(bits, (), "u32")), "u32")
            if op == "lt" and first.type == "u32" and values[1] == 0:
                return self.constant(False, shape, "bool")
            if op == "ne" and first.type == "bool" and values[1] is False:
                return self._spread(first, shape)
            if op == "and" and first.type == "bool" and False in values:
                return self.constant(False, shape, "bool")
            if op == "gt" and first.type == "f32" and values[1] == 0:
                return self._positive(first, other, shape)
        if op == "select" and values[0] is not None:
            return self._spread(arguments[2 if values[0] else 1], shape)
        return None

    def _positive(self, z: Node, zero: Node, shape: Shape) -> Node:
        """z > 0; of ReLU(z) where that is there, so that z need not be kept."""
        block: Block | None = self.block
        while block is not None:
            relu = block.known.get(("max", (z, zero), shape, "f32", "[]"))
            z, block = (relu, None) if relu is not None else (z, block.parent)
        return self.add("gt", (z, zero), shape, "bool")

    def _spread(self, node: Node, shape: Shape) -> Node:
        return self.broadcast(node, shape, range(len(shape)) if node.shape else ())


_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "sqrt": np.sqrt, "log": np.log, "exp": np.exp,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": lambda which, no, yes: yes if which else no, "convert": lambda x: x,
}  # fmt: skip
