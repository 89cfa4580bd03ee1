"""An equation without a lowering rule, decomposed by JAX itself.

JAX adds primitives with every few releases, and lowers each of them to StableHLO, whose operations stay the same. So
the one equation is lowered, and its StableHLO is read back as functions of `jax.lax`, which are old. A new primitive
needs no new code here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.extend.mlir
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from mepg.native.graph import Unsupported

Values = Sequence[Any]


def input_variables(equation: core.JaxprEqn) -> list[core.Var]:
    """The variables that an equation reads, each once."""
    return list(dict.fromkeys(v for v in equation.invars if not isinstance(v, core.Literal)))


def decompose(equation: core.JaxprEqn) -> core.ClosedJaxpr:
    """A jaxpr of its input variables that computes the same. Unsupported names an operation without a rule here."""
    variables = input_variables(equation)
    single = jax.make_jaxpr(lambda: ())().jaxpr.replace(
        invars=variables, outvars=equation.outvars, eqns=[equation], effects=equation.effects
    )
    avals: list[Any] = [variable.aval for variable in variables]
    examples = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    function = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(single, [])), keep_unused=True)
    lowered = function.trace(*examples).lower(lowering_platforms=("cpu",))
    module = lowered.compiler_ir("stablehlo")
    if "chlo." in str(module):  # operations that XLA decomposes
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        with module.context:
            module = ir.Module.parse(jax.extend.mlir.hlo_to_stablehlo(proto))
    return jax.make_jaxpr(_Interpreter(module).main)(*map(_key_words, examples))


def _key_words(example: Any) -> Any:
    """A random key is two words."""
    if jnp.issubdtype(example.dtype, jax.dtypes.prng_key):
        return jax.eval_shape(jax.random.key_data, example)
    return example


class _Interpreter:
    """Evaluates a module's functions with `jax.lax`."""

    def __init__(self, module: Any) -> None:
        self._functions = {str(f.attributes["sym_name"]).strip('"'): f for f in module.body.operations}

    def main(self, *operands: Any) -> Values:
        return self._call("main", operands)

    def _call(self, name: str, operands: Values) -> Values:
        return self._region(self._functions[name].regions[0], operands, {})

    def _region(self, region: Any, operands: Values, outer: dict[Any, Any]) -> Values:
        """The results of a region, which may use the values of the regions around it."""
        block = region.blocks[0]
        values = {**outer, **dict(zip(block.arguments, operands, strict=True))}
        for each in block.operations:
            operation = each.operation
            operands = [values[operand] for operand in operation.operands]
            name = operation.name.split(".")[-1]
            if name == "return":
                return operands
            if name not in _INDEX_ARITHMETIC and any("ui64" in str(result.type) for result in operation.results):
                raise Unsupported("64-bit indices")
            results = self._operation(name, operation, operands, values)
            values.update(zip(operation.results, results, strict=True))
        return []

    def _operation(self, name: str, operation: Any, operands: Values, outer: dict[Any, Any]) -> Values:
        def region(k: int) -> Callable[..., Values]:
            return lambda *operands: self._region(operation.regions[k], operands, outer)

        if name == "custom_call" and operation.attributes["call_target_name"].value == "Sharding":
            name = "sharding_constraint"
        if name in _LAX:
            return [_LAX[name](*operands)]
        if name in ("call", "composite"):
            callee = operation.attributes["callee" if name == "call" else "decomposition"]
            return self._call(str(callee).lstrip("@").strip('"'), operands)
        if name == "while":
            test, body = region(0), region(1)
            return list(
                lax.while_loop(lambda values: test(*values)[0], lambda values: tuple(body(*values)), tuple(operands))
            )
        if name in ("case", "if"):
            branch = operands[0] if name == "case" else jnp.where(operands[0], 0, 1)
            return list(lax.switch(branch, [region(k) for k in range(len(operation.regions))]))
        if name in _WITH_REGION:
            return _WITH_REGION[name](operation, operands, region(0))
        if name in _WITH_ATTRIBUTES:
            return [_WITH_ATTRIBUTES[name](operation, *operands)]
        target = operation.attributes["call_target_name"] if name == "custom_call" else ""
        raise Unsupported(f"{name} {target}".strip())


# Operations that jax.lax has under another name

