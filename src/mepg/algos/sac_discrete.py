"""SAC for discrete actions: what is drawn elsewhere is summed over all actions here; ME-SAC: with one masked critic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.algos.mepg import INDEPENDENT
from mepg.core import agent
from mepg.core.bellman import QValue, td_gradient, td_target
from mepg.core.critics import Critics, lower_bound, make_critics, reduce_critics
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp, make_network
from mepg.core.posterior import make_beliefs
from mepg.core.spec import ActorSpec, Dropout, Temperature, require
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metrics, Sizes
from mepg.core.update import (
    Actor,
    Networks,
    acting_policy_params,
    adam_step,
    as_metrics,
    entropy_coefficient,
    improve_policy,
    learning_rate,
    next_action_policy_params,
    update_targets,
)


@dataclass(frozen=True, kw_only=True)
class CategoricalSpec(ActorSpec):
    """Critics of discrete actions, and a policy that has a probability for each."""

    entropy_ratio: float = 0.5  # of log A, the largest possible entropy: what alpha aims at; A counts the legal

    critics: int = 2  # N
    target_every: int = 1  # the target networks follow every so many critic updates
    init: Literal["uniform", "orthogonal"] = "orthogonal"  # D10
    batch_size: int = 64
    replay_size: int = 100_000
    warmup: int = 1_000  # steps with uniformly random actions, before the first update

    def __post_init__(self) -> None:
        require(0 <= self.entropy_ratio <= 1, "entropy_ratio", "in [0, 1]", self.entropy_ratio)
        super().__post_init__()
        if self.quantiles is not None:
            raise ValueError("quantiles=none is needed: the policy's mean over actions is of numbers")
        if self.dropout is not None and self.dropout.masks == "expected":
            raise ValueError("dropout.masks=expected has no closed form for a sum over actions: set another")

    def _make_canonical(self) -> None:
        super()._make_canonical()
        learns_temperature = self.temperature is not None and self.temperature.lr is not None
        if not learns_temperature or (self.temperature is not None and self.temperature.target_entropy is not None):
            self._set("entropy_ratio", CategoricalSpec.entropy_ratio)


def build(spec: CategoricalSpec, sizes: Sizes) -> Agent:
    """The agent that `spec` describes: Algorithm 1, with a sum over actions where others draw one."""
    critics = make_critics(spec, sizes)
    network = make_network((sizes.actor_obs_width, *spec.hidden, sizes.action), spec.init, precision=spec.precision)

    def preferences(phi: Mlp, obs: Array) -> Array:
        return sizes.among_legal(network.apply(phi, sizes.actor_input(obs)), obs)

    def log_pi(phi: Mlp, obs: Array) -> Array:
        """log pi(a | s) of each action; of one that is not legal, so low that pi and pi log pi are 0. [B, A]"""
        return jax.nn.log_softmax(preferences(phi, obs))

    def sample(phi: Mlp, _: Mlp, obs: Array, key: Key) -> tuple[Array, Array]:
        logs = log_pi(phi, obs)
        action = jax.random.categorical(key, logs)[:, None]
        chosen = jnp.where(action == jnp.arange(sizes.action), logs, 0.0).sum(axis=-1)
        return action.astype(jnp.float32), chosen

    def mode(phi: Mlp, _: Mlp, obs: Array) -> Array:
        return preferences(phi, obs).argmax(axis=-1, keepdims=True).astype(jnp.float32)

    def loss(
        phi: Mlp, theta: Mlp, mask: Mask | None, alpha: Array | float, obs: Array, _: Key, weight: Array | float
    ) -> tuple[Array, Array]:
        """Eq. (6), summed: J(phi) = E[ sum_a pi(a | s) (alpha log pi(a | s) - Q(s, a)) ], and sum_a pi log pi. [B]"""
        logs = log_pi(phi, obs)
        pi, q = jnp.exp(logs), reduce_critics(spec, *critics.action_values(theta, obs, mask))
        return (weight * (pi * (alpha * logs - q)).sum(axis=-1)).mean(), (pi * logs).sum(axis=-1)

    def explore(state: AgentState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        return sample(acting_policy_params(spec, state), state.critic.params, obs, key)[0], carry

    nets = Networks(Actor(network.init, sample, mode, loss), critics, target_entropy(spec, math.log(sizes.action)))

    def update(state: AgentState, batch: Batch, key: Key) -> tuple[AgentState, Metrics]:
        """One update of Algorithm 1."""
        k_critic, k_policy, k_policy_mask = jax.random.split(key, 3)
        batch_nets = nets
        if sizes.n_legal:  # with fewer legal actions, the largest possible entropy is smaller too
            largest = jnp.log(sizes.legal_actions(batch.obs).sum(axis=-1))  # [B]
            batch_nets = nets._replace(target_entropy=target_entropy(spec, largest))
        next_log_pi = log_pi(next_action_policy_params(spec, state), batch.next_obs)  # [B, A]
        theta, theta_target, _ = state.critic
        alpha = entropy_coefficient(spec, state)
        gradient, metrics = critic_gradient(critics, spec, theta, theta_target, next_log_pi, alpha, batch, k_critic)
        critic = adam_step(state.critic, gradient, learning_rate(spec, spec.critic_lr, state.updates), spec.adam_b1)
        state = state._replace(updates=state.updates + 1, critic=critic)
        state, policy_metrics = improve_policy(batch_nets, spec, state, batch, k_policy, k_policy_mask)
        return update_targets(spec, state), as_metrics(metrics) | policy_metrics

    return Agent(
        init=partial(agent.init, nets, spec),
        explore=explore,
        exploit=partial(agent.exploit, nets, spec),
        update=update,
        beliefs=make_beliefs(
            critics, lambda state: state.critic.params, partial(agent.critics_policy, nets, spec), spec
        ),
    )


def target_entropy(spec: CategoricalSpec, largest: Array | float) -> Array | float:
    """H of Eq. (8): a share of the largest possible entropy, unless the spec says otherwise."""
    from_spec = None if spec.temperature is None else spec.temperature.target_entropy
    return spec.entropy_ratio * largest if from_spec is None else from_spec


def critic_gradient(
    critics: Critics,
    spec: CategoricalSpec,
    theta: Mlp,
    theta_target: Mlp,
    next_log_pi: Array,
    alpha: Array | float,
    batch: Batch,
    key: Key,
) -> tuple[Mlp, dict[str, Array]]:
    """Eq. (4), y = r + gamma sum_a' pi(a' | s') (min_i D_m Q_i(s', a') - alpha log pi(a' | s')): Eq. (7), summed."""
    k_mask, *_ = jax.random.split(key, 4)  # as in core/bellman.py, which needs the others
    mask, target_mask = draw_masks(spec, len(batch.reward), k_mask)  # the same one, except in ablations: [N, B, H]
    q = lower_bound(spec, *critics.action_values(theta_target, batch.next_obs, target_mask)).min(axis=0)  # [B, A]
    next_value = (jnp.exp(next_log_pi) * (q - alpha * next_log_pi)).sum(axis=-1)  # [B]
    y = td_target(batch, spec.discount, QValue(next_value, None, jnp.int32(0)))  # [B]
    return td_gradient(critics, spec, theta, batch, mask, y)


def _algorithm(spec: CategoricalSpec, summary: str, parent: str | None, python_name: str | None = None) -> Algorithm:
    return Algorithm(spec, summary, parent, build, ("discrete",), python_name)


SAC_DISCRETE = CategoricalSpec(temperature=Temperature())
ME_SAC_DISCRETE = replace(SAC_DISCRETE, dropout=Dropout(), critics=1, actor_every=2)

ALGORITHMS = {
    "sac-discrete": _algorithm(SAC_DISCRETE, "SAC for discrete actions, two critics", None, "SACDiscrete"),
    "me-sac-discrete": _algorithm(
        ME_SAC_DISCRETE, "the consistent Bellman update on SAC for discrete actions", "sac-discrete", "ME_SACDiscrete"
    ),
    "me-sac-discrete-do": _algorithm(replace(ME_SAC_DISCRETE, dropout=None), "without dropout", "me-sac-discrete"),
    "me-sac-discrete-r": _algorithm(
        replace(ME_SAC_DISCRETE, dropout=INDEPENDENT), "a separate mask on each side", "me-sac-discrete"
    ),
}
