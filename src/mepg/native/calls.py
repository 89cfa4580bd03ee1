"""The C++ of calls: random keys and bits, sorting, scattering, row-major copies."""

from __future__ import annotations

import math

from mepg.native.expressions import Addresses
from mepg.native.graph import AxisIndex, Index, Node, Shape, loop_index, loop_variables


class Calls:
    """The body of a call's function."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses, self._assignment = addresses, addresses.assignment

    def lines(self, node: Node, thread: list[str]) -> list[str]:
        """`thread`: its number and how many there are, if several compute the call together."""
        if node.op in ("relayout", "scatter"):
            return self._relayout(node) + (self._scatter(node) if node.op == "scatter" else [])
        sources = [self._source(argument) for argument in node.arguments]
        if node.op == "sort":
            return self._sort(node, *sources)
        if node.op == "order":
            return self._argsort(node, sources)
        words = node.params["words"]
        key, *number = (
            f"{source} + i * {self._stride(argument, k)}"
            for k, (source, argument) in enumerate(zip(sources, node.arguments, strict=True))
        )
        arguments = [key, *(number or ["nullptr"]), str(words), f"{self._target(node)} + i * {words}", *thread]
        count = math.prod(node.shape) // words
        return [f"for (int i = 0; i < {count}; i++) {node.op}({', '.join(arguments)});"]

    def _target(self, node: Node, pointer: str = "word*") -> str:
        return f"({pointer})({self._addresses.start(self._assignment.buffers[node])})"

    def _source(self, argument: Node) -> str:
        """The address of a call's argument."""
        node, index = self._assignment.fusion.resolve(argument, loop_index(argument.shape))
        element = node.squeeze(index)
        first = [AxisIndex("", axis.offset) if axis.variable in ("r", "c") else axis for axis in element]
        return f"(const word*)({self._addresses.address(node, first)})"

    def _stride(self, argument: Node, position: int) -> int:
        """From one key to the next, from one number to the next."""
        if position:
            return 1 if argument.dims else 0
        return self._assignment.buffers[self._assignment.fusion.base(argument)].width if len(argument.dims) > 1 else 0

    def _sort(self, node: Node, keys: str, values: str) -> list[str]:
        n = node.arguments[0].shape[0]
        results = {
            result.params["position"]: self._target(result)
            for result in self._assignment.fusion.live
            if result.op == "result" and result.arguments[0] is node
        }
        targets = [results.get(k, "unused") for k in (0, 1)]
        return [f"word unused[{n}];", f"sort({keys}, {values}, {n}, {', '.join(targets)});"]

    def _argsort(self, node: Node, keys: list[str]) -> list[str]:
        rows, n = node.shape
        dtypes = "".join(argument.dtype[0] for argument in node.arguments)
        call = f'argsort(keys, "{dtypes}", {rows - 1}, {n}, {self._target(node, "number*")});'
        return [f"const word* keys[] = {{{', '.join(keys)}}};", call]

    def _relayout(self, node: Node) -> list[str]:
        """A row-major copy: by rows, or their parts in panels, where elements lie side by side; else one by one."""
        source = node.arguments[0]
        base, index = self._assignment.fusion.resolve(source, loop_index(source.shape))
        buffer, columns = self._assignment.buffers[base], source.dims[-1] if source.dims else 1
        width = columns if buffer.panels == 1 else buffer.width
        element = base.squeeze(index)
        if element and self._addresses.is_contiguous(base, element) and element[-1].offset % width == 0:
            lines = self._indices(source.dims[:-1], loop_variables(source.dims)[:-1])
            part = (f"for (int c = 0; c < {columns}; c += {width}) ", " + c", f"min_({width}, {columns} - c)")
            across, column, words = ("", "", str(columns)) if width == columns else part
            address = self._addresses.address(base, element, column[3:] or "0")
            return [
                f"for (int i = 0; i < {math.prod(source.dims[:-1])}; i++) {{",
                *lines,
                f"{across}memcpy({self._target(node)} + i * {columns}{column}, {address}, 4 * {words});",
                "}",
            ]
        copy = f"({self._target(node)})[i] = scalar_u({self._addresses.address(base, element)});"
        return [*self._loop(source), copy, "}"]

    def _loop(self, node: Node) -> list[str]:
        """A loop over a node's elements in row-major order, and the loop variables of each."""
        lines = self._indices(node.dims, loop_variables(node.dims))
        return [f"for (int i = 0; i < {math.prod(node.shape)}; i++) {{", *lines]

    def _indices(self, dims: Shape, variables: list[str]) -> list[str]:
        """Each loop variable, from the number i of an element in row-major order."""
        lines, rest = [], "i"
        for variable, size in reversed(list(zip(variables, dims, strict=True))):
            lines.append(f"const int {variable} = {rest} % {size};")
            rest = f"{rest} / {size}"
        return lines

    def _element(self, node: Node, index: Index) -> str:
        """The address of an element, through views."""
        base, index = self._assignment.fusion.resolve(node, index)
        return self._addresses.address(base, base.squeeze(index))

    def _scatter(self, node: Node) -> list[str]:
        """One update after the other. One that is out of range is dropped, unless indices are clipped."""
        _, updates, *starts = node.arguments
        ctype = {"f32": "float", "i32": "number"}.get(node.dtype, "word")
        lines, index, target, stride = self._loop(updates), loop_index(updates.shape), "", 1
        for axis in reversed(range(len(node.shape))):
            array, batch, window = node.params["source"][axis]
            terms = [] if window is None else [self._addresses.index(index[window])]
            if array is not None:
                largest = node.shape[axis] - (1 if window is None else updates.shape[window])
                start = f"scalar_i({self._element(starts[array], [index[a] for a in batch])})"
                start = f"clip({start}, {largest + 1})" if node.params["clip"] else start
                lines.append(f"const int start{axis} = {start};")
                lines.append(f"if (start{axis} < 0 || start{axis} > {largest}) continue;")
                terms.append(f"start{axis}")
            target += "".join(f" + {term} * {stride}" for term in terms if term != "0")
            stride *= node.shape[axis]
        lines.append(f"{ctype}& a = ({self._target(node, f'{ctype}*')})[0{target}];")
        lines.append(f"const {ctype} b = *(const {ctype}*)({self._element(updates, index)});")
        combined = {
            "set": "b", "add": "a + b", "sub": "a - b", "mul": "a * b",
            "max": "a < b || b != b ? b : a", "min": "a > b || b != b ? b : a",
        }[node.params["kind"]]  # fmt: skip
        return [*lines, f"a = {combined};", "}"]
