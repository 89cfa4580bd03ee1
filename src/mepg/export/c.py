"""Export to C: one C99 file, with a loop for each operation of a program.

It takes one observation. A value is a C array or a view of one, so reshaping and transposing cost nothing. Arrays that
are no longer read are reused.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mepg.core.types import Entry, Sizes
from mepg.export.operations import ACTION, OBS, Operation, PolicyProgram
from mepg.export.standalone import run
from mepg.words import many

_C_TYPES = {"f": "float", "i": "int", "u": "int", "b": "int"}  # by NumPy's kind
_NUMBERS_PER_LINE = 8


def to_c(program: PolicyProgram, sizes: Sizes, about: dict[str, Any]) -> str:
    """A header with a function `policy` from one observation to one action, and `about` in a comment."""
    writer = _Writer(program, sizes.obs_width)
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
    steps = _without_dead_code(writer.steps, action.name)
    body = _with_buffers(steps, end)
    used = {*re.findall(r"\w+", "\n".join(body))}
    constants = [line for name, lines in writer.constants.items() if name in used for line in lines]
    lines = [
        "#include <math.h>",
        "",
        f"#define POLICY_OBS {sizes.obs_width}",
        f"#define {size}",
        *_offsets(sizes.named_entries),
        "",
        *(line for name, function in _FUNCTIONS.items() if name in used for line in function),
        f"static inline {heading} {{",
        *(f"    {line}" for line in (*constants, *([] if OBS in used else ["(void)obs;"]), *body)),
        "}",
    ]
    # Including the same policy twice is harmless. Another policy has another guard, so it is not skipped.
    guard = "POLICY_H_" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    comment = _comment(", ".join(f"{name} {value}" for name, value in about.items()))
    return "\n".join([comment, f"#ifndef {guard}", f"#define {guard}", "", *lines, "", "#endif", ""])


def _offsets(entries: Sequence[Entry]) -> list[str]:
    """Where each named entry of an observation begins: the goal at `obs + POLICY_OBS_GOAL`."""
    lines: dict[str, str] = {}
    for entry in entries:
        name = unique = f"POLICY_OBS_{re.sub(r'[^A-Za-z0-9]', '_', entry.name).upper()}"
        while unique in lines:  # of "a.b" and "a_b"
            unique = f"{name}_{len(lines)}"
        comment = _comment(f"{entry.name}: {many(entry.end - entry.start, 'number')}")
        lines[unique] = f"#define {unique} {entry.start} {comment}"
    return list(lines.values())


class _Array(NamedTuple):
    """A C array, or a view of one."""

    name: str
    ctype: str  # float or int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def at(self, *index: str) -> str:
        """The element at an index. Extra axes in front are ignored, and an axis of length 1 is broadcast."""
        terms = [str(self.offset)] if self.offset else []
        for i, length, stride in zip(index[len(index) - len(self.shape) :], self.shape, self.strides, strict=True):
            if length > 1 and stride and i != "0":
                terms.append(i if stride == 1 else f"{stride} * {i}")
        return f"{self.name}[{' + '.join(terms) or 0}]"


class _Step(NamedTuple):
    """Lines of C that write one array and read others."""

    writes: str
    ctype: str
    size: int
    lines: list[str]

    @property
    def reads(self) -> set[str]:
        return {name for line in self.lines for name in _VALUE.findall(line)} - {self.writes}


_VALUE = re.compile(r"\bv\d+\b")


class _Writer:
    """Writes a program as C."""

    def __init__(self, program: PolicyProgram, obs_size: int) -> None:
        with np.errstate(all="ignore"):
            values = run(program.operations, program.constants, np.zeros((1, obs_size), np.float32))
        self.examples = {name: np.asarray(value) for name, value in values.items()}  # for shapes and dtypes
        self.values = {OBS: _array("obs", "float", (1, obs_size))}
        self.constants: dict[str, list[str]] = {}
        self.steps: list[_Step] = []
        for name, numbers in program.constants.items():
            self.values[name] = self.constant(name, numbers)

    def constant(self, name: str, numbers: Any) -> _Array:
        array = _array(f"w{len(self.values)}", _C_TYPES[numbers.dtype.kind], numbers.shape)
        texts = [_literal(number) for number in numbers.ravel().tolist()]
        lines = [texts[start : start + _NUMBERS_PER_LINE] for start in range(0, len(texts), _NUMBERS_PER_LINE)]
        self.constants[array.name] = [
            f"static const {array.ctype} {array.name}[{numbers.size}] = {{ {_comment(name)}",
            *(f"    {', '.join(line)}," for line in lines),
            "};",
        ]
        return array

    def write(self, operation: Operation) -> _Array:
        example, inputs = self.examples[operation.output], [self.values[name] for name in operation.inputs]
        if operation.name in _VIEWS:
            return _VIEWS[operation.name](self, example.shape, *inputs, **operation.attributes)
        output = _array(f"v{len(self.steps)}", _C_TYPES[example.dtype.kind], example.shape)
        if operation.name in _ELEMENTS:
            index = _index(output.shape)
            operands = [array.at(*index) for array in inputs]
            element = _ELEMENTS[operation.name].format(*operands, **operation.attributes)
            lines = _nest(output.shape, f"{output.at(*index)} = {element};")
        else:
            lines = _LOOPS[operation.name](output, *inputs, **operation.attributes)
        return self.add(output, lines)

    def add(self, output: _Array, lines: list[str]) -> _Array:
        self.steps.append(_Step(output.name, output.ctype, math.prod(output.shape), lines))
        return output

    def contiguous(self, array: _Array) -> _Array:
        """The array itself if it is contiguous, otherwise a copy that is."""
        copied = _array(f"v{len(self.steps)}", array.ctype, array.shape)
        if array.strides == copied.strides:
            return array
        index = _index(array.shape)
        return self.add(copied, _nest(array.shape, f"{copied.at(*index)} = {array.at(*index)};"))


def _without_dead_code(steps: list[_Step], result: str) -> list[_Step]:
    """The steps that the result depends on. With a single actor, for example, the index of the best one is not read."""
    live, needed = {result}, []
    for step in reversed(steps):
        if step.writes in live:
            live |= step.reads
            needed.append(step)
    return needed[::-1]


def _with_buffers(steps: list[_Step], end: list[str]) -> list[str]:
    """All lines, after the declarations of their buffers. A buffer is reused after the last read of its value."""
    last_use = {name: number for number, step in enumerate(steps) for name in (step.writes, *step.reads)}
    last_use |= {name: len(steps) for line in end for name in _VALUE.findall(line)}
    buffer_of: dict[str, str] = {}
    ctypes: dict[str, str] = {}
    sizes: dict[str, int] = {}
    free: list[str] = []
    for number, step in enumerate(steps):
        buffer = next((name for name in free if ctypes[name] == step.ctype), f"a{len(ctypes)}")
        ctypes[buffer], sizes[buffer] = step.ctype, max(step.size, sizes.get(buffer, 0))
        buffer_of[step.writes] = buffer
        free = [name for name in free if name != buffer]
        free += [buffer_of[name] for name in sorted(step.reads) if last_use[name] == number]
    declarations = [f"{ctypes[name]} {name}[{size}];" for name, size in sizes.items()]
    lines = [line for step in steps for line in step.lines] + end
    return declarations + [_VALUE.sub(lambda name: buffer_of[name[0]], line) for line in lines]


def _array(name: str, ctype: str, shape: tuple[int, ...]) -> _Array:
    """A contiguous array."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return _Array(name, ctype, tuple(shape), strides)


