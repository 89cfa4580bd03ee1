"""Networks: the multi-layer perceptron (Eq. 2) with the dropout operator in it (Eq. 3).

A network is built once, as pure functions of its layers. Its precision, its activation and
the place of the mask are fixed then; a call gives layers, inputs and a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.types import Array, Key

Precision = Literal["full", "mixed"]
MatMul = Callable[[Array, Array], Array]  # a, b -> a b
Mask = tuple[Array | None, ...]  # the paper's m: an entry for each hidden layer, None where it is left alone


class LayerNorm(NamedTuple):
    """Layer normalisation's own parameters."""

    scale: Array  # [outputs]
    shift: Array  # [outputs]


class BatchNorm(NamedTuple):
    """Batch normalisation of a layer's input: its parameters and its running statistics."""

    scale: Array  # [inputs]
    shift: Array  # [inputs]
    mean: Array  # [inputs], running: no gradient moves it
    variance: Array  # [inputs], likewise


class Layer(NamedTuple):
    """z = w x + b; layer normalisation acts on z, batch normalisation on x."""

    w: Array  # [inputs, outputs]
    b: Array  # [outputs]
    norm: LayerNorm | BatchNorm | None = None


Mlp = tuple[Layer, ...]  # the parameters of a multi-layer perceptron


class Network(NamedTuple):
    """A multi-layer perceptron, as pure functions of its layers."""

    init: Callable[[Key], Mlp]
    apply: Callable[[Mlp, Array], Array]  # layers, x -> outputs, [B, outputs]
    apply_masked: Callable[[Mlp, Array, Mask | None], tuple[Array, Array]]  # and the last hidden units, [B, H]


def make_network(
    widths: Sequence[int],
    init: str,
    *,
    activation: Callable[[Array], Array] = jax.nn.relu,
    layer_norm: bool = False,
    mask_place: Literal["after", "before"] = "after",
    precision: Precision = "full",
) -> Network:
    """Layers between consecutive `widths`: (S, 256, 256, A) has two hidden layers.

    A mask acts after the activation f, as in Eq. (3), or before normalisation and f, as in DroQ. It carries the
    factor 1/(1-p), so the bias after it is not scaled (D3). The output layer is always in full precision.
    """
    multiply = MATMULS[precision]

    def apply_masked(layers: Mlp, x: Array, mask: Mask | None) -> tuple[Array, Array]:
        """Eq. (2): z = w x + b, x = f(z); with a mask, Eq. (3): x~ = m * x. The units are those before the mask."""
        *hidden, output = layers
        units = x
        for layer, m in zip(hidden, mask or (None,) * len(hidden), strict=True):
            z = affine(multiply, layer.w, layer.b, x)
            if m is not None and mask_place == "before":
                z = m * z
            if isinstance(layer.norm, LayerNorm):
                z = normalise_rows(z, *layer.norm)
            x = units = activation(z)
            if m is not None and mask_place == "after":
                x = m * units
        return affine(jnp.matmul, output.w, output.b, x), units

    return Network(
        init=partial(init_layers, widths, INITIALISERS[init], layer_norm),
        apply=lambda layers, x: apply_masked(layers, x, None)[0],
        apply_masked=apply_masked,
    )


def init_ensemble(network: Network, count: int, key: Key) -> Mlp:
    """The same network `count` times, each with weights of its own, along axis 0."""
    return jax.vmap(network.init)(jax.random.split(key, count))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def affine(multiply: MatMul, w: Array, b: Array, x: Array) -> Array:
    """z = w x + b, [B, outputs]."""
    return multiply(x, w) + b


