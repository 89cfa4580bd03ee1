"""A policy as a short list of array operations, from which every export format is written.

The list comes from the jaxpr of the agent's `exploit` for a batch of any size. So every algorithm can be exported, as
long as its policy uses only the primitives below.
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

# The input, float32 [B, S], and the output: B actions of the environment's own shape, float32 or int64.
OBS, ACTION = "obs", "action"


class Operation(NamedTuple):
    """`output = name(*inputs, **attributes)`; names and attributes are those of `standalone.OPERATIONS`."""

    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class PolicyProgram(NamedTuple):
    """Operations in order of execution, and the constant arrays that they use."""

    constants: Arrays
    operations: list[Operation]
    dtype: str  # of the actions: float32 or int64


@with_jax_defaults
def trace(act: Callable[[Any, jax.Array], jax.Array], state: object, obs_size: int) -> PolicyProgram:
    """`act(state, obs)` as a program on observations. Whatever depends on the state alone is computed here."""
    (batch,) = export.symbolic_shape("batch")
    jaxpr = jax.make_jaxpr(act)(state, jax.ShapeDtypeStruct((batch, obs_size), jnp.float32))
    builder = _Builder()
    weights = [builder.constant(array, name) for name, array in flatten(state, "agent").items()]
    (action,) = builder.inline(jaxpr, [*weights, OBS])
    shape = _static_shape(jaxpr.out_avals[0].shape, -1)
    builder.operations.append(Operation("reshape", (action,), ACTION, {"shape": shape}))
    dtype = _DTYPES[jaxpr.out_avals[0].dtype.kind]
    return _without_dead_code(PolicyProgram(builder.constants, builder.operations, dtype))


class _Builder:
    """A program under construction. Every value has a name; a value that is already known is a constant."""

    def __init__(self) -> None:
        self.constants: Arrays = {}
        self.operations: list[Operation] = []

    def constant(self, value: object, name: str | None = None) -> str:
        """Add a constant. Integers become int64, which NumPy and ONNX use for indices and shapes."""
        array = np.asarray(value)
        name = name or f"constant.{len(self.constants)}"
        self.constants[name] = array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array
        return name

    def add(self, name: str, *inputs: str, **attributes: Any) -> str:
        if all(value in self.constants for value in inputs):
            return self.constant(OPERATIONS[name](*(self.constants[value] for value in inputs), **attributes))
        output = f"value.{len(self.operations)}"
        self.operations.append(Operation(name, inputs, output, attributes))
        return output

    def inline(self, function: ClosedJaxpr, inputs: Sequence[str]) -> list[str]:
        constants = [self.constant(value) for value in function.consts]
        return evaluate(function.jaxpr, constants, inputs, lambda literal: self.constant(literal.val), self._apply)

    def _apply(self, equation: Equation, inputs: list[str]) -> list[str]:
        primitive = equation.primitive.name
        if primitive in _CALLS:
            return self.inline(equation.params.get("call_jaxpr") or equation.params["jaxpr"], inputs)
        static = all(None not in _static_shape(var.aval.shape, None) for var in equation.outvars)
        if static and all(name in self.constants for name in inputs):
            values = [
                self.constants[name].astype(var.aval.dtype) for name, var in zip(inputs, equation.invars, strict=True)
            ]
            result = equation.primitive.bind(*values, **equation.params)
            return [self.constant(value) for value in (result if equation.primitive.multiple_results else [result])]
        if primitive in _ELEMENTWISE:
            return [self.add(_ELEMENTWISE[primitive], *inputs)]
        if primitive not in _OPERATIONS:
            raise UsageError(
                f"this policy cannot be exported: it uses JAX's {primitive!r}, which export does not support"
            )
        outputs = _OPERATIONS[primitive](self, equation, *inputs)
        return [outputs] if isinstance(outputs, str) else outputs


_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"}

_ELEMENTWISE = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum",
    "tanh": "tanh", "sqrt": "sqrt", "exp": "exp", "log": "log", "neg": "negative", "lt": "less", "gt": "greater",
}  # fmt: skip


_DTYPES = {"f": "float32", "i": "int64", "u": "int64", "b": "bool"}  # in a program, by NumPy's kind


def _static_shape(shape: Sequence[Any], batch_size: int | None) -> list[Any]:
    """A shape as integers, with `batch_size` for the batch's size, which is symbolic."""
    return [int(length) if isinstance(length, int | np.integer) else batch_size for length in shape]


def _reshape(to: _Builder, equation: Equation, x: str) -> str:
    return to.add("reshape", x, shape=_static_shape(equation.outvars[0].aval.shape, -1))


def _reduce(name: str) -> Callable[[_Builder, Equation, str], str]:
    return lambda to, equation, x: to.add(name, x, axes=_static_shape(equation.params["axes"], None))


