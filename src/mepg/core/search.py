"""Exploring by choice: the policy proposes several actions, and the critics' masks say which one is worth trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from mepg.core.critics import Critics
from mepg.core.nets import Mlp
from mepg.core.policies import follow_best
from mepg.core.posterior import draw_subnetwork, mean, posterior, q_of_subnetwork, variance
from mepg.core.spec import Spec
from mepg.core.types import Array, Key


def begin_search(spec: Spec, key: Key) -> Any:
    """What an episode's exploration remembers: for Thompson sampling, the sub-network that it asks."""
    thompson = spec.search is not None and spec.search.how == "thompson"
    return draw_subnetwork(spec, spec.critics, key) if thompson else ()


def search(
    propose: Callable[[Array], Array], critics: Critics, theta: Mlp, memory: Any, obs: Array, spec: Spec
) -> Array:
    """argmax_a E[Q(s, a)] + kappa Std[Q(s, a)], or argmax_a Q_m(s, a) for the episode's m, a among K proposals.

    [B, A]
    """
    assert spec.search is not None
    rows = jnp.tile(obs, (spec.search.proposals, 1))  # [K B, S]
    proposals = propose(rows)
    if spec.search.how == "ucb":
        belief = posterior(critics, theta, rows, proposals, spec)
        value = mean(belief) + spec.search.kappa * jnp.sqrt(variance(belief))
    else:
        value = q_of_subnetwork(critics, theta, memory, rows, proposals)
    return follow_best(proposals.reshape(-1, len(obs), proposals.shape[-1]), value.reshape(-1, len(obs)))
