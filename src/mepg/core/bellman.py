"""The minimalist ensemble consistent Bellman update: one mask m on both sides of the equation.

What the two sides are, and how far they are apart, is an algorithm's own: its `Equation`. That both have the same
mask, what y is, and what the loss is, is said here for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mepg.core import policies
from mepg.core.critics import Critics
from mepg.core.distances import Distance, make_distance, smallest
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.posterior import residual_noise
from mepg.core.spec import CriticSpec, Dropout, Quantiles, Spec
from mepg.core.types import Array, Batch, Key


class Side(NamedTuple):
    """A value that masked critics give, and what each of their masked units adds to it."""

    value: Array  # [B], or [B, K]: the quantiles of a distribution
    parts: Array | None  # [B, H], of the value or its quantiles' mean; None: several critics' units add to it
    critic: Array  # whose it is: a number, or [B] of them


class Equation(NamedTuple):
    """A Bellman equation: what has to be equal, as functions of masks, and how far apart it is."""

    following: Callable[[Mask | None, Sequence[Key]], Side]  # m, three keys -> the value of s' under policy and m
    online: Callable[[Mlp, Mask | None, Array], Side]  # a critic's theta, m and number -> its value of s and a
    distance: Distance  # between value and y, such as their difference, squared


def critic_gradient(
    equation: Equation, theta: Mlp, batch: Batch, key: Key, spec: CriticSpec, weight: Array | float = 1.0
) -> tuple[Mlp, dict[str, Array]]:
    """Eq. (4): J(theta) = E[ 1/2 (D_m Q(s, a; theta) - (r + gamma E[D_m Q(s', a'; theta')]))^2 ], its gradient.

    Without dropout, the Bellman update of DDPG, TD3, SAC, REDQ and the others. A `weight` for each transition is
    SUNRISE's.
    """
    k_mask, *keys = jax.random.split(key, 4)
    m, m_target = draw_masks(spec, len(batch.reward), k_mask)  # the same mask for both sides, except in ablations
    y = target(equation.following(m_target, keys), batch, spec.discount)

    def loss_of(theta: Mlp, m: Mask | None, number: Array) -> tuple[Array, dict[str, Array]]:
        return loss(equation.online(theta, m, number), y, equation.distance, spec.dropout, weight)

    # One critic after the other, so that what its forward pass leaves for the backward one is still in the cache.
    step = jax.value_and_grad(loss_of, has_aux=True)
    (losses, metrics), gradient = jax.lax.map(lambda critic: step(*critic), (theta, m, jnp.arange(spec.critics)))
    return gradient, {"critic_loss": losses.sum(), **{name: values.mean() for name, values in metrics.items()}}


def target(following: Side, batch: Batch, discount: float) -> Side:
    """y = r + gamma V(s'), or r alone where s' is terminal; for a distribution each of its quantiles."""
    gamma = discount * batch.alive
    reward, factor = (batch.reward, gamma) if following.value.ndim == 1 else (batch.reward[:, None], gamma[:, None])
    parts = None if following.parts is None else gamma[:, None] * following.parts
    return Side(reward + factor * following.value, parts, following.critic)


def loss(
    online: Side,
    y: Side,
    distance: Distance,
    dropout: Dropout | None,
    weight: Array | float = 1.0,
) -> tuple[Array, dict[str, Array]]:
    """Eq. (4) for one critic: E[ 1/2 distance(D_m Q(s, a), y) ].

    With expected masks, E_m of that: 1/2 (delta^2 + lambda sum_j (c_j - d_j)^2), delta of the complete networks, c_j
    and d_j what unit j adds to either side.
    """
    error, metrics = distance(online.value, y.value), {"q": online.value.mean()}
    if dropout is not None and dropout.linear and online.parts is not None and y.parts is not None:
        noise = residual_noise(online.parts, y.parts, y.critic == online.critic, dropout)
        metrics |= {"noise_one_mask": noise.one_mask.mean(), "noise_two_masks": noise.two_masks.mean()}
        if dropout.masks == "expected":
            error += noise.one_mask
    return 0.5 * (weight * error).mean(), metrics


def actor_critic(
    critics: Critics,
    theta_target: Mlp,
    pi: Callable[[Array, Key], tuple[Array, Array]],
    alpha: Array | float,
    batch: Batch,
    spec: Spec,
) -> Equation:
    """Q(s, a) = r + gamma (min_i Q_i(s', a') - alpha log pi(a' | s')), a' ~ pi(s'): Eq. (7); with alpha = 0, Eq. (1).

    With a subset, REDQ's: only these target critics are asked, each with its own mask. With quantiles, TQC's: the
    smallest of all critics' quantiles are in the place of the minimum.
    """

    def following(m: Mask | None, keys: Sequence[Key]) -> Side:
        (k_action, k_smoothing, k_subset), theta = keys, theta_target
        if spec.subset is not None:
            chosen = jax.random.choice(k_subset, spec.critics, (spec.subset,), replace=False)
            theta, m = jax.tree.map(lambda leaf: leaf[chosen], (theta, m))
        next_action, log_prob = pi(batch.next_obs, k_action)
        next_action = policies.jitter(spec.smoothing, next_action, k_smoothing)
        low = lowest(*critics.all(theta, batch.next_obs, next_action, m), spec.quantiles)
        asked = low.critic if spec.subset is None else chosen[low.critic]
        cost = alpha * log_prob if spec.quantiles is None else (alpha * log_prob)[:, None]
        return Side(low.value - cost, low.parts, asked)

    def online(theta: Mlp, m: Mask | None, number: Array) -> Side:
        return Side(*critics.one(theta, batch.obs, batch.action, m), number)

    return Equation(following, online, make_distance(spec))


def lowest(value: Array, parts: Array, quantiles: Quantiles | None) -> Side:
    """min_i Q_i; of distributions, the quantiles of all critics together, without the largest.

    [N, B], [N, B, H] -> [B], [B, H], [B]; or [N, B, K], [N, B, H] -> [B, N (K - dropped)], [B, H], ().
    """
    if quantiles is None:
        i = value.argmin(axis=0)
        chosen = parts[0] if len(parts) == 1 else jnp.take_along_axis(parts, i[None, :, None], axis=0)[0]
        return Side(value.min(axis=0), chosen, i)
    together = jnp.moveaxis(value, 0, 1).reshape(value.shape[1], -1)
    kept = len(value) * (quantiles.count - quantiles.dropped)
    alone = parts[0] if len(value) == 1 and quantiles.dropped == 0 else None
    return Side(smallest(together, kept) if quantiles.dropped else together, alone, jnp.int32(0))
