"""Policy improvement, on the complete critics: the ensemble of all their sub-networks."""

from __future__ import annotations

import jax

from mepg.core import policies
from mepg.core.masks import draw_masks
from mepg.core.nets import Mlp, q_values
from mepg.core.spec import Spec
from mepg.core.types import Array, Key


def policy_loss(phi: Mlp, theta: Mlp, alpha: Array | float, obs: Array, key: Key, spec: Spec) -> tuple[Array, Array]:
    """Eq. (6): J(phi) = E[ alpha log pi(a | s; phi) - Q(s, a; theta) ], a ~ pi(. | s; phi).

    With alpha = 0 and a deterministic policy its gradient is Eq. (5). Also gives log pi(a | s), [B].
    """
    action, log_prob = policies.sample(spec, phi, obs, key)
    m, place = None, "after"  # the complete network, except in DroQ
    if spec.dropout is not None and spec.dropout.improve_on == "masked":
        (m, _), place = draw_masks(spec, len(obs), jax.random.fold_in(key, 1)), spec.dropout.place
    if spec.improve_on == "first":
        theta, m = jax.tree.map(lambda leaf: leaf[:1], (theta, m))
    q = q_values(theta, obs, action, m, place)  # [N, B]
    value = q.mean(axis=0) if spec.improve_on == "mean" else q.min(axis=0)
    return (alpha * log_prob - value).mean(), log_prob


def temperature_loss(alpha: Array, log_prob: Array, target_entropy: float) -> Array:
    """Eq. (8): J(alpha) = E[ -alpha log pi(a | s) - alpha H ], H the target entropy."""
    return (-alpha * (log_prob + target_entropy)).mean()