def _index(shape: Sequence[int]) -> list[str]:
    return [f"i{axis}" if length > 1 else "0" for axis, length in enumerate(shape)]


def _nest(shape: Sequence[int], *inner: str, names: str = "i") -> list[str]:
    """Loops over every index of a shape, around inner lines."""
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
    text = f"{number:.9g}"  # nine digits identify a float32 exactly
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def _comment(text: str) -> str:
    """A comment. The text may come from an untrusted file, so it must not be able to end the comment."""
    return f"/* {''.join(c if c.isascii() and c.isprintable() and c != '*' else '?' for c in text)} */"


# Elementwise operations.
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


def _reshape(to: _Writer, new_shape: tuple[int, ...], x: _Array, **_: Any) -> _Array:
    x = to.contiguous(x)
    return _array(x.name, x.ctype, new_shape)._replace(offset=x.offset)


def _transpose(_to: _Writer, new_shape: tuple[int, ...], x: _Array, perm: list[int]) -> _Array:
    return x._replace(shape=new_shape, strides=tuple(x.strides[axis] for axis in perm))


def _expand(_to: _Writer, new_shape: tuple[int, ...], x: _Array, **_: Any) -> _Array:
    new = (0,) * (len(new_shape) - len(x.shape))
    old = (stride if length > 1 else 0 for length, stride in zip(x.shape, x.strides, strict=True))
    return x._replace(shape=new_shape, strides=(*new, *old))


