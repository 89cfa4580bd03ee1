"""What a trained agent can answer besides its next action: the critics' Q and its uncertainty, exploring actions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mepg.core import posterior
from mepg.core.types import Agent, Array, Beliefs, Key
from mepg.errors import UsageError
from mepg.jax_defaults import with_jax_defaults
from mepg.training.keys import jax_key
from mepg.training.replay import FloatArray


class AgentQueries:
    """Each query is compiled when it is first made. Answers are copies: JAX's own arrays are read-only."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self._agent = agent
        self._keys = {stream: jax_key(seed, stream) for stream in ("predict", "belief")}
        self._draw_actions = jax.jit(self._explore)
        self._moments = jax.jit(self._mean_and_variance)
        self._covariance = jax.jit(lambda *inputs: posterior.posterior_covariance(self.beliefs.posterior(*inputs)))
        self._subnetworks = jax.jit(self._draw_subnetworks, static_argnames="count")

    @property
    def beliefs(self) -> Beliefs:
        """The agent's `beliefs`; a UsageError if it has none."""
        if self._agent.beliefs is None:
            raise UsageError("this algorithm says nothing about what its critics believe: its Agent has no `beliefs`")
        return self._agent.beliefs

    @with_jax_defaults
    def draw_actions(self, state: Any, obs: FloatArray, counter: int) -> FloatArray:
        """Actions as exploration would choose them at the beginning of an episode; each counter draws others. [B, A]"""
        return np.asarray(self._draw_actions(state, obs, counter, self._keys["predict"]))

    def _explore(self, state: Any, obs: Array, counter: Array, key: Key) -> Array:
        k_begin, k_explore = jax.random.split(jax.random.fold_in(key, counter))
        return self._agent.explore(state, self._agent.begin(k_begin), obs, k_explore)[0]

    @with_jax_defaults
    def moments(self, state: Any, obs: FloatArray, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of Q. [B], [B]"""
        mean, variance = self._moments(state, obs, actions)
        return np.array(mean), np.array(variance)

    def _mean_and_variance(self, state: Any, obs: Array, actions: Array) -> tuple[Array, Array]:
        q_posterior = self.beliefs.posterior(state, obs, actions)
        return posterior.posterior_mean(q_posterior), posterior.posterior_variance(q_posterior)

    @with_jax_defaults
    def covariance(self, state: Any, obs: FloatArray, actions: FloatArray) -> FloatArray:
        """The covariance of Q between any two of these inputs. [B, B]"""
        return np.array(self._covariance(state, obs, actions))

    @with_jax_defaults
    def subnetworks(self, state: Any, obs: FloatArray, actions: FloatArray, count: int, counter: int) -> FloatArray:
        """Q of `count` sub-networks; each counter draws others. [count, B]"""
        return np.array(self._subnetworks(state, obs, actions, self._keys["belief"], counter, count=count))

    def _draw_subnetworks(
        self, state: Any, obs: Array, actions: Array, key: Key, counter: Array, *, count: int
    ) -> Array:
        keys = jax.random.split(jax.random.fold_in(key, counter), count)
        # A hundred at a time: all at once might not fit into memory.
        q: Array = jax.lax.map(lambda key: self.beliefs.subnetwork(state, obs, actions, key), keys, batch_size=100)
        return q
