"""The multi-layer perceptron (Eq. 2), with the dropout operator in it (Eq. 3), and the critics' axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.types import Array, Key

Precision = Literal["full", "mixed"]
Mask = tuple[Array | None, ...]  # the paper's m: an entry for each hidden layer, None where it is left alone


class Norm(NamedTuple):
    """Layer normalisation's own parameters."""

    scale: Array  # [outputs]
    shift: Array  # [outputs]


class Layer(NamedTuple):
    """z = w x + b, and what normalises it, if anything does."""

    w: Array  # [inputs, outputs]
    b: Array  # [outputs]
    norm: Norm | None = None


Mlp = tuple[Layer, ...]


def mlp(
    layers: Mlp,
    x: Array,
    mask: Mask | None = None,
    place: str = "after",
    f: Callable[[Array], Array] = jax.nn.relu,
    precision: Precision = "full",
) -> Array:
    """Eq. (2): z = w x + b, x = f(z); with a mask, Eq. (3): x~ = m * x.

    The mask carries the factor 1/(1-p), so the bias after it is not scaled (D3). It acts after f, as
    in Eq. (3), or before normalisation and f, as in DroQ. The output layer is always in full precision.
    """
    return mlp_and_units(layers, x, mask, place, f, precision)[0]


def mlp_and_units(
    layers: Mlp,
    x: Array,
    mask: Mask | None = None,
    place: str = "after",
    f: Callable[[Array], Array] = jax.nn.relu,
    precision: Precision = "full",
) -> tuple[Array, Array]:
    """The same, and the units of the last hidden layer as they are before a mask acts on them after f. [B, H]"""
    *hidden, output = layers
    units = x
    for layer, m in zip(hidden, mask or (None,) * len(hidden), strict=True):
        z = affine(precision, layer.w, layer.b, x)
        if m is not None and place == "before":
            z = m * z
        if layer.norm is not None:
            z = _normalise(z) * layer.norm.scale + layer.norm.shift
        x = units = f(z)
        if m is not None and place == "after":
            x = m * units
    return affine("full", output.w, output.b, x), units


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def affine(precision: Precision, w: Array, b: Array, x: Array) -> Array:
    """z = w x + b, [B, outputs]."""
    return multiply(precision, x, w) + b


def _affine_forward(precision: Precision, w: Array, b: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(precision, w, b, x), (w, x)


def _affine_backward(precision: Precision, kept: tuple[Array, Array], dz: Array) -> tuple[Array, Array, Array]:
    """dw = x' dz, db = sum dz, dx = dz w'."""
    w, x = kept
    # A single output's dz is a column, for which the compiler has no good program on the right side.
    dw = multiply(precision, dz.T, x).T if dz.shape[-1] == 1 else multiply(precision, x.T, dz)
    return dw, dz.sum(axis=0), multiply(precision, dz, w.T)


affine.defvjp(_affine_forward, _affine_backward)


def multiply(precision: Precision, a: Array, b: Array) -> Array:
    """a b; in mixed precision of inputs rounded to bfloat16, added up in float32.

    A product of two bfloat16 numbers is exact in float32, so rounding the inputs and multiplying as usual computes
    it on every processor. XLA's own bfloat16 products are not used: where the processor has an instruction for
    them, XLA refuses some shapes, and the others were only a tenth faster.
    """
    if precision == "full":
        return a @ b
    return _rounded(a) @ _rounded(b)


def _rounded(a: Array) -> Array:
    """To the nearest bfloat16 number, as a float32: 8 bits of exponent and 7 of fraction."""
    return jax.lax.reduce_precision(a, 8, 7)


def q_value_and_parts(
    theta: Mlp,
    obs: Array,
    action: Array,
    mask: Mask | None = None,
    place: str = "after",
    precision: Precision = "full",
) -> tuple[Array, Array]:
    """D_m Q(s, a; theta) of one critic, [B], without a mask of the complete network; and c_j = w_j x_j, [B, H].

    c_j is what unit j of the last hidden layer adds to the complete network's Q.
    """
    x = jnp.concatenate([obs, action], axis=-1)
    q, units = mlp_and_units(theta, x, mask, place, precision=precision)
    return q.squeeze(-1), units * theta[-1].w[:, 0]


def q_values(
    theta: Mlp,
    obs: Array,
    action: Array,
    mask: Mask | None = None,
    place: str = "after",
    precision: Precision = "full",
) -> Array:
    """Q of every critic, [N, B]."""
    return q_values_and_parts(theta, obs, action, mask, place, precision)[0]


def q_values_and_parts(
    theta: Mlp,
    obs: Array,
    action: Array,
    mask: Mask | None = None,
    place: str = "after",
    precision: Precision = "full",
) -> tuple[Array, Array]:
    """Q of every critic, [N, B], and what each of its units adds to it, [N, B, H]."""

    def q(theta: Mlp, mask: Mask | None) -> tuple[Array, Array]:
        return q_value_and_parts(theta, obs, action, mask, place, precision)

    if len(theta[0].b) == 1:  # without an axis of one, which would cost some copies
        alone, parts = q(*jax.tree.map(lambda leaf: leaf[0], (theta, mask)))
        return alone[None], parts[None]
    return jax.vmap(q)(theta, mask)


def _normalise(z: Array) -> Array:
    return (z - z.mean(axis=-1, keepdims=True)) * jax.lax.rsqrt(z.var(axis=-1, keepdims=True) + 1e-5)


def init_mlp(key: Key, widths: Sequence[int], scheme: str, *, layer_norm: bool = False) -> Mlp:
    """Layers between consecutive `widths`: (S, 256, 256, A) has two hidden layers."""
    init_layer = _INITIALISERS[scheme]
    keys = jax.random.split(key, len(widths) - 1)
    *hidden, output = map(init_layer, keys, widths[:-1], widths[1:])
    if layer_norm:
        hidden = [layer._replace(norm=Norm(jnp.ones_like(layer.b), jnp.zeros_like(layer.b))) for layer in hidden]
    return (*hidden, output)


def init_several(key: Key, count: int, widths: Sequence[int], scheme: str, *, layer_norm: bool = False) -> Mlp:
    """The same network `count` times, each with weights of its own, along axis 0."""
    return jax.vmap(lambda k: init_mlp(k, widths, scheme, layer_norm=layer_norm))(jax.random.split(key, count))


def _uniform(key: Key, inputs: int, outputs: int) -> Layer:
    k_w, k_b = jax.random.split(key)
    bound = inputs**-0.5
    return Layer(
        w=jax.random.uniform(k_w, (inputs, outputs), minval=-bound, maxval=bound),
        b=jax.random.uniform(k_b, (outputs,), minval=-bound, maxval=bound),
    )


def _orthogonal(key: Key, inputs: int, outputs: int) -> Layer:
    return Layer(w=jax.nn.initializers.orthogonal()(key, (inputs, outputs)), b=jnp.zeros(outputs))


_INITIALISERS: dict[str, Callable[[Key, int, int], Layer]] = {"uniform": _uniform, "orthogonal": _orthogonal}
