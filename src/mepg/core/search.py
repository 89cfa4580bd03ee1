"""Exploring by choice: of several proposed actions, or of all there are, the one that the critics' masks speak for."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mepg.core.critics import Critics
from mepg.core.nets import Mlp
from mepg.core.policies import follow_best
from mepg.core.posterior import draw_subnetwork, mean, posterior, q_of_subnetwork, variance
from mepg.core.spec import CriticSpec, Search
from mepg.core.types import Array, Key


def begin_search(search: Search | None, spec: CriticSpec, key: Key) -> Any:
    """What an episode's exploration remembers: for Thompson sampling, the sub-network that it asks."""
    thompson = search is not None and search.how == "thompson"
    return draw_subnetwork(spec, spec.critics, key) if thompson else ()


def most_promising(
    search: Search, proposals: Array, critics: Critics, theta: Mlp, memory: Any, obs: Array, spec: CriticSpec
) -> Array:
    """argmax_a E[Q(s, a)] + kappa Std[Q(s, a)], or argmax_a Q_m(s, a) for the episode's m, a among K proposals.

    Proposals stand one below the other, [K B, A], those for all states together; the answer is [B, A].
    """
    rows = jnp.tile(obs, (len(proposals) // len(obs), 1))  # [K B, S]
    if search.how == "ucb":
        belief = posterior(critics, theta, rows, proposals, spec)
        value = mean(belief) + search.kappa * jnp.sqrt(variance(belief))
    else:
        value = q_of_subnetwork(critics, theta, memory, rows, proposals)
    return follow_best(proposals.reshape(-1, len(obs), proposals.shape[-1]), value.reshape(-1, len(obs)))
