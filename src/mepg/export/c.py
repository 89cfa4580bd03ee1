"""The C form: one file for a C99 compiler, with a loop for each operation of a program.

It acts on one observation. A value is an array of C or a view of one, so rearranging numbers costs nothing, and
arrays that are no longer read are used again.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mepg.core.types import Sizes
from mepg.export.operations import ACTION, OBS, Operation, Operations
from mepg.export.standalone import run

_KINDS = {"f": "float", "i": "int", "u": "int", "b": "int"}  # of numbers, in NumPy and in C
_NUMBERS_IN_A_LINE = 8


def to_c(program: Operations, sizes: Sizes, about: dict[str, Any]) -> str:
    """A header with a function `policy`, from one observation to one action."""
    writer = _Writer(program, sizes.obs)
    for operation in program.operations:
        writer.values[operation.output] = writer.write(operation)
    action = writer.contiguous(writer.values[ACTION])
    if sizes.action_kind == "discrete":
        heading, size = "int policy(const float *obs)", f"POLICY_ACTIONS {sizes.action}"
        end = [f"return {action.name}[{action.offset}];"]
    else:
        heading, size = "void policy(const float *obs, float *action)", f"POLICY_ACTION {sizes.action}"
        flat = action._replace(shape=(sizes.action,), strides=(1,))
        (i,) = _index(flat.shape)
        end = _nest(flat.shape, f"action[{i}] = {flat.at(i)};")
    steps = _needed(writer.steps, action.name)
    body = _with_places(steps, end)
    used = {*re.findall(r"\w+", "\n".join(body))}
    constants = [line for name, lines in writer.constants.items() if name in used for line in lines]
    lines = [
        "#include <math.h>",
        "",
        f"#define POLICY_OBS {sizes.obs}",
        f"#define {size}",
        "",
        *(line for name, function in _FUNCTIONS.items() if name in used for line in function),
        f"static inline {heading} {{",
        *(f"    {line}" for line in (*constants, *([] if OBS in used else ["(void)obs;"]), *body)),
        "}",
    ]
    # Including the same policy twice is harmless. Another policy gets a guard of its own, so it is not skipped.
    guard = "POLICY_H_" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    said = _comment(", ".join(f"{name} {value}" for name, value in about.items()))
    return "\n".join([said, f"#ifndef {guard}", f"#define {guard}", "", *lines, "", "#endif", ""])


class _Array(NamedTuple):
    """Numbers in an array of C, and where each is."""

    name: str
    kind: str  # float or int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def at(self, *index: str) -> str:
        """The number at an index. Extra axes in front are ignored, and an axis of length 1 is broadcast."""
        terms = [str(self.offset)] if self.offset else []
        for i, length, stride in zip(index[len(index) - len(self.shape) :], self.shape, self.strides, strict=True):
            if length > 1 and stride and i != "0":
                terms.append(i if stride == 1 else f"{stride} * {i}")
        return f"{self.name}[{' + '.join(terms) or 0}]"


class _Step(NamedTuple):
    """Lines that write one array and read others."""

    writes: str
    kind: str
    size: int
    lines: list[str]

    @property
    def reads(self) -> set[str]:
        return {name for line in self.lines for name in _VALUE.findall(line)} - {self.writes}


_VALUE = re.compile(r"\bv\d+\b")


class _Writer:
    """Writes a program as C."""

    def __init__(self, program: Operations, obs_size: int) -> None:
        with np.errstate(all="ignore"):
            seen = run(program.operations, program.constants, np.zeros((1, obs_size), np.float32))
        self.like = {name: np.asarray(value) for name, value in seen.items()}  # the shape and kind of every value
        self.values = {OBS: _array("obs", "float", (1, obs_size))}
        self.constants: dict[str, list[str]] = {}
        self.steps: list[_Step] = []
        for name, numbers in program.constants.items():
            self.values[name] = self.constant(name, numbers)

    def constant(self, name: str, numbers: Any) -> _Array:
        array = _array(f"w{len(self.values)}", _KINDS[numbers.dtype.kind], numbers.shape)
        texts = [_literal(number) for number in numbers.ravel().tolist()]
        rows = [texts[start : start + _NUMBERS_IN_A_LINE] for start in range(0, len(texts), _NUMBERS_IN_A_LINE)]
        self.constants[array.name] = [
            f"static const {array.kind} {array.name}[{numbers.size}] = {{ {_comment(name)}",
            *(f"    {', '.join(row)}," for row in rows),
            "};",
        ]
        return array

    def write(self, operation: Operation) -> _Array:
        like, inputs = self.like[operation.output], [self.values[name] for name in operation.inputs]
        if operation.name in _VIEWS:
            return _VIEWS[operation.name](self, like.shape, *inputs, **operation.attributes)
        output = _array(f"v{len(self.steps)}", _KINDS[like.dtype.kind], like.shape)
        if operation.name in _ELEMENTS:
            index = _index(output.shape)
            numbers = [each.at(*index) for each in inputs]
            element = _ELEMENTS[operation.name].format(*numbers, **operation.attributes)
            lines = _nest(output.shape, f"{output.at(*index)} = {element};")
        else:
            lines = _LOOPS[operation.name](output, *inputs, **operation.attributes)
        return self.add(output, lines)

    def add(self, output: _Array, lines: list[str]) -> _Array:
        self.steps.append(_Step(output.name, output.kind, math.prod(output.shape), lines))
        return output

    def contiguous(self, array: _Array) -> _Array:
        """The same numbers one after the other."""
        plain = _array(f"v{len(self.steps)}", array.kind, array.shape)
        if array.strides == plain.strides:
            return array
        index = _index(array.shape)
        return self.add(plain, _nest(array.shape, f"{plain.at(*index)} = {array.at(*index)};"))


def _needed(steps: list[_Step], result: str) -> list[_Step]:
    """The steps that the result depends on. Where there is one actor, for instance, nobody reads which was chosen."""
    wanted, needed = {result}, []
    for step in reversed(steps):
        if step.writes in wanted:
            wanted |= step.reads
            needed.append(step)
    return needed[::-1]


def _with_places(steps: list[_Step], end: list[str]) -> list[str]:
    """All lines, after the declarations of their arrays. An array that is no longer read is used again."""
    last = {name: number for number, step in enumerate(steps) for name in (step.writes, *step.reads)}
    last |= {name: len(steps) for line in end for name in _VALUE.findall(line)}
    place_of: dict[str, str] = {}
    kinds: dict[str, str] = {}
    sizes: dict[str, int] = {}
    free: list[str] = []
    for number, step in enumerate(steps):
        place = next((name for name in free if kinds[name] == step.kind), f"a{len(kinds)}")
        kinds[place], sizes[place] = step.kind, max(step.size, sizes.get(place, 0))
        place_of[step.writes] = place
        free = [name for name in free if name != place]
        free += [place_of[name] for name in sorted(step.reads) if last[name] == number]
    declared = [f"{kinds[name]} {name}[{size}];" for name, size in sizes.items()]
    lines = [line for step in steps for line in step.lines] + end
    return declared + [_VALUE.sub(lambda name: place_of[name[0]], line) for line in lines]


def _array(name: str, kind: str, shape: tuple[int, ...]) -> _Array:
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return _Array(name, kind, tuple(shape), strides)


def _index(shape: Sequence[int]) -> list[str]:
    return [f"i{axis}" if length > 1 else "0" for axis, length in enumerate(shape)]


def _nest(shape: Sequence[int], *inner: str, names: str = "i") -> list[str]:
    """Loops over every index of a shape, around some lines."""
    loops = [(f"{names}{axis}", length) for axis, length in enumerate(shape) if length != 1]
    heads = [f"for (int {i} = 0; {i} < {n}; {i}++) {{" for i, n in loops]
    indent = ["    " * depth for depth in range(len(loops) + 1)]
    return [
        *(indent[depth] + head for depth, head in enumerate(heads)),
        *(indent[-1] + line for line in inner),
        *(indent[depth] + "}" for depth in reversed(range(len(loops)))),
    ]


def _literal(number: float | int | bool) -> str:
    if isinstance(number, int):
        return str(int(number))
    if not math.isfinite(number):
        return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
    text = f"{number:.9g}"  # nine digits give exactly this float32 back
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def _comment(text: str) -> str:
    """A text that may come from a stranger's file, as a comment that it cannot get out of."""
    return f"/* {''.join(c if c.isascii() and c.isprintable() and c != '*' else '?' for c in text)} */"


