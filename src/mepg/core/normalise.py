"""Observations with mean 0 and variance 1, for any agent: their running mean and variance are part of its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from mepg.core.types import Agent, Array, Batch, Beliefs, Key, Metrics, Sizes

CLIP = 10.0  # standard deviations; as in Stable-Baselines3's VecNormalize
EPSILON = 1e-8  # so that a constant entry is not divided by 0; as in VecNormalize too


class NormalisedState(NamedTuple):
    """An agent's state, and the mean and variance of all observations that its batches have held."""

    agent: Any
    batches: Array  # how many
    mean: Array  # [S]
    variance: Array  # [S]


def with_normalised_obs(agent: Agent, sizes: Sizes) -> Agent:
    """The same agent, which sees clip((s - mean) / std) in place of s."""

    def init(key: Key) -> NormalisedState:
        return NormalisedState(agent.init(key), jnp.int32(0), jnp.zeros(sizes.obs), jnp.ones(sizes.obs))

    def scale(state: NormalisedState, obs: Array) -> Array:
        """All of s but what says which actions are legal."""
        scaled = normalise(state, sizes.without_legal(obs))
        return jnp.concatenate([scaled, sizes.legal_actions(obs)], axis=-1) if sizes.n_legal else scaled

    def explore(state: NormalisedState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        return agent.explore(state.agent, carry, scale(state, obs), key)

    def exploit(state: NormalisedState, obs: Array) -> Array:
        return agent.exploit(state.agent, scale(state, obs))

    def update(state: NormalisedState, batch: Batch, key: Key) -> tuple[NormalisedState, Metrics]:
        state = update_statistics(state, sizes.without_legal(batch.obs))
        batch = batch._replace(obs=scale(state, batch.obs), next_obs=scale(state, batch.next_obs))
        inner, metrics = agent.update(state.agent, batch, key)
        return state._replace(agent=inner), metrics

    beliefs = agent.beliefs and _normalised_beliefs(agent.beliefs, scale)
    return Agent(init, explore, exploit, update, agent.begin, beliefs)


def _normalised_beliefs(inner: Beliefs, scale: Callable[[NormalisedState, Array], Array]) -> Beliefs:
    return Beliefs(
        lambda state, obs, action: inner.posterior(state.agent, scale(state, obs), action),
        lambda state, obs, action, key: inner.subnetwork(state.agent, scale(state, obs), action, key),
        lambda state, obs, *keys: inner.critics_policy(state.agent, scale(state, obs), *keys),
        inner.closed_form,
    )


def normalise(state: NormalisedState, obs: Array) -> Array:
    """(s - mean) / sqrt(variance + epsilon), not further from 0 than `CLIP`."""
    return jnp.clip((obs - state.mean) / jnp.sqrt(state.variance + EPSILON), -CLIP, CLIP)


def actor_statistics(state: Any, sizes: Sizes) -> Any:
    """An agent's state, and if it is normalised, the mean and variance of what the policy sees alone."""
    if not isinstance(state, NormalisedState):
        return state
    return state._replace(mean=sizes.actor_input(state.mean), variance=sizes.actor_input(state.variance))


def update_statistics(state: NormalisedState, obs: Array) -> NormalisedState:
    """Mean and variance with one more batch: those of the two groups together (Chan, Golub and LeVeque)."""
    count = state.batches + 1
    share = 1.0 / count
    delta = obs.mean(axis=0) - state.mean
    # Before the first batch mean and variance stand for no observation, and weigh nothing.
    variance = (1 - share) * state.variance + share * obs.var(axis=0) + share * (1 - share) * delta**2
    return state._replace(batches=count, mean=state.mean + share * delta, variance=variance)