def _affine_forward(multiply: MatMul, w: Array, b: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(multiply, w, b, x), (w, x)


def _affine_backward(multiply: MatMul, residuals: tuple[Array, Array], dz: Array) -> tuple[Array, Array, Array]:
    """dw = x' dz, db = sum dz, dx = dz w'."""
    w, x = residuals
    # A single output's dz is a column, and XLA is slow at a product whose right side is one.
    dw = multiply(dz.T, x).T if dz.shape[-1] == 1 else multiply(x.T, dz)
    return dw, dz.sum(axis=0), multiply(dz, w.T)


affine.defvjp(_affine_forward, _affine_backward)


def matmul_bfloat16(a: Array, b: Array) -> Array:
    """a b of inputs rounded to bfloat16, added up in float32.

    A product of two bfloat16 numbers is exact in float32, so rounding the inputs and multiplying as usual computes
    it on every processor. XLA's own bfloat16 products are not used: where the processor has an instruction for
    them, XLA refuses some shapes, and the others were only a tenth faster.
    """
    # bfloat16 has 8 bits of exponent and 7 of fraction.
    a, b = (jax.lax.reduce_precision(each, exponent_bits=8, mantissa_bits=7) for each in (a, b))
    return a @ b


MATMULS: Mapping[str, MatMul] = MappingProxyType({"full": jnp.matmul, "mixed": matmul_bfloat16})


@jax.custom_vjp
def normalise_rows(z: Array, scale: Array, shift: Array) -> Array:
    """n = (z - E z) / sqrt(Var z + 1e-5), over a row; scale n + shift. [B, H], [H], [H] -> [B, H]

    Var z = E z^2 - (E z)^2, as flax has it: both means come from one pass over z, that of the product that z is from.
    """
    return _normalise_rows_forward(z, scale, shift)[0]


def _normalise_rows_forward(z: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    mean, mean_square = z.mean(axis=-1, keepdims=True), jnp.square(z).mean(axis=-1, keepdims=True)
    inv_std = jax.lax.rsqrt(jnp.maximum(mean_square - jnp.square(mean), 0.0) + 1e-5)
    return (z - mean) * inv_std * scale + shift, (z, mean, inv_std, scale)


def _normalise_rows_backward(residuals: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    """dz = (g - E g - n E[g n]) / sqrt(Var z + 1e-5), g = scale dy; dscale = sum dy n, dshift = sum dy."""
    z, mean, inv_std, scale = residuals
    n, g = (z - mean) * inv_std, scale * dy
    dz = (g - g.mean(axis=-1, keepdims=True) - n * (g * n).mean(axis=-1, keepdims=True)) * inv_std
    return dz, (dy * n).sum(axis=0), dy.sum(axis=0)


normalise_rows.defvjp(_normalise_rows_forward, _normalise_rows_backward)


InitLayer = Callable[[Key, int, int], Layer]  # key, inputs, outputs


def init_layers(widths: Sequence[int], init_layer: InitLayer, layer_norm: bool, key: Key) -> Mlp:
    """Layers between consecutive widths."""
    keys = jax.random.split(key, len(widths) - 1)
    *hidden, output = map(init_layer, keys, widths[:-1], widths[1:])
    if layer_norm:
        hidden = [layer._replace(norm=LayerNorm(jnp.ones_like(layer.b), jnp.zeros_like(layer.b))) for layer in hidden]
    return (*hidden, output)


def _uniform(key: Key, inputs: int, outputs: int) -> Layer:
    k_w, k_b = jax.random.split(key)
    bound = inputs**-0.5
    return Layer(
        w=jax.random.uniform(k_w, (inputs, outputs), minval=-bound, maxval=bound),
        b=jax.random.uniform(k_b, (outputs,), minval=-bound, maxval=bound),
    )


def _orthogonal(key: Key, inputs: int, outputs: int) -> Layer:
    # One network after the other, also under vmap: LAPACK's functions for a batch wait, on threads of XLA's pool, for
    # parts of their work that need a thread of the same pool. With two threads and two such functions, for ever.
    matrix = jax.custom_batching.sequential_vmap(lambda key: jax.nn.initializers.orthogonal()(key, (inputs, outputs)))
    return Layer(w=matrix(key), b=jnp.zeros(outputs))


INITIALISERS: Mapping[str, InitLayer] = MappingProxyType({"uniform": _uniform, "orthogonal": _orthogonal})
