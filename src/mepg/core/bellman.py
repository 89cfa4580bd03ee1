"""The minimalist ensemble consistent Bellman update: one mask m on both sides of the equation."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from mepg.core import policies
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp, q_value_and_parts, q_values_and_parts
from mepg.core.posterior import residual_noise
from mepg.core.spec import Spec
from mepg.core.types import Array, Batch, Key


def critic_gradient(
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
    m, m_target = draw_masks(spec, len(batch.reward), k_mask)  # the same one, unless an ablation says otherwise
    if spec.subset is not None:  # REDQ: only these target critics are asked, each with its own mask
        chosen = jax.random.choice(k_subset, spec.critics, (spec.subset,), replace=False)
        theta_target, m_target = jax.tree.map(lambda leaf: leaf[chosen], (theta_target, m_target))

    next_action, log_prob = pi(batch.next_obs, k_action)  # a' ~ pi(s')
    next_action = policies.jitter(spec.smoothing, next_action, k_smoothing)
    next_q, next_parts = q_values_and_parts(
        theta_target, batch.next_obs, next_action, m_target, spec.mask_place, spec.precision
    )  # [N, B], [N, B, H]
    y = batch.reward + spec.discount * batch.alive * (next_q.min(axis=0) - alpha * log_prob)  # [B]
    lowest = next_q.argmin(axis=0)  # [B]
    d = (spec.discount * batch.alive)[:, None] * _take(next_parts, lowest)  # [B, H], what the units add to y
    asked = lowest if spec.subset is None else chosen[lowest]

    def loss(theta: Mlp, m: Mask | None, number: Array) -> tuple[Array, dict[str, Array]]:
        """Of one critic."""
        q, c = q_value_and_parts(theta, batch.obs, batch.action, m, spec.mask_place, spec.precision)
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


def _take(of_each: Array, numbers: Array) -> Array:
    """A critic's row for each input: [N, B, H], [B] -> [B, H]."""
    return of_each[0] if len(of_each) == 1 else jnp.take_along_axis(of_each, numbers[None, :, None], axis=0)[0]