_LAX: dict[str, Callable[..., Any]] = {
    "abs": lax.abs, "add": lax.add, "and": lax.bitwise_and, "atan2": lax.atan2, "cbrt": lax.cbrt, "ceil": lax.ceil,
    "clamp": lax.clamp, "cosine": lax.cos, "count_leading_zeros": lax.clz, "divide": lax.div, "erf": lax.erf,
    "exponential": lax.exp, "exponential_minus_one": lax.expm1, "floor": lax.floor, "is_finite": lax.is_finite,
    "log": lax.log, "log_plus_one": lax.log1p, "logistic": lax.logistic, "maximum": lax.max, "minimum": lax.min,
    "multiply": lax.mul, "negate": lax.neg, "not": lax.bitwise_not, "optimization_barrier": lambda x: x,
    "or": lax.bitwise_or, "popcnt": lax.population_count, "power": lax.pow, "remainder": lax.rem,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "rsqrt": lax.rsqrt,
    "select": lax.select, "sharding_constraint": lambda x: x, "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic, "shift_right_logical": lax.shift_right_logical,
    "sign": lax.sign, "sine": lax.sin, "sqrt": lax.sqrt, "subtract": lax.sub, "tan": lax.tan, "tanh": lax.tanh,
    "xor": lax.bitwise_xor,
}  # fmt: skip
_DTYPES = {"f32": jnp.float32, "i32": jnp.int32, "ui32": jnp.uint32, "i1": jnp.bool_, "ui64": jnp.uint32}
# Random bits count an array's elements in 64 bits, of which 32 are always enough. They use these operations only.
_INDEX_ARITHMETIC = {"add", "broadcast_in_dim", "constant", "iota", "multiply", "reshape", "shift_right_logical"}


def _dtype(operation: Any) -> Any:
    """The dtype of a result. Others than these would silently become one of them."""
    name = str(ir.RankedTensorType(operation.results[0].type).element_type)
    if name not in _DTYPES:
        raise Unsupported(name)
    return _DTYPES[name]


def _shape(operation: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(operation.results[0].type).shape)


def _integers(operation: Any, name: str) -> list[Any]:
    """An attribute that is a list of integers."""
    attributes = operation.attributes
    return np.array(attributes[name]).tolist() if name in attributes else []


def _constant(operation: Any) -> Any:
    value = operation.attributes["value"]
    if value.is_splat:
        return jnp.full(_shape(operation), value.get_splat_value().value, _dtype(operation))
    return jnp.asarray(np.array(value), _dtype(operation)).reshape(_shape(operation))


def _compare(operation: Any, a: Any, b: Any) -> Any:
    attributes = operation.attributes
    direction = str(attributes["comparison_direction"]).split()[-1].strip(">").lower()
    order = str(attributes["compare_type"]) if "compare_type" in attributes else ""
    if "TOTALORDER" in order:  # -NaN, -inf, ..., -0, 0, ..., inf, NaN: the order of their bits as integers
        a, b = (lax.bitcast_convert_type(x, jnp.int32) for x in (a, b))
        a, b = (x ^ ((x >> 31) & 0x7FFFFFFF) for x in (a, b))
    return getattr(lax, direction)(a, b)


def _pad(operation: Any, x: Any, value: Any) -> Any:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (_integers(operation, name) for name in names)
    return lax.pad(x, value, tuple(zip(low, high, interior, strict=True)))


def _dot_general(operation: Any, a: Any, b: Any) -> Any:
    d = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    contracting = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
    return lax.dot_general(a, b, (contracting, (list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions))))


def _gather(operation: Any, x: Any, indices: Any) -> Any:
    d = stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    dimensions = lax.GatherDimensionNumbers(
        tuple(d.offset_dims), tuple(d.collapsed_slice_dims), tuple(d.start_index_map),
        tuple(d.operand_batching_dims), tuple(d.start_indices_batching_dims),
    )  # fmt: skip
    indices = _index_vectors(indices, d.index_vector_dim)
    return lax.gather(x, indices, dimensions, _integers(operation, "slice_sizes"), mode="clip")


def _index_vectors(indices: Any, axis: int) -> Any:
    """Indices as jax.lax wants them: the last axis is that of the vectors."""
    return indices[..., None] if axis == indices.ndim else jnp.moveaxis(indices, axis, -1)


def _scatter(operation: Any, operands: Values, combine: Callable[..., Values]) -> Values:
    if len(operands) != 3:
        raise Unsupported("scatter of several arrays")
    x, indices, updates = operands
    d = stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
    dimensions = lax.ScatterDimensionNumbers(
        tuple(d.update_window_dims), tuple(d.inserted_window_dims), tuple(d.scattered_dims_to_operand_dims),
        tuple(d.input_batching_dims), tuple(d.scatter_indices_batching_dims),
    )  # fmt: skip
    function = {
        "second": lax.scatter, "add": lax.scatter_add, "mul": lax.scatter_mul, "min": lax.scatter_min,
        "max": lax.scatter_max,
    }.get(_single_primitive(combine, x.dtype))  # fmt: skip
    if function is None:
        raise Unsupported("scatter by another function")
    return [function(x, _index_vectors(indices, d.index_vector_dim), updates, dimensions, mode="drop")]


