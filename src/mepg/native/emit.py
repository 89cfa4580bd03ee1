"""From a schedule to the text of a C++ program: one function for each step, and one that calls them in order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mepg.native.buffers import BufferAssignment, reduced_variables
from mepg.native.calls import Calls
from mepg.native.expressions import VECTOR, Addresses, Expressions
from mepg.native.graph import ZERO, Block, Node, loop_index, loop_variables
from mepg.native.partition import Partition, Range, is_parallel, partition
from mepg.native.processor import Instructions
from mepg.native.schedule import LoopNest, NodeStep, Operand, PackStep, Root, Step


@dataclass(frozen=True)
class Tile:
    """What a product computes at once: rows and vectors of columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile_for(nest: LoopNest, instructions: Instructions) -> Tile:
    """As many registers as there are for a product; a row at a time for anything else."""
    columns, lanes = (nest.space[-1] if nest.space else 1), instructions.lanes
    vectors = min(2, (32 if columns > 16 else 16) // lanes)
    if nest.product is None:
        return Tile(1, vectors, lanes)
    # Six rows of a transposed matrix would cross the end of a panel.
    few = 6 if lanes == 8 and not nest.operands[0].transposed else 4
    return Tile(16 // vectors if instructions.registers == 32 else few, vectors, lanes)


# The identity element of each reduction.
_IDENTITY = {
    "f32": {"sum": "vf{}", "prod": "all(1.f)", "max": "all(-INFINITY)", "min": "all(INFINITY)"},
    "i32": {"sum": "vi{}", "prod": "all(1)", "max": "all((int)INT32_MIN)", "min": "all((int)INT32_MAX)"},
    "u32": {"sum": "vu{}", "prod": "all(1u)", "max": "vu{}", "min": "all(0xffffffffu)"},
}
_CAST = {"f32": "", "i32": "(number*)", "u32": "(word*)"}


def program(assignment: BufferAssignment, instructions: Instructions, threads: int = 1) -> str:
    """The whole C++ text."""
    return _Emitter(assignment, instructions, threads).text()


class _Emitter:
    def __init__(self, assignment: BufferAssignment, instructions: Instructions, threads: int) -> None:
        self._assignment, self._instructions, self._threads = assignment, instructions, threads
        self._addresses = Addresses(assignment)
        self._calls = Calls(self._addresses)
        self._functions: list[str] = []
        self._body: list[str] = []  # of the function that calls the others
        self._branches = 0
        self._unsynchronized: set[str] = set()  # who has written since the last barrier: "first" thread, "all"

    def text(self) -> str:
        self._block(self._assignment.fusion.graph.top, [])
        body = self._body
        if self._threads > 1:
            start = "const bool started = run_threads([&](const int t, Barrier& barrier) {"
            body = [start, *body, "});", "if (!started) return 1;"]
        lines = "\n".join(f"  {line}" for line in (*self._inputs(), *body, *self._outputs(), "return 0;"))
        head = "int run(float* S, float* T, const float* const* in, const int64_t* const* rows, float* const* out)"
        return "\n\n".join(
            [
                f'#define THREADS {self._threads}\n#include "kernels.h"',
                f'extern "C" int32_t branches = {self._branches}, taken[{max(1, self._branches)}] = {{}};',
                "namespace {",
                *self._functions,
                "}  // namespace",
                f'extern "C" {head} {{\n  Flush flush;\n{lines}\n}}\n',
            ]
        )

    # Steps in order

    def _block(self, block: Block, counters: list[str]) -> None:
        """`counters`: those of the loops around it."""
        for step in (*self._assignment.fusion.schedule[block], *self._assignment.final_copies.get(block, [])):
            if isinstance(step, LoopNest):
                self._function(step, self._loop_nest(step), _describe(step), counters)
            elif isinstance(step, PackStep):
                self._function(step, self._pack(step), f"pack {step.operand.packing}", counters)
            elif isinstance(step, NodeStep) and step.node.op == "branch":
                self._branch(step, counters)
            elif isinstance(step, NodeStep) and step.node.op == "loop":
                self._loop(step.node, counters)
            elif isinstance(step, NodeStep):
                self._function(step, self._calls.lines(step.node, self._thread(step)), step.node.op, counters)

    def _function(self, step: Step, body: list[str], comment: str, counters: list[str]) -> None:
        name = f"f{len(self._functions)}"
        parameters = ", ".join(["float* S", "float* T", "const int t", *(f"const int {v}" for v in counters)])
        lines = "\n".join(f"  {line}" for line in body)
        self._functions.append(f"// {comment}\nNOINLINE void {name}({parameters}) {{\n{lines}\n}}")
        if self._threads == 1:
            self._body.append(f"{name}({', '.join(['S', 'T', '0', *counters])});")
            return
        parallel = is_parallel(step)
        if parallel or "all" in self._unsynchronized:
            self._barrier()
        self._body.append(f"{'' if parallel else 'if (t == 0) '}{name}({', '.join(['S', 'T', 't', *counters])});")
        self._unsynchronized.add("all" if parallel else "first")

    def _thread(self, step: Step) -> list[str]:
        """The number of the thread and how many there are, for a call that several compute together."""
        return ["t", str(self._threads)] if self._threads > 1 and is_parallel(step) else []

    def _barrier(self) -> None:
        """After it, every thread sees what the others have written."""
        if self._unsynchronized:
            self._body.append("barrier.wait();")
            self._unsynchronized.clear()

    def _require_barrier(self) -> None:
        """All threads have to read something before one of them goes on and overwrites it."""
        if self._threads > 1:
            self._unsynchronized.add("all")

    def _loop(self, loop: Node, counters: list[str]) -> None:
        body, length = loop.blocks[0], loop.params["length"]
        t = body.loop
        self._barrier()
        if length is None:  # as long as the last value that it carries is true
            self._require_barrier()
            head = f"{t} = 0; scalar_b({self._addresses.address(body.carried[-1], ())}); {t}++"
        else:
            up, down = f"{t} = 0; {t} < {length}; {t}++", f"{t} = {length - 1}; {t} >= 0; {t}--"
            head = down if loop.params["reverse"] else up
        self._body.append(f"for (int {head}) {{")
        self._block(body, [*counters, t])
        self._barrier()
        self._body.append("}")
        if length is None:
            self._require_barrier()

    def _branch(self, step: NodeStep, counters: list[str]) -> None:
        predicate, blocks = step.node.arguments[0], step.node.blocks
        node, index = self._assignment.fusion.resolve(predicate, loop_index(predicate.shape))
        self._barrier()
        address = self._addresses.address(node, node.squeeze(index))
        self._body.append(f"switch (clip(scalar_i({address}), {len(blocks)})) {{")
        for k, block in enumerate(blocks):
            self._body.append("default: {" if block is blocks[-1] else f"case {k}: {{")
            self._body.append(f"{'if (t == 0) ' if self._threads > 1 else ''}taken[{self._branches}] = 1;")
            self._branches += 1
            self._require_barrier()  # the predicate's memory may be another's from here on
            self._block(block, counters)
            self._barrier()
            self._body.append("break; }")
        self._body.append("}")

    def _inputs(self) -> list[str]:
        return [
            f"copy_input(in[{k}], rows[{k}], {node.shape[0] if node.shape else 1}, {math.prod(node.shape[1:])}, "
            f"{self._addresses.start(buffer)});"
            for k, node in enumerate(self._assignment.inputs)
            if (buffer := self._assignment.buffers[node]).offset >= 0
        ]

    def _outputs(self) -> list[str]:
        top = self._assignment.fusion.graph.top
        buffers = [self._assignment.buffers[node] for node in top.outputs[len(top.carried) :]]
        return [
            f"copy_output<{b.width}>({self._addresses.start(b)}, {b.matrices}, {b.rows}, {b.columns}, out[{k}]);"
            for k, b in enumerate(buffers)
        ]

    # Products

    def _pack(self, step: PackStep) -> list[str]:
        operand, node = step.operand, step.node
        source = self._assignment.buffers[operand.node]
        width = 32 if (operand.rows if operand.packing.endswith("transposed") else operand.columns) > 16 else 16
        parameters = [source.width, source.rows, *([] if operand.packing == "pairs_in_rows" else [width])]
        matrix = self._addresses.address(operand.node, [*operand.batch_index, ZERO, ZERO])
        target = self._packed_matrix(operand, node)
        pairs = zip(operand.batch_variables, node.params["lengths"], strict=True)
        loops = [f"for (int {v} = 0; {v} < {n}; {v}++)" for v, n in pairs]
        sizes = map(str, (operand.row.offset, operand.rows, operand.columns))
        arguments = ", ".join([matrix, *sizes, target, *self._thread(step)])
        return [*loops, f"  pack_{operand.packing}<{', '.join(map(str, parameters))}>({arguments});"]

    def _packed_matrix(self, operand: Operand, packed: Node) -> str:
        lengths, words = packed.params["lengths"], packed.params["words"]
        strides = [words * math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
        terms = [f" + {v} * {stride}" for v, stride in zip(operand.batch_variables, strides, strict=True)]
        return self._addresses.start(self._assignment.buffers[packed]) + "".join(terms)

    def _matrix(self, operand: Operand) -> str:
        """The address of an operand's matrix."""
        if operand.packed is not None:
            return self._packed_matrix(operand, operand.packed)
        return self._addresses.address(operand.node, [*operand.batch_index, ZERO, ZERO])

    def _product(self, product: Node, left: Operand, right: Operand) -> list[str]:
        """Statements that fill a tile: rows from i on, columns from c0 on."""
        depth = (product.params["depth"] + 1) // 2 if left.bfloat16 else product.params["depth"]
        kind = "Pairs" if left.bfloat16 else "Single"
        a, b = self._assignment.buffers[left.node], self._assignment.buffers[right.node]
        b_width, b_rows, b_row = b.width, b.rows, right.row.offset
        if right.packed is not None:
            b_width, b_rows, b_row = (32 if product.dims[-1] > 16 else 16), depth, 0
        lines = [
            "clear(tile);",
            f"const float* B = {self._matrix(right)} + panel<{b_width}, {b_rows}>({b_row}, c0);",
            f"const float* A = {self._matrix(left)};",
        ]
        width, rows, row = a.width, a.rows, left.row.offset
        if left.transposed:
            if left.packed is not None:
                width, rows, row = (32 if left.columns > 16 else 16), depth, 0
            start = f"panel<{width}, {rows}>({row}, i + {left.column.offset})"
            return [*lines, f"product<{kind}, 1, {width}, {b_width}>(A + {start}, B, {depth}, tile);"]
        if left.packed is not None:
            width, rows, row = 16, left.rows, 0
        call = f"product<{kind}, {width}, 1, {b_width}>"
        if depth <= width or (left.packed is None and a.panels == 1):
            return [*lines, f"{call}(A + (i + {row}) * {width} + {left.column.offset}, B, {depth}, tile);"]
        lines.append(f"for (int k = 0; k < {depth}; k += {width})")
        count = str(width) if depth % width == 0 else f"({depth} - k < {width} ? {depth} - k : {width})"
        return [*lines, f"  {call}(A + k * {rows} + (i + {row}) * {width}, B + k * {b_width}, {count}, tile);"]

    # Loop nests

    def _loop_nest(self, nest: LoopNest) -> list[str]:
        tile = tile_for(nest, self._instructions)
        space = nest.space
        rows, columns = (space[-2] if len(space) > 1 else 1), (space[-1] if space else 1)
        part = partition(nest, self._threads, (tile.rows, tile.columns))
        # The last columns of a product need only one vector of a tile if they are few.
        split = nest.product is not None and tile.vectors == 2 and 0 < columns % tile.columns <= tile.lanes < columns
        vectors, sizes = ("NV", "int MR, int NV") if split else (str(tile.vectors), "int MR")
        expressions, lines = Expressions(self._addresses, nest), _Lines()
        if columns % tile.columns and any(root.target.op == "reduce" for root in nest.roots):
            lines.first.append(f"const vi valid = lanes_below({columns} - c);")
        roots = list(nest.roots)
        if nest.product is not None and nest.product in self._assignment.read:
            roots.insert(0, Root(nest.product, nest.product))
        for k, root in enumerate(roots):
            value = expressions.value(root.value, loop_index(root.value.shape))
            if root.target.op == "reduce":
                self._reduce(root, k, value, lines, nest, tile, vectors, part)
            elif root.target in self._assignment.read or root.target.op in ("destination", "input"):
                lines.last.append(self._store(root, value, nest))
        whole = split or tile.columns - columns % tile.columns < tile.lanes or columns % tile.columns == 0
        product = self._product(nest.product, *nest.operands) if nest.product is not None else []
        body = [
            f"auto compute_rows = [&]<{sizes}>(int i, int c0) __attribute__((always_inline)) {{",
            *([f"  vf tile[MR][{vectors}];"] if product else []),
            *(f"  {line}" for line in (*product, *lines.before_tile)),
            "  UNROLL for (int q = 0; q < MR; q++) {",
            "    [[maybe_unused]] const int r = i + q;",
            *(f"    {line}" for line in lines.before_row),
            f"    UNROLL for (int v = 0; v < {vectors}; v++) {{",
            "      const int c = c0 + v * L;",
            *([] if whole else [f"      if (c >= {columns}) continue;"]),
            *(f"      {line}" for line in (*lines.first, *expressions.statements, *lines.last)),
            "    }",
            *(f"    {line}" for line in lines.after_row),
            "  }",
            *(f"  {line}" for line in lines.after_tile),
            "};",
            *_over_tiles(part, rows, columns, tile, split),
        ]
        variables = zip(loop_variables(space)[:-2], space, strict=False)
        outer = [f"for (int {v} = 0; {v} < {n}; {v}++) {{" for v, n in variables]
        return [*part.statements, *outer, *lines.before, *body, *lines.after, *("}" for _ in outer)]

    def _store(self, root: Root, value: str, nest: LoopNest) -> str:
        index = loop_index(root.value.shape)
        if root.value is not root.target and index:
            index[root.axis] = index[root.axis].shift(root.offset)
        element = root.target.squeeze(index)
        value = f"from_mask<vi>({value})" if root.target.dtype == "bool" else value
        if not nest.space:
            return f"store_lane({self._addresses.address(root.target, element)}, {value}, 0);"
        # After a piece's last column come another's: a vector that ends before is stored whole.
        columns, contiguous = nest.space[-1], self._addresses.is_contiguous(root.target, element)
        whole = f"store({self._addresses.address(root.target, element)}, {value});"
        if contiguous and (root.value.shape[-1] == root.target.shape[-1] or columns % self._instructions.lanes == 0):
            return whole
        if not contiguous and (across := self._addresses.across_panels(root.target, element)):
            return f"store_across<{across[0]}>({across[1]}, {value}, {columns} - c);"
        address = self._addresses.address(root.target, element, "(c + lane)")
        lanes = f"for (int lane = 0; lane < L && c + lane < {columns}; lane++) store_lane({address}, {value}, lane);"
        return f"if (c + L <= {columns}) {whole} else {lanes}" if contiguous else lanes

    def _reduce(
        self, root: Root, k: int, value: str, lines: _Lines, nest: LoopNest, tile: Tile,
        tile_vectors: str, part: Partition,
    ) -> None:  # fmt: skip
        kind, dtype, over, space = root.target.params["kind"], root.target.dtype, reduced_variables(root), nest.space
        identity, vector, load = _IDENTITY[dtype][kind], VECTOR[dtype], f"load_{dtype[0]}"
        scratch = self._addresses.start(self._assignment.scratch[root])
        index = loop_index(root.value.shape)
        kept = [axis_index for axis, axis_index in enumerate(index) if axis not in root.target.params["axes"]]
        element = root.target.squeeze(kept)
        target = self._addresses.address(root.target, element)
        if over == {"r"}:
            across = f"for (int c = {part.columns.first}; c < {part.columns.last}; c += L)"
            vectors = f"UNROLL for (int v = 0; v < {tile_vectors}; v++)"
            lines.before.append(f"{across} store({scratch} + c, {identity});")
            lines.before_tile.append(f"{vector} sum{k}[{tile_vectors}];")
            lines.before_tile.append(f"{vectors} sum{k}[v] = {identity};")
            lines.last.append(f"sum{k}[v] = {kind}_(sum{k}[v], {value});")
            in_range = f"{vectors} if (const int c = c0 + v * L; c < {space[-1]})"
            lines.after_tile.append(f"{in_range} store({scratch} + c, {kind}_({load}({scratch} + c), sum{k}[v]));")
            lines.after.append(f"{across} store({target}, {load}({scratch} + c));")
            return
        masked = f"select(valid, {identity}, {value})" if space[-1] % tile.columns and "c" in over else value
        by_row = over == {"c"} and len(space) > 1
        down = f"for (int r = {part.rows.first}; r < {part.rows.last}; r++) " if by_row else ""
        partial = f"{scratch} + r * 16" if by_row else scratch
        lines.before.append(f"{down}store({partial}, {identity});")
        lines.before_row.append(f"{vector} sum{k} = {identity};")
        lines.last.append(f"sum{k} = {kind}_(sum{k}, {masked});")
        lines.after_row.append(f"store({partial}, {kind}_({load}({partial}), sum{k}));")
        if by_row and dtype == "f32" and self._addresses.is_contiguous(root.target, element, "r"):
            combine = f"[](vf a, vf b) {{ return {kind}_(a, b); }}"
            to = f"[&](int r) {{ return {target}; }}"
            lines.after.append(f"across_rows({scratch}, {', '.join(part.rows)}, {space[-2]}, {combine}, {to});")
        else:
            lines.after.append(f"{down}*{_CAST[dtype]}({target}) = {kind}_across({load}({partial}));")


class _Lines:
    """Lines before, in and after the loops of a nest. `last`: stores, which may overwrite what others read."""

    def __init__(self) -> None:
        self.before, self.before_tile, self.before_row = list[str](), list[str](), list[str]()
        self.after, self.after_tile, self.after_row = list[str](), list[str](), list[str]()
        self.first, self.last = list[str](), list[str]()


def _over_tiles(part: Partition, rows: int, columns: int, tile: Tile, split: bool) -> list[str]:
    """The loops over a thread's tiles. If the last columns are split off, a tile has one vector there."""
    first, last = part.columns
    if not split:
        loop = f"for (int c0 = {first}; c0 < {last}; c0 += {tile.columns}) {{"
        return [loop, *_over_rows(part.rows, rows, tile.rows), "}"]
    whole = columns - columns % tile.columns
    end = str(whole) if last == str(columns) else f"min_({last}, {whole})"
    rest = "" if last == str(columns) else f"if ({last} > {whole}) "
    return [
        f"for (int c0 = {first}; c0 < {end}; c0 += {tile.columns}) {{",
        *_over_rows(part.rows, rows, tile.rows, ", 2"),
        "}",
        f"{rest}{{",
        f"  const int c0 = {whole};",
        *_over_rows(part.rows, rows, tile.rows, ", 1"),
        "}",
    ]


def _over_rows(part: Range, rows: int, tile: int, vectors: str = "") -> list[str]:
    call = "compute_rows.template operator()"
    lines = [f"  int i = {part.first};"]
    if rows >= tile:
        lines.append(f"  for (; i + {tile} <= {part.last}; i += {tile}) {call}<{tile}{vectors}>(i, c0);")
    if rows % tile:
        lines.append(f"  if (i < {part.last}) {call}<{rows % tile}{vectors}>(i, c0);")
    return lines


def _describe(nest: LoopNest) -> str:
    size = " x ".join(map(str, nest.space)) or "scalar"
    kind = f"product {size}, depth {nest.product.params['depth']}" if nest.product is not None else f"loops {size}"
    return f"{kind}; roots: {', '.join(root.target.op for root in nest.roots) or 'none'}"