def _broadcast(to: _Builder, equation: Equation, x: str) -> str:
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    reshaped = [1] * len(shape)
    for axis, length in zip(axes, _static_shape(equation.invars[0].aval.shape, -1), strict=True):
        reshaped[axis] = length
    x = to.add("reshape", x, shape=reshaped)
    # Expanding an axis to 1 leaves it as it is, so the batch's size is not needed.
    expanded = [1 if old == -1 else new for old, new in zip(reshaped, _static_shape(shape, 1), strict=True)]
    return x if expanded == [1 if old == -1 else old for old in reshaped] else to.add("expand", x, shape=expanded)


def _cast(to: _Builder, equation: Equation, x: str) -> str:
    before, after = (
        _DTYPES[np.dtype(dtype).kind] for dtype in (equation.invars[0].aval.dtype, equation.params["new_dtype"])
    )
    return x if before == after else to.add("cast", x, to=after)


def _split(to: _Builder, equation: Equation, x: str) -> list[str]:
    axis, ends = int(equation.params["axis"]), np.cumsum(equation.params["sizes"])
    starts = [0, *ends[:-1]]
    return [to.add("slice", x, axis=axis, start=int(a), end=int(b)) for a, b in zip(starts, ends, strict=True)]


def _slice(to: _Builder, equation: Equation, x: str) -> str:
    shape, params = equation.invars[0].aval.shape, equation.params
    bounds = zip(shape, params["start_indices"], params["limit_indices"], strict=True)
    for axis, (length, start, end) in enumerate(bounds):
        if (start, end) != (0, length):
            x = to.add("slice", x, axis=axis, start=int(start), end=int(end))
    return x


def _multiply_matrices(to: _Builder, equation: Equation, x: str, y: str) -> str:
    """JAX's `dot_general` as a matrix product, or a batch of them."""
    (x_contracted, y_contracted), (x_batch, y_batch) = equation.params["dimension_numbers"]
    x_shape, y_shape = (_static_shape(var.aval.shape, -1) for var in equation.invars)
    rows = [axis for axis in range(len(x_shape)) if axis not in (*x_contracted, *x_batch)]
    columns = [axis for axis in range(len(y_shape)) if axis not in (*y_contracted, *y_batch)]
    x = _as_matrices(to, x, x_shape, x_batch, rows, x_contracted)
    y = _as_matrices(to, y, y_shape, y_batch, y_contracted, columns)
    product = to.add("matmul", x, y)
    has_shape = len(rows) == len(columns) == 1
    return product if has_shape else _reshape(to, equation, product)


def _as_matrices(
    to: _Builder, x: str, shape: list[int], batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> str:
    """x with the batch's axes in front, then one axis for all of `rows`, and one for all of `columns`."""
    order = [*batch, *rows, *columns]
    if order != sorted(order):
        x = to.add("transpose", x, perm=order)
    if len(rows) == len(columns) == 1:
        return x
    merged = [
        -1 if any(shape[axis] == -1 for axis in axes) else math.prod(shape[axis] for axis in axes)
        for axes in (rows, columns)
    ]
    return to.add("reshape", x, shape=[*(shape[axis] for axis in batch), *merged])


def _gather(to: _Builder, equation: Equation, x: str, index: str) -> str:
    """A gather that is `take_along_axis` with one index for each position on the other axes, to choose an actor."""
    dimensions, shape = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
    axes, indices = dimensions.collapsed_slice_dims, equation.invars[1].aval.shape
    if len(axes) != 1 or dimensions.start_index_map != axes or len(indices) != len(shape):
        raise UsageError("this policy cannot be exported: it uses a gather that export does not support")
    index = to.add("expand", index, shape=_static_shape(shape, 1))
    return to.add("take_along_axis", x, index, axis=int(axes[0]))


_OPERATIONS: dict[str, Callable[..., str | list[str]]] = {
    "argmax": lambda to, equation, x: to.add("argmax", x, axis=int(equation.params["axes"][0])),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda to, equation, *x: to.add("concatenate", *x, axis=int(equation.params["dimension"])),
    "convert_element_type": _cast,
    "dot_general": _multiply_matrices,
    "gather": _gather,
    "reshape": _reshape,
    "rsqrt": lambda to, _, x: to.add("divide", to.constant(np.float32(1)), to.add("sqrt", x)),
    "select_n": lambda to, _, condition, if_false, if_true: to.add("where", condition, if_true, if_false),
    "slice": _slice,
    "split": _split,
    "square": lambda to, _, x: to.add("multiply", x, x),
    "squeeze": _reshape,
    "transpose": lambda to, equation, x: to.add(
        "transpose", x, perm=_static_shape(equation.params["permutation"], None)
    ),
    **dict.fromkeys(("copy", "stop_gradient"), lambda _to, _equation, x: x),
    **{f"reduce_{name}": _reduce(name) for name in ("max", "min", "sum")},
}


def _without_dead_code(program: PolicyProgram) -> PolicyProgram:
    """The program without what the action does not depend on."""
    live, operations = {ACTION}, []
    for operation in reversed(program.operations):
        if operation.output in live:
            live |= {*operation.inputs}
            operations.append(operation)
    constants = {name: array for name, array in program.constants.items() if name in live}
    return program._replace(constants=constants, operations=operations[::-1])