def _sort(operation: Any, operands: Values, compare: Callable[..., Values]) -> Values:
    """The comparison itself is called, to find out which operands are keys."""

    def less(k: int, a: int, b: int) -> bool:
        """Whether rows that differ in operand k only compare so."""
        scalars = [np.zeros((), x.dtype) for x in operands for _ in "ab"]
        scalars[2 * k : 2 * k + 2] = (np.array(n, operands[k].dtype) for n in (a, b))
        with jax.ensure_compile_time_eval():
            return bool(compare(*scalars)[0])

    ascending = [less(k, 0, 1) and not less(k, 1, 0) for k in range(len(operands))]
    keys = ascending.index(False) if False in ascending else len(ascending)
    if not keys or any(less(k, 0, 1) or less(k, 1, 0) for k in range(keys, len(operands))):
        raise Unsupported("sort in another order")
    return lax.sort(tuple(operands), dimension=operation.attributes["dimension"].value, num_keys=keys)


def _single_primitive(combine: Callable[..., Values], dtype: Any) -> str:
    """The name of the one primitive that a function of two scalars is; "second" if it returns the second."""
    scalar = jax.ShapeDtypeStruct((), dtype)
    traced = jax.make_jaxpr(lambda a, b: combine(a, b)[0])(scalar, scalar).jaxpr
    if not traced.eqns and traced.outvars == traced.invars[1:]:
        return "second"
    single = len(traced.eqns) == 1 and traced.eqns[0].invars == traced.invars
    return str(traced.eqns[0].primitive.name) if single else ""


def _reduce(operation: Any, operands: Values, combine: Callable[..., Values]) -> Values:
    return _reduce_axes(operands, _integers(operation, "dimensions"), combine)


def _reduce_axes(operands: Values, axes: list[int], combine: Callable[..., Values]) -> Values:
    """By any function: a reduction of jax.numpy if there is one, otherwise element by element."""
    arrays, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    known: dict[str, Callable[..., Any]] = {
        "add": jnp.sum, "mul": jnp.prod, "min": jnp.min, "max": jnp.max, "or": jnp.any, "and": jnp.all,
    }  # fmt: skip
    if len(arrays) == 1 and (function := known.get(_single_primitive(combine, arrays[0].dtype))):
        return combine(function(arrays[0], axis=tuple(axes)).astype(arrays[0].dtype), inits[0])
    rest = [a for a in range(arrays[0].ndim) if a not in axes]
    shape = [arrays[0].shape[a] for a in rest]
    xs = tuple(lax.transpose(x, [*axes, *rest]).reshape(-1, math.prod(shape)) for x in arrays)
    results, _ = lax.scan(_scan_body(combine), tuple(jnp.full(math.prod(shape), x) for x in inits), xs)
    return [x.reshape(shape) for x in results]


def _scan_body(combine: Callable[..., Values]) -> Callable[[Values, Values], tuple[Any, Any]]:
    """The body of a scan that combines arrays, element by element."""
    elementwise: Callable[..., Values] = jax.vmap(lambda *scalars: tuple(combine(*scalars)))

    def body(carried: Values, x: Values) -> tuple[Any, Any]:
        new = elementwise(*carried, *x)
        return new, new

    return body


def _reduce_window(operation: Any, operands: Values, combine: Callable[..., Values]) -> Values:
    arrays, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    window, rank = _integers(operation, "window_dimensions"), arrays[0].ndim
    strides, base_dilation, window_dilation = (
        _integers(operation, name) or [1] * rank for name in ("window_strides", "base_dilations", "window_dilations")
    )
    padding = _integers(operation, "padding") or [[0, 0]] * rank
    axes = [axis for axis, size in enumerate(window) if size > 1]
    if len(axes) == 1 and not {*strides, *base_dilation, *window_dilation} - {1}:
        axis, n = axes[0], window[axes[0]]
        if n == arrays[0].shape[axis] and padding[axis] in ([n - 1, 0], [0, n - 1]):  # a prefix or suffix for each
            return _cumulative(arrays, inits, axis, combine, reverse=padding[axis] == [0, n - 1])
    config = tuple((low, high, step - 1) for (low, high), step in zip(padding, base_dilation, strict=True))
    arrays = [lax.pad(x, init, config) for x, init in zip(arrays, inits, strict=True)]
    arrays = [_windows(x, range(rank), window, strides, window_dilation) for x in arrays]
    return _reduce_axes([*arrays, *inits], list(range(rank, 2 * rank)), combine)


