"""The minimalist ensemble consistent Bellman update: one mask m on both sides of the equation.

`critic_gradient` is Eq. (4), from top to bottom. Algorithms with another next value (DQN, discrete SAC, CrossQ) have a
function of the same shape in their own file, made of `draw_masks`, `td_target` and `td_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.critics import Critics, lower_bound
from mepg.core.losses import doubled_td_loss, smallest_quantiles
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.policies import add_noise
from mepg.core.posterior import residual_variance
from mepg.core.spec import CriticSpec, Spec
from mepg.core.types import Array, Batch, Key

Sampler = Callable[[Array, Key], tuple[Array, Array]]  # s -> a ~ pi(. | s), log pi(a | s): [B, A], [B]


class QValue(NamedTuple):
    """A value that a masked critic gives, and what each of its masked units contributes to it."""

    q: Array  # [B]; with quantiles [B, K]
    # c_j, [B, H], to q or to the mean of its quantiles; None where they have no closed form: pooled critics, a sum over
    # actions
    contributions: Array | None
    critic_index: Array  # of the critic that it comes from, () or [B]


def critic_gradient(
    critics: Critics,
    spec: Spec,
    theta: Mlp,
    theta_target: Mlp,
    pi: Sampler,
    alpha: Array | float,
    batch: Batch,
    key: Key,
    weight: Array | float = 1.0,
) -> tuple[Mlp, dict[str, Array]]:
    """Eq. (4): J(theta) = E[ 1/2 (D_m Q(s, a; theta) - (r + gamma E[D_m Q(s', a'; theta')]))^2 ], its gradient.

    With alpha > 0 the soft one, Eq. (7). Without dropout, the update of DDPG, TD3, SAC, REDQ and TQC. A `weight` for
    each transition is SUNRISE's.
    """
    k_mask, k_action, k_smoothing, k_subset = jax.random.split(key, 4)
    mask, target_mask = draw_masks(spec, len(batch.reward), k_mask)  # the same one, except in ablations: [N, B, H]
    next_action, next_log_prob = pi(batch.next_obs, k_action)  # a' ~ pi(s'): [B, A], [B]
    next_action = add_noise(spec.smoothing, next_action, k_smoothing)
    next_value = next_q(critics, spec, theta_target, batch.next_obs, next_action, target_mask, k_subset)  # [B]
    if spec.minto:
        online_value = next_q(critics, spec, theta, batch.next_obs, next_action, target_mask, k_subset)
        next_value = next_value._replace(q=jnp.minimum(next_value.q, online_value.q))
    y = td_target(batch, spec.discount, next_value, alpha * next_log_prob)  # [B]
    return td_gradient(critics, spec, theta, batch, mask, y, weight)


def next_q(critics: Critics, spec: Spec, theta: Mlp, obs: Array, action: Array, mask: Mask | None, key: Key) -> QValue:
    """min_i D_m Q_i(s', a'; theta), theta the target critics' but in MINTO.

    In REDQ over a random subset; in TQC the quantiles without the largest.
    """
    if spec.subset is None:
        return combine_critics(spec, *critics.values(theta, obs, action, mask))
    subset = jax.random.choice(key, spec.critics, (spec.subset,), replace=False)
    theta, mask = jax.tree.map(lambda leaf: leaf[subset], (theta, mask))  # each keeps its own mask
    value = combine_critics(spec, *critics.values(theta, obs, action, mask))
    return value._replace(critic_index=subset[value.critic_index])


def combine_critics(spec: CriticSpec, q: Array, contributions: Array) -> QValue:
    """min_i Q_i, or with pessimism min_i (Q_i - beta sigma_i); with quantiles, all critics' but the largest.

    [N, B], [N, B, H] -> [B], [B, H], [B]; or [N, B, K], [N, B, H] -> [B, N (K - dropped)], [B, H], ().
    """
    q = lower_bound(spec, q, jnp.square(contributions).sum(axis=-1))
    if spec.quantiles is None:
        i = q.argmin(axis=0)
        argmin_contributions = (
            contributions[0] if len(q) == 1 else jnp.take_along_axis(contributions, i[None, :, None], axis=0)[0]
        )
        return QValue(q.min(axis=0), argmin_contributions, i)
    count, dropped = spec.quantiles.count, spec.quantiles.dropped
    pooled = jnp.moveaxis(q, 0, 1).reshape(q.shape[1], -1)  # [B, N K]
    pooled_contributions = contributions[0] if len(q) == 1 and dropped == 0 else None
    return QValue(
        smallest_quantiles(pooled, len(q) * (count - dropped)) if dropped else pooled,
        pooled_contributions,
        jnp.int32(0),
    )


def td_target(batch: Batch, discount: float, next_value: QValue, entropy_cost: Array | None = None) -> QValue:
    """y = r + gamma (Q(s', a') - alpha log pi(a' | s')), or r alone where s' is terminal; for each quantile."""
    discounts = discount * batch.discount  # gamma^k, or 0: [B]
    per_row = (slice(None),) + (None,) * (next_value.q.ndim - 1)  # [B] -> [B, 1] beside quantiles
    q = next_value.q if entropy_cost is None else next_value.q - entropy_cost[per_row]
    contributions = None if next_value.contributions is None else discounts[:, None] * next_value.contributions
    return QValue(batch.reward[per_row] + discounts[per_row] * q, contributions, next_value.critic_index)


def td_gradient(
    critics: Critics,
    spec: CriticSpec,
    theta: Mlp,
    batch: Batch,
    mask: Mask | None,
    y: QValue,
    weight: Array | float = 1.0,
) -> tuple[Mlp, dict[str, Array]]:
    """The gradient of `critic_loss` for D_m Q(s, a; theta), of every critic, and metrics."""

    def loss(theta: Mlp, mask: Mask | None, critic_index: Array) -> tuple[Array, dict[str, Array]]:
        online = QValue(*critics.single_value(theta, batch.obs, batch.action, mask), critic_index)
        return critic_loss(spec, online, y, weight)

    # One critic after the other, so that what its forward pass leaves for the backward one is still in the cache.
    value_and_grad = jax.value_and_grad(loss, has_aux=True)
    per_critic = (theta, mask, jnp.arange(spec.critics))
    (losses, metrics), gradient = jax.lax.map(lambda critic: value_and_grad(*critic), per_critic)
    return gradient, {"critic_loss": losses.sum(), **{name: values.mean() for name, values in metrics.items()}}


def critic_loss(
    spec: CriticSpec, online: QValue, y: QValue, weight: Array | float = 1.0
) -> tuple[Array, dict[str, Array]]:
    """Eq. (4) for one critic: E[ 1/2 (D_m Q(s, a) - y)^2 ], or the Huber or quantile loss in place of the square.

    With expected masks, E_m of that: 1/2 (delta^2 + lambda sum_j (c_j - d_j)^2), delta of the complete networks, c_j
    what unit j contributes to Q(s, a), and d_j to y.
    """
    doubled_loss, metrics = doubled_td_loss(spec, online.q, y.q), {"q": online.q.mean()}
    dropout, c, d = spec.dropout, online.contributions, y.contributions
    if dropout is not None and dropout.closed_form and c is not None and d is not None:
        variance = residual_variance(c, d, y.critic_index == online.critic_index, dropout)
        metrics |= {"noise_one_mask": variance.one_mask.mean(), "noise_two_masks": variance.two_masks.mean()}
        if dropout.masks == "expected":
            doubled_loss += variance.one_mask
    return 0.5 * (weight * doubled_loss).mean(), metrics
