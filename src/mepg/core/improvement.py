"""Policy improvement, on the complete critics: the ensemble of all their sub-networks."""

from __future__ import annotations

import jax

from mepg.core import policies
from mepg.core.nets import Mask, Mlp, q_values
from mepg.core.spec import Spec
from mepg.core.types import Array, Key


def policy_loss(
    phi: Mlp,
    theta: Mlp,
    mask: Mask | None,
    alpha: Array | float,
    obs: Array,
    key: Key,
    spec: Spec,
    weight: Array | float = 1.0,
) -> tuple[Array, Array]:
    """Eq. (6): J(phi) = E[ alpha log pi(a | s; phi) - Q(s, a; theta) ], a ~ pi(. | s; phi).

    With alpha = 0 and a deterministic policy its gradient is Eq. (5). Only DroQ has a mask here. Also
    gives log pi(a | s), [B].
    """
    action, log_prob = policies.sample(spec, phi, obs, key)
    q = policy_view(theta, obs, action, mask, spec)
    return (weight * (alpha * log_prob - q)).mean(), log_prob


def policy_view(theta: Mlp, obs: Array, action: Array, mask: Mask | None, spec: Spec) -> Array:
    """Q(s, a; theta) as the policy sees it: the first of N critics, their minimum or their mean. [B]"""
    if spec.improve_on == "first":
        theta, mask = jax.tree.map(lambda leaf: leaf[:1], (theta, mask))
    q = q_values(theta, obs, action, mask, spec.mask_place, spec.precision)  # [N, B]
    return q.mean(axis=0) if spec.improve_on == "mean" else q.min(axis=0)


def temperature_loss(alpha: Array, log_prob: Array, target_entropy: float, weight: Array | float = 1.0) -> Array:
    """Eq. (8): J(alpha) = E[ -alpha log pi(a | s) - alpha H ], H the target entropy."""
    return (weight * -alpha * (log_prob + target_entropy)).mean()
