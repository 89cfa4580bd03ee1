"""A policy as a short list of operations on arrays, which every form of export is written from.

Nobody writes such a list: it is what JAX sees when the agent's own `exploit` acts on a batch of any size. So an
algorithm that acts at all exports too, as long as its policy is made of the operations below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend.core import ClosedJaxpr

from mepg.errors import UsageError
from mepg.export.standalone import OPERATIONS
from mepg.jax_defaults import with_jax_defaults
from mepg.native.lowering import evaluate
from mepg.storage.checkpoint import flatten
from mepg.storage.files import Arrays

Equation = Any  # jax.extend.core.JaxprEqn, whose variables are not known to have shapes

# What goes in, float32 [B, S], and what comes out: B actions of the environment's own shape, float32 or int64.
OBS, ACTION = "obs", "action"


class Operation(NamedTuple):
    """`output = name(*inputs, **attributes)`; names and attributes are those of `standalone.OPERATIONS`."""

    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class Operations(NamedTuple):
    """Operations in the order in which they are carried out, and the arrays that they need beside observations."""

    constants: Arrays
    operations: list[Operation]
    kind: str  # of the numbers that come out: float32 or int64


@with_jax_defaults
def trace(act: Callable[[Any, jax.Array], jax.Array], state: Any, obs_size: int) -> Operations:
    """What `act(state, obs)` does to observations. Whatever depends on the state alone is computed here and now."""
    (batch,) = export.symbolic_shape("batch")
    seen = jax.make_jaxpr(act)(state, jax.ShapeDtypeStruct((batch, obs_size), jnp.float32))
    builder = _Builder()
    weights = [builder.keep(array, name) for name, array in flatten(state, "agent").items()]
    (action,) = builder.inline(seen, [*weights, OBS])
    shape = _lengths(seen.out_avals[0].shape, -1)
    builder.operations.append(Operation("reshape", (action,), ACTION, {"shape": shape}))
    return _needed(Operations(builder.constants, builder.operations, _KINDS[seen.out_avals[0].dtype.kind]))


class _Builder:
    """A program under construction. Every value has a name; one that is already known is a constant."""

    def __init__(self) -> None:
        self.constants: Arrays = {}
        self.operations: list[Operation] = []

    def keep(self, value: Any, name: str | None = None) -> str:
        """A constant; whole numbers are of 64 bits, which is what NumPy and ONNX count in."""
        array = np.asarray(value)
        name = name or f"constant.{len(self.constants)}"
        self.constants[name] = array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array
        return name

    def add(self, name: str, *inputs: str, **attributes: Any) -> str:
        if all(each in self.constants for each in inputs):
            return self.keep(OPERATIONS[name](*(self.constants[each] for each in inputs), **attributes))
        output = f"value.{len(self.operations)}"
        self.operations.append(Operation(name, inputs, output, attributes))
        return output

    def inline(self, function: ClosedJaxpr, inputs: Sequence[str]) -> list[str]:
        constants = [self.keep(value) for value in function.consts]
        return evaluate(function.jaxpr, constants, inputs, lambda literal: self.keep(literal.val), self._apply)

    def _apply(self, equation: Equation, inputs: list[str]) -> list[str]:
        primitive = equation.primitive.name
        if primitive in _CALLS:
            return self.inline(equation.params.get("call_jaxpr") or equation.params["jaxpr"], inputs)
        known_size = all(_lengths(var.aval.shape, None).count(None) == 0 for var in equation.outvars)
        if known_size and all(name in self.constants for name in inputs):
            values = [
                self.constants[name].astype(var.aval.dtype) for name, var in zip(inputs, equation.invars, strict=True)
            ]
            result = equation.primitive.bind(*values, **equation.params)
            return [self.keep(value) for value in (result if equation.primitive.multiple_results else [result])]
        if primitive in _SAME:
            return [self.add(_SAME[primitive], *inputs)]
        if primitive not in _OPERATIONS:
            raise UsageError(f"this policy cannot be exported: it uses JAX's {primitive!r}, which export does not know")
        outputs = _OPERATIONS[primitive](self, equation, *inputs)
        return [outputs] if isinstance(outputs, str) else outputs


_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"}

# Element by element, with the same meaning everywhere.
_SAME = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum",
    "tanh": "tanh", "sqrt": "sqrt", "exp": "exp", "log": "log", "neg": "negative", "lt": "less", "gt": "greater",
}  # fmt: skip


_KINDS = {"f": "float32", "i": "int64", "u": "int64", "b": "bool"}  # of numbers, as NumPy and ONNX have them here


def _lengths(shape: Sequence[Any], of_batch: Any) -> list[Any]:
    """A shape as plain numbers; the batch's length, not known yet, is `of_batch`."""
    return [int(length) if isinstance(length, int | np.integer) else of_batch for length in shape]


def _reshape(to: _Builder, equation: Equation, x: str) -> str:
    return to.add("reshape", x, shape=_lengths(equation.outvars[0].aval.shape, -1))


def _reduce(name: str) -> Callable[[_Builder, Equation, str], str]:
    return lambda to, equation, x: to.add(name, x, axes=_lengths(equation.params["axes"], None))


