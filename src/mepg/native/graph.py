"""A function as a graph of array operations: the intermediate representation between a jaxpr and C++.

Every value is a `Node`. The nodes of a branch or of a loop's body belong to a `Block` of their own. Common
subexpressions are eliminated: the same operation on the same arguments is one node, in its block or one around it. A
view (a transpose, a slice, ...) computes nothing: `through_view` says which element of its base it shows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
NUMPY_DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.bool_}
VIEWS = {"broadcast", "reshape", "transpose", "slice", "gather"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
LIBM = {  # functions of C's mathematical library: computed lane by lane
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp2",
    "expm1", "nextafter", "sin", "sinh", "tan",
}  # fmt: skip


_PIECES, _PIECE = 16, 16  # a reshape copies at most so many pieces of at least so many elements by vectors


class Unsupported(Exception):
    """There is no C++ for this. The text is the primitive's name, with what is special about it if need be."""


class ArrayType(NamedTuple):
    """The shape and dtype of an array: f32, i32, u32 or bool."""

    shape: Shape
    dtype: str


@dataclass(eq=False, repr=False)
class Block:
    """Nodes that run together: the function's, those of one branch of a cond, those of a loop's body."""

    parent: Block | None = None
    loop: str = ""  # the loop's counter, if this is a loop's body
    owner: Node | None = None  # the branch or loop that it is part of
    outputs: list[Node] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)  # inputs that the first outputs replace, one by one
    expressions: dict[Any, Node] = field(default_factory=dict)  # for the elimination of common subexpressions

    def within(self, other: Block) -> bool:
        """Whether this is the other block or lies in it."""
        block: Block | None = self
        while block is not None and block is not other:
            block = block.parent
        return block is other


@dataclass(eq=False, repr=False)
class Node:
    """One value: an operation on other nodes."""

    op: str
    arguments: list[Node]
    shape: Shape
    dtype: str
    params: dict[str, Any]
    block: Block

    @property
    def dims(self) -> Shape:
        """The shape in memory: squeezed."""
        return squeezed(self.shape)

    def squeeze(self, index: Index) -> tuple[AxisIndex, ...]:
        """An index without axes of length one."""
        return tuple(i for i, d in zip(index, self.shape, strict=True) if d > 1)

    @property
    def blocks(self) -> list[Block]:
        """The branches of a cond, the body of a loop."""
        blocks: list[Block] = self.params.get("blocks", [])
        return blocks


@dataclass(frozen=True)
class AxisIndex:
    """An index along one axis: a loop's variable (or none) plus an offset, or an element of an integer array."""

    variable: str = ""
    offset: int = 0
    indirect: tuple[Node, tuple[AxisIndex, ...]] | None = None  # the array and the element, clipped to the axis
    size: int = 0  # of the axis that an indirect index is clipped to

    def shift(self, offset: int) -> AxisIndex:
        """The index plus an offset."""
        return AxisIndex(self.variable, self.offset + offset, self.indirect, self.size) if offset else self

    @property
    def variables(self) -> set[str]:
        """Every loop variable that it depends on."""
        inner = {v for index in self.indirect[1] for v in index.variables} if self.indirect else set()
        return inner | ({self.variable} if self.variable else set())


ZERO = AxisIndex()
Index = list[AxisIndex]
# A gather's index along one axis of its base: that of the view's own axis, a fixed one, or an element of an argument,
# the one that some of the view's axes say.
Source = int | AxisIndex | tuple[int, tuple[int, ...]]


def squeezed(shape: Iterable[int]) -> Shape:
    """A shape without axes of length one."""
    return tuple(d for d in shape if d > 1)


def loop_variables(space: Shape) -> list[str]:
    """The loops over a space: l0, l1, ..., then r for rows, c for columns."""
    return [*(f"l{i}" for i in range(len(space) - 2)), *["r", "c"][-min(2, len(space)) :]] if space else []


def loop_index(shape: Shape) -> Index:
    """The index of the element that the loops over this shape are at."""
    variables = iter(loop_variables(squeezed(shape)))
    return [AxisIndex(next(variables)) if d > 1 else ZERO for d in shape]


def broadcast_index(argument: Node, index: Index) -> Index:
    """The element of an argument that an elementwise operation reads: it may have axes of length one, or none."""
    return [i if d > 1 else ZERO for i, d in zip(index, argument.shape, strict=True)] if argument.shape else []


