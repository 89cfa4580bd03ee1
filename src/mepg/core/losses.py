"""The critics' error: squared or Huber's, of numbers or of quantiles."""

from __future__ import annotations

import jax.numpy as jnp

from mepg.core.spec import CriticSpec
from mepg.core.types import Array


def td_error(spec: CriticSpec, q: Array, y: Array) -> Array:
    """The error that a spec describes; half of its mean is the loss. [B], [B] -> [B] or [B, K], [B, J] -> [B]"""
    return huber_error(spec.huber, q, y) if spec.quantiles is None else quantile_huber_error(spec.huber, q, y)


def huber_error(huber: float | None, q: Array, y: Array) -> Array:
    """h(Q - y), h(x) = x^2, and from |x| = k on the line k (2 |x| - k). [B], [B] -> [B]

    Half of it is Huber's loss, with k = 1 torch's smooth_l1_loss; without k, Eq. (4)'s 1/2 (Q - y)^2.
    """
    delta = q - y
    if huber is None:
        return jnp.square(delta)
    size = jnp.abs(delta)
    return jnp.where(size <= huber, jnp.square(delta), huber * (2 * size - huber))


def quantile_huber_error(huber: float | None, z: Array, y: Array) -> Array:
    """mean_ij 2 |tau_i - 1{y_j < z_i}| h(z_i - y_j), tau_i = (i - 1/2) / K. [B, K], [B, J] -> [B]

    The quantile Huber loss (Dabney et al., 2018), the mean over the quantiles z_i and over y's. The factor 2 makes the
    weights 1 on average, so that with one quantile this is `huber_error`.
    """
    tau = (jnp.arange(z.shape[-1]) + 0.5) / z.shape[-1]
    z, y = z[:, :, None], y[:, None, :]
    weight = 2 * jnp.abs(tau[:, None] - (y < z))
    return (weight * huber_error(huber, z, y)).mean(axis=(1, 2))


def smallest_quantiles(quantiles: Array, count: int) -> Array:
    """The `count` smallest of each row, in order. [B, J] -> [B, count]

    Each goes where its rank says, the number of smaller ones; of two equal ones, the left one goes first. That is
    faster than JAX's sort, which compares one pair at a time.
    """
    index = jnp.arange(quantiles.shape[-1])
    this, other = quantiles[:, :, None], quantiles[:, None, :]
    before = (other < this) | ((other == this) & (index < index[:, None]))
    rank = before.sum(axis=-1)  # [B, J]
    has_rank = rank[:, None, :] == jnp.arange(count)[:, None]  # [B, count, J]
    return jnp.where(has_rank, quantiles[:, None, :], 0.0).sum(axis=-1)
