"""The minimalist ensemble consistent Bellman update: one mask m on both sides of the equation."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from mepg.core import policies
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp, q_value, q_values
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
    """
    k_mask, k_action, k_smoothing, k_subset = jax.random.split(key, 4)
    m, m_target = draw_masks(spec, len(batch.reward), k_mask)  # the same one, unless an ablation says otherwise
    if spec.subset is not None:  # REDQ: only these target critics are asked, each with its own mask
        chosen = jax.random.choice(k_subset, spec.critics, (spec.subset,), replace=False)
        theta_target, m_target = jax.tree.map(lambda leaf: leaf[chosen], (theta_target, m_target))

    next_action, log_prob = pi(batch.next_obs, k_action)  # a' ~ pi(s')
    next_action = policies.jitter(spec.smoothing, next_action, k_smoothing)
    next_q = q_values(theta_target, batch.next_obs, next_action, m_target, spec.mask_place, spec.precision)  # [N, B]
    y = batch.reward + spec.discount * batch.alive * (next_q.min(axis=0) - alpha * log_prob)  # [B]

    def loss(theta: Mlp, m: Mask | None) -> tuple[Array, Array]:
        """Of one critic."""
        q = q_value(theta, batch.obs, batch.action, m, spec.mask_place, spec.precision)
        return 0.5 * (weight * jnp.square(q - y)).mean(), q.mean()

    # One critic after the other, so that what its forward pass leaves for the backward one is still in the cache.
    step = jax.value_and_grad(loss, has_aux=True)
    (losses, q), gradient = jax.lax.map(lambda critic: step(*critic), (theta, m))
    return gradient, {"critic_loss": losses.sum(), "q": q.mean()}
