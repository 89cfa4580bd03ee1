"""From items to the text of a C++ program: one function for each, and one that calls them in order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mepg.native.calls import Calls
from mepg.native.express import VECTOR, Addresses, Expressions
from mepg.native.graph import At, Block, Node, everywhere, place, variables_of
from mepg.native.items import Item, Loops, Operand, Pack, Root, Single
from mepg.native.place import Placement, reduced_variables
from mepg.native.processor import Instructions
from mepg.native.share import Range, Shares, is_shared, shares


@dataclass(frozen=True)
class Tile:
    """What a product computes at once: rows and vectors of columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile_for(item: Loops, instructions: Instructions) -> Tile:
    """As many registers as there are for a product; a row at a time for anything else."""
    columns, lanes = (item.space[-1] if item.space else 1), instructions.lanes
    vectors = min(2, (32 if columns > 16 else 16) // lanes)
    if item.product is None:
        return Tile(1, vectors, lanes)
    # Six rows of a transposed matrix would cross the end of a panel.
    few = 6 if lanes == 8 and not item.operands[0].transposed else 4
    return Tile(16 // vectors if instructions.registers == 32 else few, vectors, lanes)


# What a reduction begins with.
_STARTS = {
    "f32": {"sum": "vf{}", "prod": "all(1.f)", "max": "all(-INFINITY)", "min": "all(INFINITY)"},
    "i32": {"sum": "vi{}", "prod": "all(1)", "max": "all((int)INT32_MIN)", "min": "all((int)INT32_MAX)"},
    "u32": {"sum": "vu{}", "prod": "all(1u)", "max": "vu{}", "min": "all(0xffffffffu)"},
}
_POINTER = {"f32": "", "i32": "(number*)", "u32": "(word*)"}


def program(placement: Placement, instructions: Instructions, threads: int = 1) -> str:
    """The whole C++ text."""
    return _Emitter(placement, instructions, threads).text()


class _Emitter:
    def __init__(self, placement: Placement, instructions: Instructions, threads: int) -> None:
        self._placement, self._instructions, self._threads = placement, instructions, threads
        self._addresses = Addresses(placement)
        self._calls = Calls(self._addresses)
        self._functions: list[str] = []
        self._steps: list[str] = []
        self._branches = 0
        self._unseen: set[str] = set()  # by whom something was written since all threads last met: "first", "all"

    def text(self) -> str:
        self._block(self._placement.fusion.graph.top, [])
        work = self._steps
        if self._threads > 1:
            work = ["const bool done = together([&](const int t, Team& team) {", *work, "});", "if (!done) return 1;"]
        steps = "\n".join(f"  {line}" for line in (*self._inputs(), *work, *self._outputs(), "return 0;"))
        head = "int run(float* S, float* T, const float* const* in, const int64_t* const* which, float* const* out)"
        return "\n\n".join(
            [
                f'#define THREADS {self._threads}\n#include "kernels.h"',
                f'extern "C" int32_t branches = {self._branches}, taken[{max(1, self._branches)}] = {{}};',
                "namespace {",
                *self._functions,
                "}  // namespace",
                f'extern "C" {head} {{\n  Flush flush;\n{steps}\n}}\n',
            ]
        )

    # The order of things

    def _block(self, block: Block, loops: list[str]) -> None:
        for item in (*self._placement.fusion.items[block], *self._placement.ends.get(block, [])):
            if isinstance(item, Loops):
                self._function(item, self._loops(item), _describe(item), loops)
            elif isinstance(item, Pack):
                self._function(item, self._pack(item), item.operand.form, loops)
            elif isinstance(item, Single) and item.node.op == "branch":
                self._branch(item, loops)
            elif isinstance(item, Single) and item.node.op == "loop":
                body = item.node.blocks[0]
                self._meet()
                self._steps.append(self._head(item.node))
                self._block(body, [*loops, body.loop])
                self._meet()
                self._steps.append("}")
                if self._threads > 1 and item.node.settings["length"] is None:
                    self._unseen.add("all")
            elif isinstance(item, Single):
                self._function(item, self._calls.lines(item.node, self._part(item)), item.node.op, loops)

    def _head(self, loop: Node) -> str:
        """How often, and in which order, a loop's body is computed."""
        body, length = loop.blocks[0], loop.settings["length"]
        t = body.loop
        if length is None:  # as long as the last value that it carries is true
            if self._threads > 1:  # all have read it before one writes it
                self._unseen.add("all")
            return f"for (int {t} = 0; one_b({self._addresses.address(body.carried[-1], ())}); {t}++) {{"
        if loop.settings["reverse"]:
            return f"for (int {t} = {length - 1}; {t} >= 0; {t}--) {{"
        return f"for (int {t} = 0; {t} < {length}; {t}++) {{"

    def _function(self, item: Item, body: list[str], comment: str, loops: list[str]) -> None:
        name = f"f{len(self._functions)}"
        parameters = ", ".join(["float* S", "float* T", "const int t", *(f"const int {v}" for v in loops)])
        lines = "\n".join(f"  {line}" for line in body)
        self._functions.append(f"// {comment}\nAPART void {name}({parameters}) {{\n{lines}\n}}")
        if self._threads == 1:
            self._steps.append(f"{name}({', '.join(['S', 'T', '0', *loops])});")
            return
        shared = is_shared(item)
        if shared or "all" in self._unseen:
            self._meet()
        self._steps.append(f"{'' if shared else 'if (t == 0) '}{name}({', '.join(['S', 'T', 't', *loops])});")
        self._unseen.add("all" if shared else "first")

    def _meet(self) -> None:
        """Before this, what other threads have written cannot be read."""
        if self._unseen:
            self._steps.append("team.meet();")
            self._unseen.clear()

    def _branch(self, item: Single, loops: list[str]) -> None:
        which = item.node.arguments[0]
        node, index = self._placement.fusion.resolve(which, everywhere(which.shape))
        *_, last = blocks = item.node.blocks
        self._meet()
        self._steps.append(
            f"switch (within(one_i({self._addresses.address(node, place(node, index))}), {len(blocks)})) {{"
        )
        for k, block in enumerate(blocks):
            self._steps.append("default: {" if block is last else f"case {k}: {{")
            self._steps.append(f"{'if (t == 0) ' if self._threads > 1 else ''}taken[{self._branches}] = 1;")
            self._branches += 1
            if self._threads > 1:  # all have read which branch it is, and its memory may be another's from here on
                self._unseen.add("all")
            self._block(block, loops)
            self._meet()
            self._steps.append("break; }")
        self._steps.append("}")

    def _inputs(self) -> list[str]:
        lines = []
        for k, node in enumerate(self._placement.external):
            if (b := self._placement.buffers[node]).offset >= 0:
                rows = node.shape[0] if node.shape else 1
                width = math.prod(node.shape[1:])
                lines.append(f"bring(in[{k}], which[{k}], {rows}, {width}, {self._addresses.start(b)});")
        return lines

    def _outputs(self) -> list[str]:
        top = self._placement.fusion.graph.top
        lines = []
        for k, node in enumerate(top.outputs[len(top.carried) :]):
            b = self._placement.buffers[node]
            matrices = math.prod(b.dims[:-2])
            lines.append(
                f"to_rows<{b.width}>({self._addresses.start(b)}, {matrices}, {b.rows}, {b.columns}, out[{k}]);"
            )
        return lines

    def _part(self, item: Item) -> list[str]:
        """Which thread of how many, for a call that they share."""
        return ["t", str(self._threads)] if self._threads > 1 and is_shared(item) else []

    # Products

    def _pack(self, item: Pack) -> list[str]:
        operand, node = item.operand, item.node
        source = self._placement.buffers[operand.leaf]
        width = 32 if (operand.rows if operand.form.endswith("transposed") else operand.columns) > 16 else 16
        settings = [source.width, source.rows, *([] if operand.form == "pairs_in_rows" else [width])]
        corner = self._addresses.address(operand.leaf, [*operand.leading, At(), At()])
        to = self._addresses.start(self._placement.buffers[node]) + self._packed(operand, node)
        loops = [
            f"for (int {v} = 0; {v} < {n}; {v}++)"
            for v, n in zip(operand.running, node.settings["lengths"], strict=True)
        ]
        sizes = map(str, (operand.row.offset, operand.rows, operand.columns))
        given = ", ".join([corner, *sizes, to, *self._part(item)])
        return [*loops, f"  pack_{operand.form}<{', '.join(map(str, settings))}>({given});"]

    def _packed(self, operand: Operand, node: Node) -> str:
        lengths, words = node.settings["lengths"], node.settings["words"]
        strides = [words * math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
        return "".join(f" + {v} * {stride}" for v, stride in zip(operand.running, strides, strict=True))

    def _side(self, operand: Operand) -> str:
        """Where an operand's matrix begins."""
        if operand.pack is not None:
            return self._addresses.start(self._placement.buffers[operand.pack]) + self._packed(operand, operand.pack)
        return self._addresses.address(operand.leaf, [*operand.leading, At(), At()])

    def _product(self, item: Loops) -> list[str]:
        """Statements that fill a tile: rows from i on, columns from c0 on."""
        assert item.product is not None
        left, right = item.operands
        kind, depth = (
            ("Pairs", (item.product.settings["depth"] + 1) // 2)
            if left.rounded
            else ("Single", item.product.settings["depth"])
        )
        b, columns = self._placement.buffers[right.leaf], item.product.dims[-1]
        wide, height, down = (
            (b.width, b.rows, right.row.offset) if right.pack is None else ((32 if columns > 16 else 16), depth, 0)
        )
        lines = ["clear(tile);", f"const float* B = {self._side(right)} + panel<{wide}, {height}>({down}, c0);"]
        lines.append(f"const float* A = {self._side(left)};")
        a = self._placement.buffers[left.leaf]
        if left.transposed:
            width, rows, down = (
                (a.width, a.rows, left.row.offset)
                if left.pack is None
                else ((32 if left.columns > 16 else 16), depth, 0)
            )
            start = f"panel<{width}, {rows}>({down}, i + {left.column.offset})"
            return [*lines, f"product<{kind}, 1, {width}, {wide}>(A + {start}, B, {depth}, tile);"]
        width, rows, down = (a.width, a.rows, left.row.offset) if left.pack is None else (16, left.rows, 0)
        call = f"product<{kind}, {width}, 1, {wide}>"
        if depth <= width or (left.pack is None and a.columns <= a.width):
            return [*lines, f"{call}(A + (i + {down}) * {width} + {left.column.offset}, B, {depth}, tile);"]
        lines.append(f"for (int k = 0; k < {depth}; k += {width})")
        count = str(width) if depth % width == 0 else f"({depth} - k < {width} ? {depth} - k : {width})"
        return [*lines, f"  {call}(A + k * {rows} + (i + {down}) * {width}, B + k * {wide}, {count}, tile);"]

    # Loops

    def _loops(self, item: Loops) -> list[str]:
        tile = tile_for(item, self._instructions)
        names, space = variables_of(item.space), item.space
        columns = space[-1] if space else 1
        mine = shares(item, self._threads, (tile.rows, tile.columns))
        expressions, parts = Expressions(self._addresses, item), _Parts()
        if columns % tile.columns and any(root.target.op == "reduce" for root in item.roots):
            parts.each.append(f"const vi inside = upto({columns} - c);")
        roots = list(item.roots)
        if item.product is not None and item.product in self._placement.read:
            roots.insert(0, Root(item.product, item.product))
        for k, root in enumerate(roots):
            value = expressions.value(root.value, everywhere(root.value.shape))
            if root.target.op == "reduce":
                self._reduce(root, k, value, parts, item, tile, mine)
            elif root.target in self._placement.read or root.target.op in ("place", "input"):
                parts.store.append(self._store(root, value, item))
        whole = tile.columns - columns % tile.columns < tile.lanes or columns % tile.columns == 0
        body = [
            "auto rows_from = [&]<int MR>(int i, int c0) __attribute__((always_inline)) {",
            *(
                [f"  vf tile[MR][{tile.vectors}];", *(f"  {line}" for line in self._product(item))]
                if item.product
                else []
            ),
            *(f"  {line}" for line in parts.before_tile),
            "  UNROLL for (int q = 0; q < MR; q++) {",
            "    [[maybe_unused]] const int r = i + q;",
            *(f"    {line}" for line in parts.before_row),
            f"    UNROLL for (int v = 0; v < {tile.vectors}; v++) {{",
            "      const int c = c0 + v * L;",
            *([] if whole else [f"      if (c >= {columns}) continue;"]),
            *(f"      {line}" for line in (*parts.each, *expressions.statements, *parts.store)),
            "    }",
            *(f"    {line}" for line in parts.after_row),
            "  }",
            *(f"  {line}" for line in parts.after_tile),
            "};",
            f"for (int c0 = {mine.columns.first}; c0 < {mine.columns.last}; c0 += {tile.columns}) {{",
            *_over_rows(mine.rows, space[-2] if len(space) > 1 else 1, tile.rows),
            "}",
        ]
        leading = [f"for (int {v} = 0; {v} < {n}; {v}++) {{" for v, n in zip(names[:-2], space, strict=False)]
        return [*mine.statements, *leading, *parts.begin, *body, *parts.finish, *("}" for _ in leading)]

    def _store(self, root: Root, value: str, item: Loops) -> str:
        index = everywhere(root.value.shape)
        if root.value is not root.target and index:
            index[root.axis] = index[root.axis].shift(root.offset)
        places = place(root.target, index)
        value = f"counted<vi>({value})" if root.target.type == "bool" else value
        if not item.space:
            return f"store_lane({self._addresses.address(root.target, places)}, {value}, 0);"
        last = root.value.shape[-1] == root.target.shape[-1]
        if last and self._addresses.neighbours(root.target, places):
            return f"store({self._addresses.address(root.target, places)}, {value});"
        address = self._addresses.address(root.target, places, "(c + lane)")
        return (
            f"for (int lane = 0; lane < L && c + lane < {item.space[-1]}; lane++) store_lane({address}, {value}, lane);"
        )

    def _reduce(self, root: Root, k: int, value: str, parts: _Parts, item: Loops, tile: Tile, mine: Shares) -> None:
        kind, over, space = root.target.settings["kind"], reduced_variables(root), item.space
        start, vector, load = _STARTS[root.target.type][kind], VECTOR[root.target.type], f"load_{root.target.type[0]}"
        scratch = self._addresses.start(self._placement.scratch[root])
        index = everywhere(root.value.shape)
        kept = [at for axis, at in enumerate(index) if axis not in root.target.settings["axes"]]
        to = self._addresses.address(root.target, place(root.target, kept))
        partial = space[-1] % tile.columns
        within = f"select(inside, {start}, {value})" if partial and "c" in over else value
        if over == {"r"}:
            across = f"for (int c = {mine.columns.first}; c < {mine.columns.last}; c += L)"
            parts.begin.append(f"{across} store({scratch} + c, {start});")
            parts.before_tile.append(f"{vector} sum{k}[{tile.vectors}];")
            parts.before_tile.append(f"UNROLL for (int v = 0; v < {tile.vectors}; v++) sum{k}[v] = {start};")
            parts.store.append(f"sum{k}[v] = {kind}_(sum{k}[v], {value});")
            whole = f"UNROLL for (int v = 0; v < {tile.vectors}; v++) if (const int c = c0 + v * L; c < {space[-1]})"
            parts.after_tile.append(f"{whole} store({scratch} + c, {kind}_({load}({scratch} + c), sum{k}[v]));")
            parts.finish.append(f"{across} store({to}, {load}({scratch} + c));")
            return
        by_row = over == {"c"} and len(space) > 1
        down = f"for (int r = {mine.rows.first}; r < {mine.rows.last}; r++) " if by_row else ""
        cell = f"{scratch} + r * 16" if by_row else scratch
        parts.begin.append(f"{down}store({cell}, {start});")
        parts.before_row.append(f"{vector} sum{k} = {start};")
        parts.store.append(f"sum{k} = {kind}_(sum{k}, {within});")
        parts.after_row.append(f"store({cell}, {kind}_({load}({cell}), sum{k}));")
        parts.finish.append(f"{down}*{_POINTER[root.target.type]}({to}) = {kind}_across({load}({cell}));")


class _Parts:
    """Lines around the statements of a body, from the outside in."""

    def __init__(self) -> None:
        self.begin: list[str] = []
        self.before_tile: list[str] = []
        self.before_row: list[str] = []
        self.each: list[str] = []
        self.store: list[str] = []
        self.after_row: list[str] = []
        self.after_tile: list[str] = []
        self.finish: list[str] = []


def _over_rows(mine: Range, rows: int, at_once: int) -> list[str]:
    lines = [f"  int i = {mine.first};"]
    if rows >= at_once:
        lines.append(
            f"  for (; i + {at_once} <= {mine.last}; i += {at_once}) rows_from.template operator()<{at_once}>(i, c0);"
        )
    if rows % at_once:
        lines.append(f"  if (i < {mine.last}) rows_from.template operator()<{rows % at_once}>(i, c0);")
    return lines


def _describe(item: Loops) -> str:
    size = " x ".join(map(str, item.space)) or "one number"
    what = f"product {size}, depth {item.product.settings['depth']}" if item.product is not None else f"loops {size}"
    return f"{what}, leaves {', '.join(root.target.op for root in item.roots) or 'itself'}"
