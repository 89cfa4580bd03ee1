"""The multi-layer perceptron (Eq. 2), with the dropout operator in it (Eq. 3), and the critics' axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.types import Array, Key

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
) -> Array:
    """Eq. (2): z = w x + b, x = f(z); with a mask, Eq. (3): x~ = m * x.

    The mask carries the factor 1/(1-p), so the bias after it is not scaled (D3). It acts after f, as
    in Eq. (3), or before normalisation and f, as in DroQ.
    """
    *hidden, output = layers
    for layer, m in zip(hidden, mask or (None,) * len(hidden), strict=True):
        z = x @ layer.w + layer.b
        if m is not None and place == "before":
            z = m * z
        if layer.norm is not None:
            z = _normalise(z) * layer.norm.scale + layer.norm.shift
        x = f(z)
        if m is not None and place == "after":
            x = m * x
    return x @ output.w + output.b


def q_value(theta: Mlp, obs: Array, action: Array, mask: Mask | None = None, place: str = "after") -> Array:
    """D_m Q(s, a; theta) of one critic, [B]; without a mask, of the complete network."""
    return mlp(theta, jnp.concatenate([obs, action], axis=-1), mask, place).squeeze(-1)


def q_values(theta: Mlp, obs: Array, action: Array, mask: Mask | None = None, place: str = "after") -> Array:
    """The same of every critic, [N, B]."""
    return jax.vmap(lambda critic, m: q_value(critic, obs, action, m, place))(theta, mask)


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
