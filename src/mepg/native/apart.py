"""An equation that has no C++, taken apart by JAX itself.

JAX adds primitives with every few releases, and lowers each of them to StableHLO, whose operations stay. So the one
equation is lowered, and what comes out is read back as functions of `jax.lax`: those have been there for long. A new
primitive costs nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


def inputs(equation: Any) -> list[Any]:
    """The variables that an equation reads, each once."""
    return list(dict.fromkeys(v for v in equation.invars if not isinstance(v, core.Literal)))


def take_apart(equation: Any) -> Any:
    """A closed jaxpr of its inputs that computes the same. Unsupported names an operation that is not known."""
    variables = inputs(equation)
    alone = jax.make_jaxpr(lambda: ())().jaxpr.replace(
        invars=variables, outvars=equation.outvars, eqns=[equation], effects=equation.effects
    )
    examples = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]
    function = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(alone, [])), keep_unused=True)
    lowered = function.trace(*examples).lower(lowering_platforms=("cpu",))
    module = lowered.compiler_ir("stablehlo")
    if "chlo." in str(module):  # operations that XLA takes apart on its way
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        with module.context:
            module = ir.Module.parse(jax.extend.mlir.hlo_to_stablehlo(proto))
    words = [_key_words(each) for each in examples]
    return jax.make_jaxpr(_Reader(module).main)(*words)


def _key_words(example: Any) -> Any:
    """A random key is two words."""
    if jnp.issubdtype(example.dtype, jax.dtypes.prng_key):
        return jax.eval_shape(jax.random.key_data, example)
    return example


class _Reader:
    """Computes what a module's functions compute, with `jax.lax`."""

    def __init__(self, module: Any) -> None:
        self._functions = {str(f.attributes["sym_name"]).strip('"'): f for f in module.body.operations}

    def main(self, *given: Any) -> Values:
        return self._call("main", given)

    def _call(self, name: str, given: Values) -> Values:
        return self._region(self._functions[name].regions[0], given, {})

    def _region(self, region: Any, given: Values, around: dict[Any, Any]) -> Values:
        """What a region returns. It sees the values around it."""
        block = region.blocks[0]
        values = {**around, **dict(zip(block.arguments, given, strict=True))}
        for each in block.operations:
            operation = each.operation
            operands = [values[operand] for operand in operation.operands]
            name = operation.name.split(".")[-1]
            if name == "return":
                return operands
            if name not in _COUNTING and any("ui64" in str(result.type) for result in operation.results):
                raise Unsupported("64-bit numbers")
            results = self._operation(name, operation, operands, values)
            values.update(zip(operation.results, results, strict=True))
        return []

    def _operation(self, name: str, operation: Any, given: Values, around: dict[Any, Any]) -> Values:
        def inside(which: int) -> Callable[..., Values]:
            return lambda *given: self._region(operation.regions[which], given, around)

        if name == "custom_call" and operation.attributes["call_target_name"].value == "Sharding":
            name = "sharding_constraint"
        if name in _SAME:
            return [_SAME[name](*given)]
        if name in ("call", "composite"):
            callee = operation.attributes["callee" if name == "call" else "decomposition"]
            return self._call(str(callee).lstrip("@").strip('"'), given)
        if name == "while":
            test, step = inside(0), inside(1)
            found = lax.while_loop(lambda values: test(*values)[0], lambda values: tuple(step(*values)), tuple(given))
            return list(found)
        if name in ("case", "if"):
            which = given[0] if name == "case" else jnp.where(given[0], 0, 1)
            return list(lax.switch(which, [inside(k) for k in range(len(operation.regions))]))
        if name in ("reduce", "reduce_window", "scatter", "sort"):
            several: Callable[..., Values] = globals()[f"_{name}"]
            return several(operation, given, inside(0))
        function: Callable[..., Any] | None = globals().get(f"_op_{name}")
        if function is None:
            target = operation.attributes["call_target_name"] if name == "custom_call" else ""
            raise Unsupported(f"{name} {target}".strip())
        return [function(operation, *given)]


# Operations that are functions of jax.lax by another name

