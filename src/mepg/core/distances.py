"""How far a critic's value is from y: squared, or Huber's; between numbers, or between distributions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp

from mepg.core.spec import CriticSpec
from mepg.core.types import Array

Distance = Callable[[Array, Array], Array]  # value, y -> [B]


def make_distance(spec: CriticSpec) -> Distance:
    """The distance that a spec describes; half of its mean is the loss."""
    return partial(between_numbers if spec.quantiles is None else between_quantiles, spec.huber)


def between_numbers(huber: float | None, value: Array, y: Array) -> Array:
    """h(Q - y), h(x) = x^2, and from |x| = k on the line k (2 |x| - k). [B], [B] -> [B]

    Half of it is Huber's loss, with k = 1 torch's smooth_l1_loss; without k, Eq. (4)'s 1/2 (Q - y)^2.
    """
    delta = value - y
    if huber is None:
        return jnp.square(delta)
    far = jnp.abs(delta)
    return jnp.where(far <= huber, jnp.square(delta), huber * (2 * far - huber))


def between_quantiles(huber: float | None, value: Array, y: Array) -> Array:
    """mean_ij 2 |tau_i - 1{y_j < z_i}| h(z_i - y_j), tau_i = (i - 1/2) / K. [B, K], [B, J] -> [B]

    The quantile Huber loss (Dabney et al., 2018), the mean over the quantiles z_i and over y's. The factor 2 makes the
    weights 1 on average, so that with one quantile this is `between_numbers`.
    """
    tau = (jnp.arange(value.shape[-1]) + 0.5) / value.shape[-1]
    z, y = value[:, :, None], y[:, None, :]
    weight = 2 * jnp.abs(tau[:, None] - (y < z))
    return (weight * between_numbers(huber, z, y)).mean(axis=(1, 2))


def smallest(quantiles: Array, kept: int) -> Array:
    """The `kept` smallest of each row, in order. [B, J] -> [B, kept]

    Each is put in the place that the number of smaller ones says; of two equal ones, the one on the left goes first.
    That is faster than JAX's sort, which compares one pair at a time, and needs nothing that native code has not.
    """
    number = jnp.arange(quantiles.shape[-1])
    this, other = quantiles[:, :, None], quantiles[:, None, :]
    earlier = (other < this) | ((other == this) & (number < number[:, None]))
    rank = earlier.sum(axis=-1)  # [B, J]
    in_place = rank[:, None, :] == jnp.arange(kept)[:, None]  # [B, kept, J]
    return jnp.where(in_place, quantiles[:, None, :], 0.0).sum(axis=-1)