# Element by element, in C.
_ELEMENTS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}", "tanh": "tanhf({})",
    "sqrt": "sqrtf({})", "exp": "expf({})", "log": "logf({})", "negative": "-{}", "less": "{} < {}",
    "greater": "{} > {}", "where": "{} ? {} : {}", "maximum": "policy_max({}, {})", "minimum": "policy_min({}, {})",
}  # fmt: skip
_FUNCTIONS = {
    f"policy_{name}": [
        f"static inline float policy_{name}(float x, float y) {{",
        f"    return x {sign} y || x != x ? x : y;",
        "}",
        "",
    ]
    for name, sign in (("max", ">"), ("min", "<"))
}


def _reshape(to: _Writer, now: tuple[int, ...], x: _Array, **_: Any) -> _Array:
    x = to.contiguous(x)
    return _array(x.name, x.kind, now)._replace(offset=x.offset)


def _transpose(_to: _Writer, now: tuple[int, ...], x: _Array, perm: list[int]) -> _Array:
    return x._replace(shape=now, strides=tuple(x.strides[axis] for axis in perm))


def _expand(_to: _Writer, now: tuple[int, ...], x: _Array, **_: Any) -> _Array:
    new = (0,) * (len(now) - len(x.shape))
    kept = (stride if length > 1 else 0 for length, stride in zip(x.shape, x.strides, strict=True))
    return x._replace(shape=now, strides=(*new, *kept))