def _slice(_to: _Writer, new_shape: tuple[int, ...], x: _Array, axis: int, start: int, **_: Any) -> _Array:
    return x._replace(shape=new_shape, offset=x.offset + start * x.strides[axis])


_VIEWS: dict[str, Callable[..., _Array]] = {
    "reshape": _reshape, "transpose": _transpose, "expand": _expand, "slice": _slice,
}  # fmt: skip


def _matmul(output: _Array, x: _Array, y: _Array) -> list[str]:
    """Reads the weights row by row, in the order of memory."""
    *outer, column = _index(output.shape)
    row = (1,) * len(outer) + output.shape[-1:]
    element = output.at(*outer, column)
    return _nest(
        output.shape[:-1],
        *_nest(row, f"{element} = 0.0f;"),
        f"for (int k = 0; k < {x.shape[-1]}; k++) {{",
        f"    const float x = {x.at(*outer, 'k')};",
        *(f"    {line}" for line in _nest(row, f"{element} += x * {y.at(*outer[:-1], 'k', column)};")),
        "}",
    )


def _reduce(initial: str, update: str) -> Callable[..., list[str]]:
    def lines(output: _Array, x: _Array, axes: list[int]) -> list[str]:
        output_index = iter(_index(output.shape))
        index = [f"j{axis}" if axis in axes else next(output_index) for axis in range(len(x.shape))]
        first = x.at(*("0" if axis in axes else i for axis, i in enumerate(index)))
        reduced = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
        element = output.at(*_index(output.shape))
        inner = _nest(reduced, f"{element} = {update.format(element, x.at(*index))};", names="j")
        return _nest(output.shape, f"{element} = {initial.format(first)};", *inner)

    return lines


def _argmax(output: _Array, x: _Array, axis: int) -> list[str]:
    index = _index(output.shape)
    best = output.at(*index)
    value, best_value = (x.at(*index[:axis], i, *index[axis:]) for i in ("j", best))
    loop = f"for (int j = 1; j < {x.shape[axis]}; j++) {{"
    return _nest(output.shape, f"{best} = 0;", loop, f"    if ({value} > {best_value}) {best} = j;", "}")


def _concatenate(output: _Array, *inputs: _Array, axis: int) -> list[str]:
    lines, start = [], 0
    for x in inputs:
        index = _index(x.shape)
        part = output._replace(offset=start * output.strides[axis])
        lines += _nest(x.shape, f"{part.at(*index)} = {x.at(*index)};")
        start += x.shape[axis]
    return lines


def _take_along_axis(output: _Array, x: _Array, indices: _Array, axis: int) -> list[str]:
    index = _index(output.shape)
    source = [f"({indices.at(*index)})" if i == axis else each for i, each in enumerate(index)]
    return _nest(output.shape, f"{output.at(*index)} = {x.at(*source)};")


def _cast(output: _Array, x: _Array, to: str) -> list[str]:
    index = _index(output.shape)
    element = x.at(*index)
    converted = f"{element} != 0" if to == "bool" else f"({output.ctype}){element}"
    return _nest(output.shape, f"{output.at(*index)} = {converted};")


_LOOPS: dict[str, Callable[..., list[str]]] = {
    "matmul": _matmul,
    "sum": _reduce("0.0f", "{} + {}"),
    "max": _reduce("{}", "policy_max({}, {})"),
    "min": _reduce("{}", "policy_min({}, {})"),
    "argmax": _argmax,
    "concatenate": _concatenate,
    "take_along_axis": _take_along_axis,
    "cast": _cast,
}
