"""The C++ of one element: where it is read from, how it is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mepg.native.graph import COMPARISONS, FROM_LIBRARY, At, Index, Node, Unsupported, of_argument, place
from mepg.native.items import Loops
from mepg.native.place import Buffer, Placement

VECTOR = {"f32": "vf", "i32": "vi", "u32": "vu", "bool": "vi"}
_LETTER = {"f32": "f", "i32": "i", "u32": "u", "bool": "b"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_CALLED = {
    "div", "rem", "max", "min", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf_inv", "round", "sign",
    "floor", *FROM_LIBRARY, "population_count", "clz", "rint", "round_away",
}  # fmt: skip


class Addresses:
    """Where elements lie, as C++."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def start(self, buffer: Buffer) -> str:
        """Its first word."""
        return f"{buffer.base} + {buffer.offset}"

    def number(self, at: At, column: str = "c") -> str:
        """An index."""
        if at.through:
            node, index = self.placement.fusion.resolve(at.through[0], list(at.through[1]))
            if node.op == "constant":
                return str(min(max(node.settings["value"], 0), at.limit - 1) + at.offset)
            if node.op == "iota":
                value = self.number(index[node.settings["axis"]], column)
            else:
                value = f"one_i({self.address(node, place(node, index), column)})"
            inner = f"within({value}, {at.limit})"
            return f"({inner} + {at.offset})" if at.offset else inner
        if not at.variable:
            return str(at.offset)
        variable = column if at.variable == "c" else at.variable
        return f"({variable} + {at.offset})" if at.offset else variable

    def address(self, node: Node, places: Sequence[At], column: str = "c") -> str:
        """An element of a node."""
        buffer = self.placement.buffers[node]
        full = [*self.placement.leading.get(node, []), *places]
        numbers = [self.number(at, column) for at in full]
        parts = [self.start(buffer)]
        parts += [f"{n} * {stride}" for n, stride in zip(numbers, buffer.strides(), strict=False) if n != "0"]
        if len(numbers) > 1 and buffer.columns > buffer.width:
            parts.append(f"panel<{buffer.width}, {buffer.rows}>({numbers[-2]}, {numbers[-1]})")
        else:
            parts += [f"{numbers[-2]} * {buffer.width}"] if len(numbers) > 1 and numbers[-2] != "0" else []
            parts += [numbers[-1]] if numbers and numbers[-1] != "0" else []
        return " + ".join(parts)

    def neighbours(self, node: Node, places: Sequence[At]) -> bool:
        """Whether the elements of the next columns lie side by side, a vector of them in one panel."""
        buffer = self.placement.buffers[node]
        *others, last = [*self.placement.leading.get(node, []), *places]
        if last.variable != "c" or any("c" in at.variables for at in others):
            return False
        return last.offset % 16 == 0 or len(buffer.dims) == 1 or buffer.columns <= buffer.width


class Expressions:
    """The statements of a loop's body."""

    def __init__(self, addresses: Addresses, item: Loops) -> None:
        self._addresses, self._item = addresses, item
        self._fusion = addresses.placement.fusion
        self._columns = item.space[-1] if item.space else 1
        self._names: dict[tuple[Node, tuple[At, ...]], str] = {}
        self.statements: list[str] = []

    def value(self, node: Node, index: Index) -> str:
        """The name of the vector that holds this element and its neighbours."""
        node, index = self._fusion.resolve(node, index)
        if node.op == "constant":
            return _literal(node)
        key = (node, tuple(index))
        if key not in self._names:
            text = self._text(node, index)
            self._names[key] = name = f"v{len(self._names)}"
            self.statements.append(f"const {VECTOR[node.type]} {name} = {text};")
        return self._names[key]

    def _text(self, node: Node, index: Index) -> str:
        if node is self._item.product:
            return "tile[q][v]"
        if self._fusion.in_memory(node) and not self._at_hand(node):
            return self._load(node, place(node, index))
        if node.op == "iota":
            return self._iota(node, index)
        return _operation(node, [self.value(a, of_argument(a, index)) for a in node.arguments])

    def _at_hand(self, node: Node) -> bool:
        return self._fusion.made_by.get(node) is self._item and any(
            root.target is node and root.value is node for root in self._item.roots
        )

    def _load(self, node: Node, places: tuple[At, ...]) -> str:
        letter, addresses = _LETTER[node.type], self._addresses
        if not any("c" in at.variables for at in places):
            return f"all(one_{letter}({addresses.address(node, places)}))"
        if addresses.neighbours(node, places):
            return f"load_{letter}({addresses.address(node, places)})"
        return self._each_lane(VECTOR[node.type], f"one_{letter}({addresses.address(node, places, 'at')})")

    def _each_lane(self, vector: str, element: str) -> str:
        """A vector, lane by lane; the column is called `at`."""
        inside = f"const int at = within(c + lane, {self._columns});"
        return f"each<{vector}>([&](int lane) {{ {inside} return {element}; }})"

    def _iota(self, node: Node, index: Index) -> str:
        at = index[node.settings["axis"]]
        if at.variable == "c":
            number = f"lanes() + {self._addresses.number(at)}"
        elif "c" in at.variables:
            number = self._each_lane("vi", self._addresses.number(at, "at"))
        else:
            number = f"all({self._addresses.number(at)})"
        return number if node.type == "i32" else f"converted<{VECTOR[node.type]}>({number})"


def _literal(node: Node) -> str:
    value = node.settings["value"]
    if node.type == "bool":
        return "all(true)" if value else "all(false)"
    if node.type == "f32":
        special = {math.inf: "INFINITY", -math.inf: "-INFINITY"}
        return "all((float)NAN)" if value != value else f"all({special.get(value, f'{value!r}f')})"
    return f"all({value}u)" if node.type == "u32" else f"all((int){value}u)" if value >= 0 else f"all(({value} + 0))"


def _operation(node: Node, given: list[str]) -> str:
    op, kind, vector = node.op, node.arguments[0].type, VECTOR[node.type]
    if op in COMPARISONS:
        if kind == "bool" and op not in ("eq", "ne"):  # true is -1
            given = given[::-1]
        return f"(vi)({given[0]} {_INFIX[op]} {given[1]})"
    if op in _INFIX:
        return f"{given[0]} {_INFIX[op]} {given[1]}"
    if op in _CALLED:
        return f"{op}_({', '.join(given)})"
    if op == "select":
        return f"select({', '.join(given)})"
    if op == "copy":
        return given[0]
    if op == "pow":
        base, power = given
        power = power if node.arguments[1].type == "f32" else f"converted<vf>({power})"
        return f"{'pow_' if node.dims else 'pow_once'}({base}, {power})"
    if op == "convert":
        return _conversion(kind, node.type, given[0])
    simple = {"neg": "-{}", "not": "~{}", "bitcast": f"({vector}){{}}"}
    if op in simple:
        return simple[op].format(given[0])
    shifts = {
        "shift_left": "shift_left_", "shift_right_logical": "shift_right_", "shift_right_arithmetic": "shift_down_",
    }  # fmt: skip
    if op in shifts:
        return f"{shifts[op]}({', '.join(given)})"
    raise Unsupported(op)


def _conversion(kind: str, type: str, given: str) -> str:
    if type == "bool":
        return f"(vi)({given} != 0)"
    if kind == "bool":
        return f"counted<{VECTOR[type]}>({given})"
    return f"({VECTOR[type]}){given}" if "f32" not in (kind, type) else f"converted<{VECTOR[type]}>({given})"
