"""The C++ of what is no loop over elements: keys, sorting, scattering, other orders in memory."""

from __future__ import annotations

import math

from mepg.native.express import Addresses
from mepg.native.graph import At, Index, Node, everywhere, place, variables_of


class Calls:
    """What a call's function consists of."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses, self._placement = addresses, addresses.placement

    def lines(self, node: Node, part: list[str]) -> list[str]:
        """The body of its function. `part`: which thread of how many."""
        if node.op in ("relayout", "scatter"):
            return self._relayout(node) + (self._scatter(node) if node.op == "scatter" else [])
        sources = [self._source(argument) for argument in node.arguments]
        if node.op == "sort":
            return self._sort(node, *sources)
        if node.op == "order":
            return self._order(node, sources)
        each = node.settings["each"]
        key, *number = (
            f"{source} + i * {self._distance(argument, k)}"
            for k, (source, argument) in enumerate(zip(sources, node.arguments, strict=True))
        )
        to = f"(word*)({self._addresses.start(self._placement.buffers[node])}) + i * {each}"
        count = math.prod(node.shape) // each
        given = ", ".join([key, *(number or ["nullptr"]), str(each), to, *part])
        return [f"for (int i = 0; i < {count}; i++) {node.op}({given});"]

    def _source(self, argument: Node) -> str:
        """Where a call's argument begins."""
        node, index = self._placement.fusion.resolve(argument, everywhere(argument.shape))
        places = [At("", at.offset) if at.variable in ("r", "c") else at for at in place(node, index)]
        return f"(const word*)({self._addresses.address(node, places)})"

    def _distance(self, argument: Node, which: int) -> int:
        """Between one key and the next, one number and the next."""
        if which:
            return 1 if argument.dims else 0
        return self._placement.buffers[self._placement.fusion.base(argument)].width if len(argument.dims) > 1 else 0

    def _sort(self, node: Node, keys: str, values: str) -> list[str]:
        alive, n = self._placement.fusion.alive, node.arguments[0].shape[0]
        results = {
            r.settings["which"]: self._placement.buffers[r]
            for r in alive
            if r.op == "result" and r.arguments[0] is node
        }
        to = [f"(word*)({self._addresses.start(results[k])})" if k in results else "unused" for k in (0, 1)]
        return [f"word unused[{n}];", f"sort({keys}, {values}, {n}, {', '.join(to)});"]

    def _relayout(self, node: Node) -> list[str]:
        """Element by element, in the order of plain rows."""
        below = node.arguments[0]
        to = f"((word*)({self._addresses.start(self._placement.buffers[node])}))"
        return [*self._one_by_one(below), f"{to}[i] = one_u({self._element(below, everywhere(below.shape))});", "}"]

    def _one_by_one(self, node: Node) -> list[str]:
        """A loop over the elements of a node in the order of plain rows, and where each of them is."""
        lines, rest = [], "i"
        for variable, size in reversed(list(zip(variables_of(node.dims), node.dims, strict=True))):
            lines.append(f"const int {variable} = {rest} % {size};")
            rest = f"{rest} / {size}"
        return [f"for (int i = 0; i < {math.prod(node.shape)}; i++) {{", *lines]

    def _element(self, node: Node, index: Index) -> str:
        """The address of an element that is in memory."""
        source, index = self._placement.fusion.resolve(node, index)
        return self._addresses.address(source, place(source, index))

    def _scatter(self, node: Node) -> list[str]:
        """Each update in its turn. One that does not fit is left out, unless indices are to be clipped."""
        _, updates, *numbers = node.arguments
        kind = {"f32": "float", "i32": "number"}.get(node.type, "word")
        lines, here, to, stride = self._one_by_one(updates), everywhere(updates.shape), "", 1
        for axis in reversed(range(len(node.shape))):
            which, batch, window = node.settings["source"][axis]
            parts = [] if window is None else [self._addresses.number(here[window])]
            if which is not None:
                most = node.shape[axis] - (1 if window is None else updates.shape[window])
                number = f"one_i({self._element(numbers[which], [here[a] for a in batch])})"
                number = f"within({number}, {most + 1})" if node.settings["clip"] else number
                lines.append(f"const int at{axis} = {number};")
                lines.append(f"if (at{axis} < 0 || at{axis} > {most}) continue;")
                parts.append(f"at{axis}")
            to += "".join(f" + {part} * {stride}" for part in parts if part != "0")
            stride *= node.shape[axis]
        start = self._addresses.start(self._placement.buffers[node])
        lines.append(f"{kind}& a = (({kind}*)({start}))[0{to}];")
        lines.append(f"const {kind} b = *(const {kind}*)({self._element(updates, here)});")
        combined = {
            "set": "b", "add": "a + b", "sub": "a - b", "mul": "a * b",
            "max": "a < b || b != b ? b : a", "min": "a > b || b != b ? b : a",
        }[node.settings["kind"]]  # fmt: skip
        return [*lines, f"a = {combined};", "}"]

    def _order(self, node: Node, keys: list[str]) -> list[str]:
        rows, n = node.shape
        kinds = "".join(argument.type[0] for argument in node.arguments)
        to = f"(number*)({self._addresses.start(self._placement.buffers[node])})"
        return [f"const word* keys[] = {{{', '.join(keys)}}};", f'order(keys, "{kinds}", {rows - 1}, {n}, {to});']