def _broadcast(to: _Builder, equation: Equation, x: str) -> str:
    shape, kept = equation.params["shape"], equation.params["broadcast_dimensions"]
    before = equation.invars[0].aval.shape
    placed = [1] * len(shape)
    for axis, length in zip(kept, _lengths(before, -1), strict=True):
        placed[axis] = length
    x = to.add("reshape", x, shape=placed)
    # Expanding by 1 changes no length, so the batch's is never needed.
    wanted = [1 if was == -1 else length for was, length in zip(placed, _lengths(shape, 1), strict=True)]
    return x if wanted == [1 if was == -1 else was for was in placed] else to.add("expand", x, shape=wanted)


def _cast(to: _Builder, equation: Equation, x: str) -> str:
    before, after = (
        _KINDS[np.dtype(kind).kind] for kind in (equation.invars[0].aval.dtype, equation.params["new_dtype"])
    )
    return x if before == after else to.add("cast", x, to=after)


def _split(to: _Builder, equation: Equation, x: str) -> list[str]:
    axis, ends = int(equation.params["axis"]), np.cumsum(equation.params["sizes"])
    starts = [0, *ends[:-1]]
    return [to.add("slice", x, axis=axis, start=int(a), end=int(b)) for a, b in zip(starts, ends, strict=True)]


def _slice(to: _Builder, equation: Equation, x: str) -> str:
    shape, of = equation.invars[0].aval.shape, equation.params
    for axis, (length, start, end) in enumerate(zip(shape, of["start_indices"], of["limit_indices"], strict=True)):
        if (start, end) != (0, length):
            x = to.add("slice", x, axis=axis, start=int(start), end=int(end))
    return x


def _multiply_matrices(to: _Builder, equation: Equation, x: str, y: str) -> str:
    """JAX's `dot_general` as a matrix product, or a stack of them; mostly it is the weights that are rearranged."""
    (x_summed, y_summed), (x_several, y_several) = equation.params["dimension_numbers"]
    x_shape, y_shape = (_lengths(var.aval.shape, -1) for var in equation.invars)
    rows = [axis for axis in range(len(x_shape)) if axis not in (*x_summed, *x_several)]
    columns = [axis for axis in range(len(y_shape)) if axis not in (*y_summed, *y_several)]
    x = _arrange(to, x, x_shape, x_several, rows, x_summed)
    y = _arrange(to, y, y_shape, y_several, y_summed, columns)
    product = to.add("matmul", x, y)
    plain = len(rows) == len(columns) == 1
    return product if plain else _reshape(to, equation, product)


def _arrange(to: _Builder, x: str, shape: list[int], *parts: Sequence[int]) -> str:
    """x with its axes in the order of `parts`: each axis of the first stays, those of each other become one axis."""
    several, rows, columns = parts
    order = [*several, *rows, *columns]
    if order != sorted(order):
        x = to.add("transpose", x, perm=order)
    if len(rows) == len(columns) == 1:
        return x
    merged = [
        -1 if any(shape[axis] == -1 for axis in part) else math.prod(shape[axis] for axis in part) for part in parts[1:]
    ]
    return to.add("reshape", x, shape=[*(shape[axis] for axis in several), *merged])


def _gather(to: _Builder, equation: Equation, x: str, index: str) -> str:
    """`take_along_axis` with one index for each place along the other axes, which is what choosing an actor needs."""
    how, shape = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
    indices = equation.invars[1].aval.shape
    if (
        len(how.collapsed_slice_dims) != 1
        or how.start_index_map != how.collapsed_slice_dims
        or len(indices) != len(shape)
    ):
        raise UsageError(
            "this policy cannot be exported: it picks numbers out of an array in a way export does not know"
        )
    index = to.add("expand", index, shape=_lengths(shape, 1))
    return to.add("take_along_axis", x, index, axis=int(how.collapsed_slice_dims[0]))


_OPERATIONS: dict[str, Callable[..., str | list[str]]] = {
    "argmax": lambda to, equation, x: to.add("argmax", x, axis=int(equation.params["axes"][0])),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda to, equation, *x: to.add("concatenate", *x, axis=int(equation.params["dimension"])),
    "convert_element_type": _cast,
    "dot_general": _multiply_matrices,
    "gather": _gather,
    "reshape": _reshape,
    "rsqrt": lambda to, _, x: to.add("divide", to.keep(np.float32(1)), to.add("sqrt", x)),
    "select_n": lambda to, _, condition, if_not, if_so: to.add("where", condition, if_so, if_not),
    "slice": _slice,
    "split": _split,
    "square": lambda to, _, x: to.add("multiply", x, x),
    "squeeze": _reshape,
    "transpose": lambda to, equation, x: to.add("transpose", x, perm=_lengths(equation.params["permutation"], None)),
    **dict.fromkeys(("copy", "stop_gradient"), lambda _to, _equation, x: x),
    **{f"reduce_{name}": _reduce(name) for name in ("max", "min", "sum")},
}


def _needed(program: Operations) -> Operations:
    """The program without what the action does not depend on."""
    wanted, operations = {ACTION}, []
    for operation in reversed(program.operations):
        if operation.output in wanted:
            wanted |= {*operation.inputs}
            operations.append(operation)
    constants = {name: array for name, array in program.constants.items() if name in wanted}
    return program._replace(constants=constants, operations=operations[::-1])
