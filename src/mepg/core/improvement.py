"""Policy improvement, on the complete critics: the ensemble of all their sub-networks."""

from __future__ import annotations

from mepg.core.critics import Critics
from mepg.core.nets import Mask, Mlp
from mepg.core.policies import Policy
from mepg.core.types import Array, Key


def policy_loss(
    policy: Policy,
    critics: Critics,
    phi: Mlp,
    theta: Mlp,
    mask: Mask | None,
    alpha: Array | float,
    obs: Array,
    key: Key,
    weight: Array | float = 1.0,
) -> tuple[Array, Array]:
    """Eq. (6): J(phi) = E[ alpha log pi(a | s; phi) - Q(s, a; theta) ], a ~ pi(. | s; phi).

    With alpha = 0 and a deterministic policy its gradient is Eq. (5). The mask is None except for
    DroQ and `dropout.improve_on=masked`. Also gives log pi(a | s), [B].
    """
    action, log_prob = policy.sample(phi, obs, key)
    q = critics.view(theta, obs, action, mask)
    return (weight * (alpha * log_prob - q)).mean(), log_prob


def temperature_loss(alpha: Array, log_prob: Array, target_entropy: float, weight: Array | float = 1.0) -> Array:
    """Eq. (8): J(alpha) = E[ -alpha log pi(a | s) - alpha H ], H the target entropy."""
    return (weight * -alpha * (log_prob + target_entropy)).mean()