def _cumulative(arrays: Values, inits: Values, axis: int, combine: Callable[..., Values], *, reverse: bool) -> Values:
    """Like cumsum, by any function."""
    moved = [jnp.moveaxis(x, axis, 0) for x in arrays]
    xs = tuple(x.reshape(len(x), -1) for x in moved)
    carry = tuple(jnp.full(x.shape[1], init) for x, init in zip(xs, inits, strict=True))
    _, results = lax.scan(_scan_body(combine), carry, xs, reverse=reverse)
    return [jnp.moveaxis(y.reshape(x.shape), 0, axis) for y, x in zip(results, moved, strict=True)]


def _windows(x: Any, axes: Iterable[int], sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> Any:
    """Windows along some axes: these become the windows, and the elements of a window are new axes at the end."""
    for axis, size, stride, step in zip(axes, sizes, strides, dilation, strict=True):
        count = (x.shape[axis] - (size - 1) * step - 1) // stride + 1
        indices = np.arange(count)[:, None] * stride + np.arange(size) * step
        x = jnp.moveaxis(jnp.take(x, jnp.asarray(indices), axis=axis), axis + 1, -1)
    return x


def _convolution(operation: Any, x: Any, kernel: Any) -> Any:
    """Windows, and a product with the kernel for each group of channels."""
    attributes = operation.attributes
    d = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    if any(_integers(operation, "window_reversal")):
        raise Unsupported("a convolution with a reversed window")
    x = lax.transpose(x, [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions])
    kernel = lax.transpose(
        kernel, [d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *d.kernel_spatial_dimensions]
    )
    rank = x.ndim - 2
    strides, base_dilation, window_dilation = (
        _integers(operation, name) or [1] * rank for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    padding = _integers(operation, "padding") or [[0, 0]] * rank
    config = [(0, 0, 0)] * 2 + [(low, high, step - 1) for (low, high), step in zip(padding, base_dilation, strict=True)]
    x = lax.pad(x, jnp.zeros((), x.dtype), config)
    x = _windows(x, range(2, rank + 2), kernel.shape[2:], strides, window_dilation)
    groups, batches = attributes["feature_group_count"].value, attributes["batch_group_count"].value
    sides = zip(
        jnp.split(x, groups, axis=1) if groups > 1 else jnp.split(x, batches, axis=0),
        jnp.split(kernel, max(groups, batches), axis=0),
        strict=True,
    )
    contracting = [1, *range(rank + 2, 2 * rank + 2)], [1, *range(2, rank + 2)]
    result = jnp.concatenate([lax.dot_general(a, b, (contracting, ((), ()))) for a, b in sides], axis=-1)
    order = [d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension]
    return lax.transpose(result, [order.index(a) for a in range(rank + 2)])


_WITH_REGION: dict[str, Callable[..., Values]] = {
    "reduce": _reduce, "reduce_window": _reduce_window, "scatter": _scatter, "sort": _sort,
}  # fmt: skip
_WITH_ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "compare": _compare, "constant": _constant, "convolution": _convolution, "dot_general": _dot_general,
    "gather": _gather, "pad": _pad,
    "bitcast_convert": lambda op, x: lax.bitcast_convert_type(x, _dtype(op)),
    "broadcast_in_dim": lambda op, x: lax.broadcast_in_dim(x, _shape(op), _integers(op, "broadcast_dimensions")),
    "concatenate": lambda op, *pieces: lax.concatenate(pieces, op.attributes["dimension"].value),
    "convert": lambda op, x: lax.convert_element_type(x, _dtype(op)),
    "dynamic_slice": lambda op, x, *starts: lax.dynamic_slice(x, starts, _integers(op, "slice_sizes")),
    "dynamic_update_slice": lambda _, x, update, *starts: lax.dynamic_update_slice(x, update, starts),
    "iota": lambda op: lax.broadcasted_iota(_dtype(op), _shape(op), op.attributes["iota_dimension"].value),
    "reduce_precision": lambda op, x: lax.reduce_precision(
        x, op.attributes["exponent_bits"].value, op.attributes["mantissa_bits"].value
    ),
    "reshape": lambda op, x: lax.reshape(x, _shape(op)),
    "reverse": lambda op, x: lax.rev(x, _integers(op, "dimensions")),
    "slice": lambda op, x: lax.slice(x, *(_integers(op, k) for k in ("start_indices", "limit_indices", "strides"))),
    "transpose": lambda op, x: lax.transpose(x, _integers(op, "permutation")),
}  # fmt: skip
