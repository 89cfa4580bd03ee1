"""Directed exploration: of several proposed actions, the one with the best confidence bound or Thompson sample."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mepg.core.critics import Critics
from mepg.core.nets import Mlp
from mepg.core.policies import best_proposal
from mepg.core.posterior import draw_subnetwork, posterior, posterior_mean, posterior_variance, q_of_subnetwork
from mepg.core.spec import CriticSpec, Search
from mepg.core.types import Array, Key


def init_search(search: Search | None, spec: CriticSpec, key: Key) -> Any:
    """The carry of an episode's exploration: for Thompson sampling, the sub-network that is asked throughout."""
    thompson = search is not None and search.how == "thompson"
    return draw_subnetwork(spec, spec.critics, key) if thompson else ()


def choose_proposal(
    search: Search, proposals: Array, critics: Critics, theta: Mlp, carry: Any, obs: Array, spec: CriticSpec
) -> Array:
    """argmax_a of `proposal_values`, [B, A]."""
    values = proposal_values(search, proposals, critics, theta, carry, obs, spec)
    return best_proposal(proposals.reshape(*values.shape, proposals.shape[-1]), values)


def proposal_values(
    search: Search, proposals: Array, critics: Critics, theta: Mlp, carry: Any, obs: Array, spec: CriticSpec
) -> Array:
    """E[Q(s, a)] + kappa Std[Q(s, a)], or Q_m(s, a) for the episode's m, of K proposals a in each state. [K, B]

    Proposals are stacked, [K B, A]: the first of every state, then the second of every state.
    """
    tiled_obs = jnp.tile(obs, (len(proposals) // len(obs), 1))  # [K B, S]
    if search.how == "ucb":
        q_posterior = posterior(critics, theta, tiled_obs, proposals, spec)
        value = posterior_mean(q_posterior) + search.kappa * jnp.sqrt(posterior_variance(q_posterior))
    else:
        value = q_of_subnetwork(critics, theta, carry, tiled_obs, proposals)
    return value.reshape(-1, len(obs))