def through_view(view: Node, index: Index) -> tuple[Node, Index]:
    """The base of a view, and the element of it that the view shows at an index."""
    base, params = view.arguments[0], view.params
    if view.op == "broadcast":
        return base, [index[d] if base.shape[i] > 1 else ZERO for i, d in enumerate(params["dims"])]
    if view.op == "reshape":
        rest = iter(view.squeeze(index))
        return base, [next(rest) if d > 1 else ZERO for d in base.shape]
    if view.op == "transpose":
        return base, [index[params["permutation"].index(axis)] for axis in range(len(index))]
    if view.op == "slice":
        return base, [i.shift(start) for i, start in zip(index, params["start"], strict=True)]
    return base, [_gathered(view, index, source, d) for source, d in zip(params["source"], base.shape, strict=True)]


def _gathered(view: Node, index: Index, source: Source, size: int) -> AxisIndex:
    """One axis of a gather's base: see `Graph.gather`."""
    if isinstance(source, int):
        return index[source]
    if isinstance(source, AxisIndex):
        return source
    array = view.arguments[source[0]]
    return AxisIndex(indirect=(array, tuple(broadcast_index(array, [index[a] for a in source[1]]))), size=size)


class Graph:
    """Makes nodes at an insertion point: at the end of a block, or before another node."""

    def __init__(self) -> None:
        self.top = self.block = Block()
        self.nodes: list[Node] = []  # in order: arguments first
        self.inputs: list[Node] = []
        self.constant_arrays: dict[Any, Node] = {}  # inputs that are the same at each call
        self._before: Node | None = None

    @contextlib.contextmanager
    def insert(self, block: Block, before: Node | None = None) -> Iterator[None]:
        """Move the insertion point, for a with statement."""
        previous = self.block, self._before
        self.block, self._before = block, before
        try:
            yield
        finally:  # an equation that cannot be lowered here is tried once more, decomposed
            self.block, self._before = previous

    def add(self, op: str, arguments: Sequence[Node], shape: Iterable[int], dtype: str, **params: Any) -> Node:
        """A node, or the one that computes the same already."""
        shape = tuple(int(d) for d in shape)
        if (same := self.find(op, arguments, shape, dtype, **params)) is not None:
            return same
        node = self.new(op, arguments, shape, dtype, **params)
        self.block.expressions[_expression(op, arguments, shape, dtype, params)] = node
        return node

    def find(self, op: str, arguments: Sequence[Node], shape: Shape, dtype: str, **params: Any) -> Node | None:
        """The node in this block, or in one around it, that computes this already."""
        key = _expression(op, arguments, shape, dtype, params)
        block: Block | None = self.block
        while block is not None:
            if key in block.expressions:
                return block.expressions[key]
            block = block.parent
        return None

    def new(self, op: str, arguments: Sequence[Node], shape: Shape, dtype: str, **params: Any) -> Node:
        """A node that is never the same as another."""
        node = Node(op, list(arguments), shape, dtype, params, self.block)
        self.nodes.insert(len(self.nodes) if self._before is None else self.nodes.index(self._before), node)
        return node

    def inside(self, owner: Node, make: Callable[[], list[Node]], loop: str = "") -> Block:
        """A new block of a branch or a loop. `make` adds its nodes and returns its outputs."""
        block = Block(self.block, loop, owner)
        with self.insert(block):
            block.outputs = make()
        return block

    def constant(self, value: Any, shape: Iterable[int], dtype: str) -> Node:
        """The same number at every index."""
        with self.insert(self.top):
            return self.add("constant", (), shape, dtype, value=NUMPY_DTYPES[dtype](value).item())

    def constant_array(self, array: npt.NDArray[Any], shape: Iterable[int], dtype: str) -> Node:
        """An array that is known: an input if its numbers differ."""
        array, shape = np.ascontiguousarray(array, NUMPY_DTYPES[dtype]), tuple(int(d) for d in shape)
        words = array.tobytes()
        if array.size and words == array.ravel()[:1].tobytes() * array.size:
            return self.constant(array.ravel()[0], shape, dtype)
        if (shape, dtype, words) not in self.constant_arrays:
            with self.insert(self.top):
                self.constant_arrays[shape, dtype, words] = self.new(
                    "input", (), shape, dtype, row_major=True, array=array
                )
        return self.constant_arrays[shape, dtype, words]

    def _view(self, op: str, base: Node, shape: Iterable[int], *others: Node, **params: Any) -> Node:
        if base.op == "constant":
            return self.constant(base.params["value"], shape, base.dtype)
        return self.add(op, (base, *others), shape, base.dtype, **params)

    def broadcast(self, base: Node, shape: Shape, dims: Sequence[int]) -> Node:
        """Axis i of the base is axis dims[i] here."""
        if shape == base.shape and list(dims) == list(range(len(shape))):
            return base
        return self._view("broadcast", base, shape, dims=tuple(int(d) for d in dims))

    def reshape(self, base: Node, shape: Shape) -> Node:
        """A view if only axes of length one come or go; otherwise a copy."""
        if shape == base.shape:
            return base
        if squeezed(shape) != base.dims and base.op != "constant":
            return self._by_columns(base, shape) or self.add("relayout", (base,), shape, base.dtype)
        return self._view("reshape", base, shape)

    def _by_columns(self, base: Node, shape: Shape) -> Node | None:
        """A last axis that becomes two, or two that become one, as a concatenation if its pieces are few and long."""
        old, new = base.dims, squeezed(shape)
        longer = max(old, new, key=len)
        if (
            len(longer) < 2
            or longer[-2] > _PIECES
            or longer[-1] < _PIECE
            or (*longer[:-2], math.prod(longer[-2:])) not in (old, new)
        ):
            return None
        count, size = longer[-2:]
        x, axis = self.reshape(base, old), len(old) - 1
        if longer is new:
            starts = [[0] * axis + [i * size] for i in range(count)]
            pieces = [self._view("slice", x, (*old[:-1], size), start=tuple(start)) for start in starts]
            whole = self.concatenate([self.reshape(piece, (*old[:-1], 1, size)) for piece in pieces], axis)
        else:
            pieces = [self.slice_axis(x, axis - 1, i, i + 1) for i in range(count)]
            whole = self.concatenate([self.reshape(piece, (*old[:-2], size)) for piece in pieces], axis - 1)
        return self.reshape(whole, shape)

    def transpose(self, base: Node, permutation: Sequence[int]) -> Node:
        """Axis i here is axis permutation[i] of the base."""
        permutation = tuple(int(i) for i in permutation)
        if base.op == "transpose":
            return self.transpose(base.arguments[0], [base.params["permutation"][i] for i in permutation])
        if permutation == tuple(range(len(permutation))):
            return base
        return self._view("transpose", base, [base.shape[i] for i in permutation], permutation=permutation)

    def slice(self, base: Node, start: Sequence[int], stop: Sequence[int]) -> Node:
        """From start to stop along every axis."""
        shape = tuple(int(b - a) for a, b in zip(start, stop, strict=True))
        if shape == base.shape:
            return base
        if base.op == "product" and shape[:-1] == base.shape[:-1] and shape[-1] > 1:
            return self._columns(base, int(start[-1]), int(stop[-1]))
        return self._view("slice", base, shape, start=tuple(int(a) for a in start))

    def _columns(self, product: Node, start: int, stop: int) -> Node:
        """Some columns of a product: the others need not be computed."""
        a, b = product.arguments
        names = product.params["names"]
        b = self.slice_axis(b, names[1].index("n"), start, stop)
        return self.add("product", (a, b), (*product.shape[:-1], stop - start), "f32", **product.params)

    def slice_axis(self, base: Node, axis: int, start: int, stop: int) -> Node:
        """A slice along one axis."""
        starts, stops = [0] * len(base.shape), list(base.shape)
        starts[axis], stops[axis] = start, stop
        return self.slice(base, starts, stops)

    def gather(self, base: Node, shape: Shape, source: Sequence[Source], *indices: Node) -> Node:
        """A view that may read indices from arrays: `source` has the index along each axis of the base."""
        return self._view("gather", base, shape, *indices, source=tuple(source))

    def arange(self, start: Node | int, step: int, size: int) -> Node:
        """start, start + step, start + 2 step, ...: along one more axis if the start is an array."""
        start = self.constant(start, (), "i32") if isinstance(start, int) else start
        shape = (*start.shape, size)
        count = self.add("iota", (), shape, "i32", axis=len(shape) - 1)
        steps = self.elementwise("mul", (count, self.constant(step, (), "i32")), "i32")
        start = self.reshape(start, (*start.shape, 1)) if start.shape else start
        return self.elementwise("add", (steps, start), "i32")

    def clip(self, x: Node, upper: int) -> Node:
        """Integers clipped to 0 ... upper."""
        x = self.elementwise("max", (x, self.constant(0, (), "i32")), "i32")
        return self.elementwise("min", (x, self.constant(upper, (), "i32")), "i32")

    def take(self, base: Node, indices: dict[int, Node]) -> Node:
        """The elements with these indices along some axes."""
        shape = tuple(indices[a].shape[0] if a in indices else d for a, d in enumerate(base.shape))
        axes = list(indices)
        source = [(axes.index(a) + 1, (a,)) if a in axes else a for a in range(len(shape))]
        return self.gather(base, shape, source, *indices.values())

    def concatenate(self, pieces: Sequence[Node], axis: int) -> Node:
        """One after the other along an axis; pieces without elements are left out."""
        pieces = [piece for piece in pieces if piece.shape[axis]]
        if len(pieces) == 1:
            return pieces[0]
        shape = list(pieces[0].shape)
        shape[axis] = sum(piece.shape[axis] for piece in pieces)
        return self.add("concatenate", pieces, shape, pieces[0].dtype, axis=axis)

    def elementwise(self, op: str, arguments: Sequence[Node], dtype: str) -> Node:
        """An elementwise operation, folded or simplified if it can be."""
        rank = max(len(a.shape) for a in arguments)
        shape = tuple(max(a.shape[d] for a in arguments if a.shape) for d in range(rank))
        values = [a.params["value"] if a.op == "constant" else None for a in arguments]
        if op in _FOLD and None not in values and (op != "div" or dtype == "f32"):
            with np.errstate(all="ignore"):
                scalars = [NUMPY_DTYPES[a.dtype](v) for a, v in zip(arguments, values, strict=True)]
                return self.constant(_FOLD[op](*scalars), shape, dtype)
        if op in ("max", "min") and dtype == "f32" and values[0]:  # a constant is cheaper on the right
            arguments, values = arguments[::-1], values[::-1]
        simpler = self._simplify(op, arguments, values, shape)
        return simpler if simpler is not None else self.add(op, arguments, shape, dtype)

    def _simplify(self, op: str, arguments: Sequence[Node], values: list[Any], shape: Shape) -> Node | None:
        """Identities that hold for every number, NaN and infinity included (but not for the sign of a zero)."""
        left, right = arguments[0], arguments[-1]
        if len(arguments) == 2:
            if (op in ("mul", "div") and values[1] == 1) or (op in ("add", "sub") and values[1] == 0):
                return self._broadcast_to(left, shape)
            if (op == "mul" and values[0] == 1) or (op == "add" and values[0] == 0):
                return self._broadcast_to(right, shape)
            if op in ("rem", "div") and left.dtype == "u32" and values[1] and values[1] & (values[1] - 1) == 0:
                bits = values[1].bit_length() - 1
                if op == "rem":
                    return self.elementwise("and", (left, self.constant(values[1] - 1, (), "u32")), "u32")
                return self.elementwise("shift_right_logical", (left, self.constant(bits, (), "u32")), "u32")
            if op == "lt" and left.dtype == "u32" and values[1] == 0:
                return self.constant(False, shape, "bool")
            if op == "ne" and left.dtype == "bool" and values[1] is False:
                return self._broadcast_to(left, shape)
            if op == "and" and left.dtype == "bool" and False in values:
                return self.constant(False, shape, "bool")
            if op == "gt" and left.dtype == "f32" and values[1] == 0:
                return self._positive(left, right, shape)
        if op == "select" and values[0] is not None:
            return self._broadcast_to(arguments[2 if values[0] else 1], shape)
        return None

    def _positive(self, z: Node, zero: Node, shape: Shape) -> Node:
        """z > 0, as ReLU(z) > 0 if there is a ReLU(z), so that z need not be materialized."""
        return self.add("gt", (self.find("max", (z, zero), shape, "f32") or z, zero), shape, "bool")

    def _broadcast_to(self, node: Node, shape: Shape) -> Node:
        return self.broadcast(node, shape, range(len(shape)) if node.shape else ())


def _expression(
    op: str, arguments: Sequence[Node], shape: Shape, dtype: str, params: dict[str, Any]
) -> tuple[Any, ...]:
    """What two nodes have in common that compute the same."""
    return op, tuple(arguments), shape, dtype, repr(sorted(params.items()))


_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "sqrt": np.sqrt, "log": np.log, "exp": np.exp,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": lambda predicate, no, yes: yes if predicate else no, "convert": lambda x: x,
}  # fmt: skip
