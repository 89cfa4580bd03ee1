"""The C++ of one element: its address, or the expression that computes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mepg.native.buffers import Buffer, BufferAssignment
from mepg.native.graph import COMPARISONS, LIBM, AxisIndex, Index, Node, Unsupported, broadcast_index
from mepg.native.schedule import LoopNest

VECTOR = {"f32": "vf", "i32": "vi", "u32": "vu", "bool": "vi"}
_SUFFIX = {"f32": "f", "i32": "i", "u32": "u", "bool": "b"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_FUNCTIONS = {
    "div", "rem", "max", "min", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf_inv", "round", "sign",
    "floor", *LIBM, "population_count", "clz", "rint", "round_away",
    "shift_left", "shift_right_logical", "shift_right_arithmetic",
}  # fmt: skip


class Addresses:
    """The addresses of elements, as C++."""

    def __init__(self, assignment: BufferAssignment) -> None:
        self.assignment = assignment

    def start(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        return f"{buffer.memory} + {buffer.offset}"

    def index(self, axis: AxisIndex, column: str = "c") -> str:
        """An index along one axis. `column` is what the column is called."""
        if axis.indirect:
            node, index = self.assignment.fusion.resolve(axis.indirect[0], list(axis.indirect[1]))
            if node.op == "constant":
                return str(min(max(node.params["value"], 0), axis.size - 1) + axis.offset)
            if node.op == "iota":
                value = self.index(index[node.params["axis"]], column)
            else:
                value = f"scalar_i({self.address(node, node.squeeze(index), column)})"
            clipped = f"clip({value}, {axis.size})"
            return f"({clipped} + {axis.offset})" if axis.offset else clipped
        if not axis.variable:
            return str(axis.offset)
        variable = column if axis.variable == "c" else axis.variable
        return f"({variable} + {axis.offset})" if axis.offset else variable

    def address(self, node: Node, element: Sequence[AxisIndex], column: str = "c") -> str:
        """The address of a node's element."""
        buffer = self.assignment.buffers[node]
        terms, indices = self._terms(node, element, column)
        if len(indices) > 1 and buffer.panels > 1:
            terms.append(f"panel<{buffer.width}, {buffer.rows}>({indices[-2]}, {indices[-1]})")
        else:
            terms += [f"{indices[-2]} * {buffer.width}"] if len(indices) > 1 and indices[-2] != "0" else []
            terms += [indices[-1]] if indices and indices[-1] != "0" else []
        return " + ".join(terms)

    def _terms(self, node: Node, element: Sequence[AxisIndex], column: str = "c") -> tuple[list[str], list[str]]:
        """The address of the matrix that an element is in, as a sum, and the element's indices."""
        buffer = self.assignment.buffers[node]
        indices = [self.index(axis, column) for axis in (*self.assignment.batch_index.get(node, []), *element)]
        terms = [f"{i} * {stride}" for i, stride in zip(indices, buffer.strides(), strict=False) if i != "0"]
        return [self.start(buffer), *terms], indices

    def across_panels(self, node: Node, element: Sequence[AxisIndex]) -> tuple[str, str] | None:
        """Of elements side by side but for the end of a panel: its width and height; where they begin."""
        *others, last = element
        buffer, batch_index = self.assignment.buffers[node], self.assignment.batch_index.get(node, [])
        if last.variable != "c" or any("c" in axis.variables for axis in (*batch_index, *others)):
            return None
        terms, indices = self._terms(node, element)
        return f"{buffer.width}, {buffer.rows}", f"{' + '.join(terms)}, {indices[-2]}, {indices[-1]}"

    def is_contiguous(self, node: Node, element: Sequence[AxisIndex], variable: str = "c") -> bool:
        """Whether the elements of the variable's next values lie side by side, a vector of them in one panel."""
        buffer = self.assignment.buffers[node]
        *others, last = [*self.assignment.batch_index.get(node, []), *element]
        if last.variable != variable or any(variable in axis.variables for axis in others):
            return False
        return last.offset % 16 == 0 or len(buffer.dims) == 1 or buffer.panels == 1