def _slice(_to: _Writer, now: tuple[int, ...], x: _Array, axis: int, start: int, **_: Any) -> _Array:
    return x._replace(shape=now, offset=x.offset + start * x.strides[axis])


_VIEWS: dict[str, Callable[..., _Array]] = {
    "reshape": _reshape, "transpose": _transpose, "expand": _expand, "slice": _slice,
}  # fmt: skip


def _multiply(output: _Array, x: _Array, y: _Array) -> list[str]:
    """Row by row of the weights, which is how they lie in memory."""
    *outer, column = _index(output.shape)
    across = (1,) * len(outer) + output.shape[-1:]
    number = output.at(*outer, column)
    return _nest(
        output.shape[:-1],
        *_nest(across, f"{number} = 0.0f;"),
        f"for (int k = 0; k < {x.shape[-1]}; k++) {{",
        f"    const float x = {x.at(*outer, 'k')};",
        *(f"    {line}" for line in _nest(across, f"{number} += x * {y.at(*outer[:-1], 'k', column)};")),
        "}",
    )


def _reduce(start: str, more: str) -> Callable[..., list[str]]:
    def lines(output: _Array, x: _Array, axes: list[int]) -> list[str]:
        kept = iter(_index(output.shape))
        index = [f"j{axis}" if axis in axes else next(kept) for axis in range(len(x.shape))]
        first = x.at(*("0" if axis in axes else i for axis, i in enumerate(index)))
        over = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
        number = output.at(*_index(output.shape))
        inner = _nest(over, f"{number} = {more.format(number, x.at(*index))};", names="j")
        return _nest(output.shape, f"{number} = {start.format(first)};", *inner)

    return lines


def _argmax(output: _Array, x: _Array, axis: int) -> list[str]:
    index = _index(output.shape)
    number = output.at(*index)
    here, best = (x.at(*index[:axis], i, *index[axis:]) for i in ("j", number))
    again = f"for (int j = 1; j < {x.shape[axis]}; j++) {{"
    return _nest(output.shape, f"{number} = 0;", again, f"    if ({here} > {best}) {number} = j;", "}")


def _concatenate(output: _Array, *inputs: _Array, axis: int) -> list[str]:
    lines, before = [], 0
    for x in inputs:
        index = _index(x.shape)
        place = output._replace(offset=before * output.strides[axis])
        lines += _nest(x.shape, f"{place.at(*index)} = {x.at(*index)};")
        before += x.shape[axis]
    return lines


def _take(output: _Array, x: _Array, which: _Array, axis: int) -> list[str]:
    index = _index(output.shape)
    there = [f"({which.at(*index)})" if i == axis else each for i, each in enumerate(index)]
    return _nest(output.shape, f"{output.at(*index)} = {x.at(*there)};")


def _cast(output: _Array, x: _Array, to: str) -> list[str]:
    index = _index(output.shape)
    number = x.at(*index)
    changed = f"{number} != 0" if to == "bool" else f"({output.kind}){number}"
    return _nest(output.shape, f"{output.at(*index)} = {changed};")


_LOOPS: dict[str, Callable[..., list[str]]] = {
    "matmul": _multiply,
    "sum": _reduce("0.0f", "{} + {}"),
    "max": _reduce("{}", "policy_max({}, {})"),
    "min": _reduce("{}", "policy_min({}, {})"),
    "argmax": _argmax,
    "concatenate": _concatenate,
    "take_along_axis": _take,
    "cast": _cast,
}
