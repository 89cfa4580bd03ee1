"""The minimalist ensemble consistent Bellman update: one mask m on both sides of the equation."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from mepg.core import policies
from mepg.core.critics import Critics
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.posterior import residual_noise
from mepg.core.spec import Spec
from mepg.core.types import Array, Batch, Key


def critic_gradient(
    critics: Critics,
    theta: Mlp,
    theta_target: Mlp,
    pi: Callable[[Array, Key], tuple[Array, Array]],
    alpha: Array | float,
    batch: Batch,
    key: Key,
    spec: Spec,
    weight: Array | float = 1.0,
) -> tuple[Mlp, dict[str, Array]]:
    """Eq. (4): J(theta) = E[ 1/2 (D_m Q(s, a; theta) - (r + gamma E[D_m Q(s', a'; theta')]))^2 ], its gradient.

    With alpha > 0, Eq. (7): the next value is D_m Q(s', a'; theta') - alpha log pi(a' | s').
    Without dropout, the Bellman update of DDPG, TD3, SAC and REDQ. A `weight` for each transition is SUNRISE's.
    With expected masks, E_m of all that: 1/2 (delta^2 + lambda sum_j (c_j - d_j)^2), delta of the complete networks.
    """
    k_mask, k_action, k_smoothing, k_subset = jax.random.split(key, 4)
    m, m_target = draw_masks(spec, len(batch.reward), k_mask)  # the same mask for both sides, except in ablations
    if spec.subset is not None:  # REDQ: only these target critics are asked, each with its own mask
        chosen = jax.random.choice(k_subset, spec.critics, (spec.subset,), replace=False)
        theta_target, m_target = jax.tree.map(lambda leaf: leaf[chosen], (theta_target, m_target))

    next_action, log_prob = pi(batch.next_obs, k_action)  # a' ~ pi(s')
    next_action = policies.jitter(spec.smoothing, next_action, k_smoothing)
    next_q, asked, next_parts = _lowest(*critics.all(theta_target, batch.next_obs, next_action, m_target))
    gamma = spec.discount * batch.alive
    y = batch.reward + gamma * (next_q - alpha * log_prob)  # [B]
    d = gamma[:, None] * next_parts  # [B, H], what each unit adds to y
    if spec.subset is not None:
        asked = chosen[asked]

    def loss(theta: Mlp, m: Mask | None, number: Array) -> tuple[Array, dict[str, Array]]:
        """Eq. (4) for one critic."""
        q, c = critics.one(theta, batch.obs, batch.action, m)
        error, metrics = jnp.square(q - y), {"q": q.mean()}
        if spec.dropout is not None and spec.dropout.linear:
            noise = residual_noise(c, d, asked == number, spec.dropout)
            metrics |= {"noise_one_mask": noise.one_mask.mean(), "noise_two_masks": noise.two_masks.mean()}
            if spec.dropout.masks == "expected":
                error += noise.one_mask
        return 0.5 * (weight * error).mean(), metrics

    # One critic after the other, so that what its forward pass leaves for the backward one is still in the cache.
    step = jax.value_and_grad(loss, has_aux=True)
    (losses, metrics), gradient = jax.lax.map(lambda critic: step(*critic), (theta, m, jnp.arange(spec.critics)))
    return gradient, {"critic_loss": losses.sum(), **{name: values.mean() for name, values in metrics.items()}}


def _lowest(q: Array, parts: Array) -> tuple[Array, Array, Array]:
    """min_i Q_i, which critic that is, and what its units add to it: [N, B], [N, B, H] -> [B], [B], [B, H]."""
    i = q.argmin(axis=0)
    chosen = parts[0] if len(parts) == 1 else jnp.take_along_axis(parts, i[None, :, None], axis=0)[0]
    return q.min(axis=0), i, chosen