class Expressions:
    """The statements of a loop nest's body."""

    def __init__(self, addresses: Addresses, nest: LoopNest) -> None:
        self._addresses, self._nest = addresses, nest
        self._fusion = addresses.assignment.fusion
        self._columns = nest.space[-1] if nest.space else 1
        self._names: dict[tuple[Node, tuple[AxisIndex, ...]], str] = {}
        self.statements: list[str] = []

    def value(self, node: Node, index: Index) -> str:
        """The name of the vector that holds this element and those of the next columns."""
        node, index = self._fusion.resolve(node, index)
        if node.op == "constant":
            return _literal(node)
        key = (node, tuple(index))
        if key not in self._names:
            expression = self._expression(node, index)
            self._names[key] = name = f"v{len(self._names)}"
            self.statements.append(f"const {VECTOR[node.dtype]} {name} = {expression};")
        return self._names[key]

    def _expression(self, node: Node, index: Index) -> str:
        if node is self._nest.product:
            return "tile[q][v]"
        if self._fusion.is_materialized(node) and not self._in_registers(node):
            return self._load(node, node.squeeze(index))
        if node.op == "iota":
            return self._iota(node, index)
        return _operation(node, [self.value(a, broadcast_index(a, index)) for a in node.arguments])

    def _in_registers(self, node: Node) -> bool:
        return self._fusion.producers.get(node) is self._nest and any(
            root.target is node and root.value is node for root in self._nest.roots
        )

    def _load(self, node: Node, element: tuple[AxisIndex, ...]) -> str:
        suffix, addresses = _SUFFIX[node.dtype], self._addresses
        if not any("c" in axis.variables for axis in element):
            return f"all(scalar_{suffix}({addresses.address(node, element)}))"
        if addresses.is_contiguous(node, element):
            return f"load_{suffix}({addresses.address(node, element)})"
        if across := addresses.across_panels(node, element):
            sizes, start = across
            load = f"load_across<{VECTOR[node.dtype]}, {sizes}>({start}, {node.dims[-1]})"
            return f"(vi)({load} != 0)" if node.dtype == "bool" else load
        return self._gather(VECTOR[node.dtype], f"scalar_{suffix}({addresses.address(node, element, 'column')})")

    def _gather(self, vector: str, element: str) -> str:
        """A vector, lane by lane, of an expression of `column`."""
        column = f"const int column = clip(c + lane, {self._columns});"
        return f"each<{vector}>([&](int lane) {{ {column} return {element}; }})"

    def _iota(self, node: Node, index: Index) -> str:
        axis = index[node.params["axis"]]
        if axis.variable == "c":
            indices = f"lanes() + {self._addresses.index(axis)}"
        elif "c" in axis.variables:
            indices = self._gather("vi", self._addresses.index(axis, "column"))
        else:
            indices = f"all({self._addresses.index(axis)})"
        return indices if node.dtype == "i32" else f"convert<{VECTOR[node.dtype]}>({indices})"


def _literal(node: Node) -> str:
    value = node.params["value"]
    if node.dtype == "bool":
        return "all(true)" if value else "all(false)"
    if node.dtype == "f32":
        special = {math.inf: "INFINITY", -math.inf: "-INFINITY"}
        return "all((float)NAN)" if value != value else f"all({special.get(value, f'{value!r}f')})"
    return f"all({value}u)" if node.dtype == "u32" else f"all((int){value}u)" if value >= 0 else f"all(({value} + 0))"


def _operation(node: Node, arguments: list[str]) -> str:
    op, dtype, vector = node.op, node.arguments[0].dtype, VECTOR[node.dtype]
    if op in COMPARISONS:
        if dtype == "bool" and op not in ("eq", "ne"):  # true is -1
            arguments = arguments[::-1]
        return f"(vi)({arguments[0]} {_INFIX[op]} {arguments[1]})"
    if op in _INFIX:
        return f"{arguments[0]} {_INFIX[op]} {arguments[1]}"
    if op in _FUNCTIONS:
        return f"{op}_({', '.join(arguments)})"
    if op == "select":
        return f"select({', '.join(arguments)})"
    if op == "pow":
        base, exponent = arguments
        exponent = exponent if node.arguments[1].dtype == "f32" else f"convert<vf>({exponent})"
        return f"{'pow_' if node.dims else 'pow_scalar'}({base}, {exponent})"
    if op == "convert":
        return _conversion(dtype, node.dtype, arguments[0])
    prefix = {"copy": "", "neg": "-", "not": "~", "bitcast": f"({vector})"}
    if op in prefix:
        return f"{prefix[op]}{arguments[0]}"
    raise Unsupported(op)


def _conversion(source: str, target: str, x: str) -> str:
    if target == "bool":
        return f"(vi)({x} != 0)"
    if source == "bool":
        return f"from_mask<{VECTOR[target]}>({x})"
    return f"({VECTOR[target]}){x}" if "f32" not in (source, target) else f"convert<{VECTOR[target]}>({x})"