_SAME: dict[str, Callable[..., Any]] = {
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
_TYPES = {"f32": jnp.float32, "i32": jnp.int32, "ui32": jnp.uint32, "i1": jnp.bool_, "ui64": jnp.uint32}
# Random bits count an array's elements in 64 bits, of which 32 are always enough. These operations do that and no more.
_COUNTING = {"add", "broadcast_in_dim", "constant", "iota", "multiply", "reshape", "shift_right_logical"}


def _type(value: Any) -> Any:
    """The type of a value's elements. Others than these would silently become one of them."""
    name = str(ir.RankedTensorType(value.type).element_type)
    if name not in _TYPES:
        raise Unsupported(name)
    return _TYPES[name]


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _numbers(operation: Any, name: str) -> list[Any]:
    """Whole numbers that an operation has for settings."""
    attributes = operation.attributes
    return np.array(attributes[name]).tolist() if name in attributes else []


def _op_constant(operation: Any) -> Any:
    attribute, result = operation.attributes["value"], operation.results[0]
    if attribute.is_splat:
        return jnp.full(_shape(result), attribute.get_splat_value().value, _type(result))
    return jnp.asarray(np.array(attribute), _type(result)).reshape(_shape(result))


def _op_iota(operation: Any) -> Any:
    result = operation.results[0]
    return lax.broadcasted_iota(_type(result), _shape(result), operation.attributes["iota_dimension"].value)


def _op_compare(operation: Any, a: Any, b: Any) -> Any:
    attributes = operation.attributes
    direction = str(attributes["comparison_direction"]).split()[-1].strip(">").lower()
    if "compare_type" in attributes and "TOTALORDER" in str(
        attributes["compare_type"]
    ):  # -NaN, -inf, ..., -0, 0, ..., inf, NaN: as their bits are, seen as numbers
        a, b = (lax.bitcast_convert_type(x, jnp.int32) for x in (a, b))
        a, b = (x ^ ((x >> 31) & 0x7FFFFFFF) for x in (a, b))
    return getattr(lax, direction)(a, b)


def _op_convert(operation: Any, x: Any) -> Any:
    return lax.convert_element_type(x, _type(operation.results[0]))


def _op_bitcast_convert(operation: Any, x: Any) -> Any:
    return lax.bitcast_convert_type(x, _type(operation.results[0]))


def _op_reduce_precision(operation: Any, x: Any) -> Any:
    return lax.reduce_precision(x, *(operation.attributes[f"{part}_bits"].value for part in ("exponent", "mantissa")))


def _op_broadcast_in_dim(operation: Any, x: Any) -> Any:
    return lax.broadcast_in_dim(x, _shape(operation.results[0]), _numbers(operation, "broadcast_dimensions"))


def _op_reshape(operation: Any, x: Any) -> Any:
    return lax.reshape(x, _shape(operation.results[0]))


def _op_transpose(operation: Any, x: Any) -> Any:
    return lax.transpose(x, _numbers(operation, "permutation"))


def _op_reverse(operation: Any, x: Any) -> Any:
    return lax.rev(x, _numbers(operation, "dimensions"))


def _op_slice(operation: Any, x: Any) -> Any:
    return lax.slice(x, *(_numbers(operation, name) for name in ("start_indices", "limit_indices", "strides")))


def _op_concatenate(operation: Any, *pieces: Any) -> Any:
    return lax.concatenate(pieces, operation.attributes["dimension"].value)


def _op_pad(operation: Any, x: Any, value: Any) -> Any:
    low, high, between = (
        _numbers(operation, name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    return lax.pad(x, value, tuple(zip(low, high, between, strict=True)))


def _op_dynamic_slice(operation: Any, x: Any, *starts: Any) -> Any:
    return lax.dynamic_slice(x, starts, _numbers(operation, "slice_sizes"))


def _op_dynamic_update_slice(_: Any, x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, starts)


def _op_dot_general(operation: Any, a: Any, b: Any) -> Any:
    d = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    contracting = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
    return lax.dot_general(a, b, (contracting, (list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions))))


def _op_gather(operation: Any, x: Any, numbers: Any) -> Any:
    d = stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    vector = d.index_vector_dim
    numbers = numbers[..., None] if vector == numbers.ndim else jnp.moveaxis(numbers, vector, -1)
    dimensions = lax.GatherDimensionNumbers(
        tuple(d.offset_dims), tuple(d.collapsed_slice_dims), tuple(d.start_index_map),
        tuple(d.operand_batching_dims), tuple(d.start_indices_batching_dims),
    )  # fmt: skip
    return lax.gather(x, numbers, dimensions, _numbers(operation, "slice_sizes"), mode="clip")


def _scatter(operation: Any, given: Values, combine: Callable[..., Values]) -> Values:
    if len(given) != 3:
        raise Unsupported("scatter of several arrays")
    d, (x, numbers, updates) = (
        stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"]),
        given,
    )
    vector = d.index_vector_dim
    numbers = numbers[..., None] if vector == numbers.ndim else jnp.moveaxis(numbers, vector, -1)
    dimensions = lax.ScatterDimensionNumbers(
        tuple(d.update_window_dims), tuple(d.inserted_window_dims), tuple(d.scattered_dims_to_operand_dims),
        tuple(d.input_batching_dims), tuple(d.scatter_indices_batching_dims),
    )  # fmt: skip
    ways = {"add": lax.scatter_add, "mul": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}
    way = lax.scatter if (name := _only(combine, x.dtype)) == "second" else ways.get(name)
    if way is None:
        raise Unsupported("scatter by another function")
    return [way(x, numbers, updates, dimensions, mode="drop")]


def _sort(operation: Any, given: Values, compare: Callable[..., Values]) -> Values:
    """Which operands are keys is found out by asking the comparison."""

    def before(which: int, a: int, b: int) -> bool:
        numbers = [np.zeros((), x.dtype) for x in given for _ in "ab"]
        numbers[2 * which : 2 * which + 2] = (np.array(n, given[which].dtype) for n in (a, b))
        with jax.ensure_compile_time_eval():
            return bool(compare(*numbers)[0])

    rising = [before(k, 0, 1) and not before(k, 1, 0) for k in range(len(given))]
    keys = rising.index(False) if False in rising else len(rising)
    if not keys or any(before(k, 0, 1) or before(k, 1, 0) for k in range(keys, len(given))):
        raise Unsupported("sort in another order")
    return lax.sort(tuple(given), dimension=operation.attributes["dimension"].value, num_keys=keys)


def _only(combine: Callable[..., Values], dtype: Any) -> str:
    """The name of the primitive that a function of two numbers consists of; "second" if it gives the second."""
    number = jax.ShapeDtypeStruct((), dtype)
    traced = jax.make_jaxpr(lambda a, b: combine(a, b)[0])(number, number).jaxpr
    if not traced.eqns and traced.outvars == traced.invars[1:]:
        return "second"
    plain = len(traced.eqns) == 1 and traced.eqns[0].invars == traced.invars
    return str(traced.eqns[0].primitive.name) if plain else ""


def _reduce(operation: Any, given: Values, combine: Callable[..., Values]) -> Values:
    return _reduced(given, _numbers(operation, "dimensions"), combine)


def _reduced(given: Values, axes: list[int], combine: Callable[..., Values]) -> Values:
    """Over axes, by any function: the usual ones at once, others number by number."""
    arrays, starts = given[: len(given) // 2], given[len(given) // 2 :]
    usual: dict[str, Callable[..., Any]] = {
        "add": jnp.sum,
        "mul": jnp.prod,
        "min": jnp.min,
        "max": jnp.max,
        "or": jnp.any,
        "and": jnp.all,
    }
    if len(arrays) == 1 and (way := usual.get(_only(combine, arrays[0].dtype))):
        return combine(way(arrays[0], axis=tuple(axes)).astype(arrays[0].dtype), starts[0])
    rest = [a for a in range(arrays[0].ndim) if a not in axes]
    shape = [arrays[0].shape[a] for a in rest]
    steps = [lax.transpose(x, [*axes, *rest]).reshape(-1, math.prod(shape)) for x in arrays]
    found, _ = lax.scan(_each(combine), tuple(jnp.full(math.prod(shape), x) for x in starts), tuple(steps))
    return [x.reshape(shape) for x in found]


def _each(combine: Callable[..., Values]) -> Callable[[Values, Values], tuple[Any, Any]]:
    """One step of a scan that combines arrays, element by element."""
    several: Callable[..., Values] = jax.vmap(lambda *numbers: tuple(combine(*numbers)))

    def step(carried: Values, given: Values) -> tuple[Any, Any]:
        new = several(*carried, *given)
        return new, new

    return step


def _reduce_window(operation: Any, given: Values, combine: Callable[..., Values]) -> Values:
    arrays, starts = given[: len(given) // 2], given[len(given) // 2 :]
    window, rank = _numbers(operation, "window_dimensions"), arrays[0].ndim
    strides, between, apart = (
        _numbers(operation, name) or [1] * rank for name in ("window_strides", "base_dilations", "window_dilations")
    )
    padding = _numbers(operation, "padding") or [[0, 0]] * rank
    long = [axis for axis, size in enumerate(window) if size > 1]
    if len(long) == 1 and not {*strides, *between, *apart} - {1} and window[long[0]] == arrays[0].shape[long[0]]:
        n = window[long[0]] - 1
        if padding[long[0]] in ([n, 0], [0, n]):  # all that came before, or come after
            return _cumulated(arrays, starts, long[0], combine, reverse=padding[long[0]] == [0, n])
    config = tuple((low, high, gap - 1) for (low, high), gap in zip(padding, between, strict=True))
    arrays = [lax.pad(x, start, config) for x, start in zip(arrays, starts, strict=True)]
    arrays = [_windows(x, range(rank), window, strides, apart) for x in arrays]
    return _reduced([*arrays, *starts], list(range(rank, 2 * rank)), combine)


def _cumulated(arrays: Values, starts: Values, axis: int, combine: Callable[..., Values], *, reverse: bool) -> Values:
    rows = [jnp.moveaxis(x, axis, 0) for x in arrays]
    shape = rows[0].shape
    steps = tuple(x.reshape(len(x), -1) for x in rows)
    first = tuple(jnp.full(x.shape[1], start) for x, start in zip(steps, starts, strict=True))
    _, found = lax.scan(_each(combine), first, steps, reverse=reverse)
    return [jnp.moveaxis(x.reshape(shape), 0, axis) for x in found]


def _windows(x: Any, axes: Any, sizes: Any, strides: Any, apart: Any) -> Any:
    """Windows along some axes: where each window is, and behind all other axes the places in it."""
    for axis, size, stride, step in zip(axes, sizes, strides, apart, strict=True):
        count = (x.shape[axis] - (size - 1) * step - 1) // stride + 1
        places = np.arange(count)[:, None] * stride + np.arange(size) * step
        x = jnp.moveaxis(jnp.take(x, jnp.asarray(places), axis=axis), axis + 1, -1)
    return x


def _op_convolution(operation: Any, x: Any, kernel: Any) -> Any:
    """Windows, and a product with the kernel for each group of channels."""
    attributes = operation.attributes
    d = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    if any(_numbers(operation, "window_reversal")):
        raise Unsupported("a convolution with a reversed window")
    x = lax.transpose(x, [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions])
    kernel = lax.transpose(
        kernel, [d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *d.kernel_spatial_dimensions]
    )
    rank = x.ndim - 2
    strides, between, apart = (
        _numbers(operation, name) or [1] * rank for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    padding = _numbers(operation, "padding") or [[0, 0]] * rank
    config = [(0, 0, 0)] * 2 + [(low, high, gap - 1) for (low, high), gap in zip(padding, between, strict=True)]
    x = lax.pad(x, jnp.zeros((), x.dtype), config)
    x = _windows(x, range(2, rank + 2), kernel.shape[2:], strides, apart)
    groups, batches = attributes["feature_group_count"].value, attributes["batch_group_count"].value
    sides = zip(
        jnp.split(x, groups, axis=1) if groups > 1 else jnp.split(x, batches, axis=0),
        jnp.split(kernel, max(groups, batches), axis=0),
        strict=True,
    )
    contracted = [1, *range(rank + 2, 2 * rank + 2)], [1, *range(2, rank + 2)]
    found = jnp.concatenate([lax.dot_general(a, b, (contracted, ((), ()))) for a, b in sides], axis=-1)
    order = [d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension]
    return lax.transpose(found, [order.index(a) for a in range(rank + 2)])
