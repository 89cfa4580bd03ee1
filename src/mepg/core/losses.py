"""The critics' loss: squared or Huber's, of numbers or of quantiles. Each function gives twice the loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mepg.core.spec import CriticSpec
from mepg.core.types import Array


def doubled_td_loss(spec: CriticSpec, q: Array, y: Array) -> Array:
    """(Q - y)^2, or in its place the Huber or the quantile loss, doubled: half of the mean is the critic's loss.

    [B], [B] -> [B] or [B, K], [B, J] -> [B]
    """
    return (
        doubled_huber_loss(spec.huber, q, y)
        if spec.quantiles is None
        else doubled_quantile_huber_loss(spec.huber, q, y)
    )


def doubled_huber_loss(huber: float | None, q: Array, y: Array) -> Array:
    """h(Q - y), h(x) = x^2 if |x| <= k, else k (2 |x| - k). [B], [B] -> [B]

    Half of it is Huber's loss, with k = 1 torch's smooth_l1_loss; without k, Eq. (4)'s 1/2 (Q - y)^2.
    """
    delta = q - y
    if huber is None:
        return jnp.square(delta)
    # h(x) = max over |c| <= k of c (2 x - c): its derivative is that at the best c, as if c were fixed.
    c = jax.lax.stop_gradient(jnp.clip(delta, -huber, huber))
    return c * (2 * delta - c)


def doubled_quantile_huber_loss(huber: float | None, z: Array, y: Array) -> Array:
    """mean_ij 2 |tau_i - 1{y_j < z_i}| h(z_i - y_j), tau_i = (i - 1/2) / K. [B, K], [B, J] -> [B]

    The quantile Huber loss (Dabney et al., 2018), the mean over the quantiles z_i and over y's. The factor 2 makes the
    weights 1 on average, so that with one quantile this is `doubled_huber_loss`.
    """
    tau = ((jnp.arange(z.shape[-1]) + 0.5) / z.shape[-1])[:, None]
    z, y = z[:, :, None], y[:, None, :]
    weight = jnp.where(y < z, 2 * (1 - tau), 2 * tau)
    # One axis after the other: XLA takes half of the time.
    return (weight * doubled_huber_loss(huber, z, y)).mean(axis=2).mean(axis=1)


def smallest_quantiles(quantiles: Array, count: int) -> Array:
    """The `count` smallest of each row, in order. [B, J] -> [B, count]

    The k-th is the largest of those that fewer than k are smaller than, whether or not some are equal. Counting is
    faster than JAX's sort, which compares one pair at a time.
    """
    smaller = (quantiles[:, :, None] < quantiles[:, None, :]).sum(axis=1)  # [B, J]
    below = smaller[:, None, :] <= jnp.arange(count)[:, None]  # [B, count, J]
    return jnp.where(below, quantiles[:, None, :], -jnp.inf).max(axis=2)
