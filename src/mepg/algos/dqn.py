"""DQN and QR-DQN: no actor, the best action is the one with the largest Q; ME-DQN and ME-QR-DQN: with one mask.

The complete network selects a', as it is what policies are improved on elsewhere; the masked one evaluates it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mepg.algos import Algorithm
from mepg.algos.mepg import INDEPENDENT
from mepg.core.bellman import combine_critics, td_gradient, td_target
from mepg.core.critics import Critics, make_critics, reduce_critics
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.posterior import make_beliefs
from mepg.core.search import init_search, proposal_values
from mepg.core.spec import CriticSpec, Dropout, Quantiles, Search, require, require_uncertainty
from mepg.core.types import Agent, Array, Batch, Key, Metrics, Sizes, Trainable
from mepg.core.update import adam_step, as_metrics, cond_every, init_trainable, polyak


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """How often an action is random: from `start` to `end` on a line, over the first `steps` steps of a run."""

    start: float = 1.0
    end: float = 0.05
    steps: int = 10_000  # the warm-up, whose actions are all random, is among them

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            require(0 <= getattr(self, name) <= 1, name, "in [0, 1]", getattr(self, name))
        require(1 <= self.steps <= 10**12, "steps", "in [1, 10^12]", self.steps)


@dataclass(frozen=True, kw_only=True)
class ValueSpec(CriticSpec):
    """Critics of discrete actions, and how the best of these is sought and tried."""

    double: bool = True  # whether the online network says which next action is best, or the target network
    epsilon: Epsilon | None = Epsilon()  # None: no action is random but those of the warm-up
    search: Search | None = None  # None: the action with the largest Q; otherwise all actions are proposed
    max_grad_norm: float | None = None  # a longer gradient is shortened to this; None: none is

    huber: float | None = 1.0  # the distance from which the loss is a line; None: never
    target_every: int = 1  # the target network follows every so many critic updates
    target_rate: float = 0.02  # eta
    critic_lr: float = 2.5e-4
    batch_size: int = 128
    replay_size: int = 100_000
    warmup: int = 1_000  # steps with uniformly random actions, before the first update

    def __post_init__(self) -> None:
        norm = self.max_grad_norm
        require(norm is None or 0 < norm <= 1e6, "max_grad_norm", "in (0, 1e6], or none", norm)
        super().__post_init__()
        if self.search is not None:
            require_uncertainty(self, self.search)

    def _make_canonical(self) -> None:
        super()._make_canonical()
        if self.search is not None:  # every action is proposed, however many there are
            self._set("search", replace(self.search, proposals=Search().proposals))
        if self.epsilon is not None:
            if self.epsilon.start == self.epsilon.end:
                self._set("epsilon", replace(self.epsilon, steps=Epsilon().steps))
            if self.epsilon.start == self.epsilon.end == 0:
                self._set("epsilon", None)


class ValueState(NamedTuple):
    """All that learning changes."""

    updates: Array  # how many there have been
    critic: Trainable  # every leaf has a leading axis N: the critics


def build(spec: ValueSpec, sizes: Sizes) -> Agent:
    """The agent that `spec` describes: critics, and no actor."""
    critics = make_critics(spec, sizes)
    best = partial(best_action, spec, critics)

    def init(key: Key) -> ValueState:
        return ValueState(jnp.int32(0), init_trainable(critics.init(key), with_target=True))

    def exploit(state: ValueState, obs: Array) -> Array:
        return best(state.critic.params, obs, None)

    def explore(state: ValueState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        k_epsilon, k_action = jax.random.split(key)
        if spec.search is None:
            action = exploit(state, obs)
        else:
            proposals = jnp.repeat(jnp.arange(sizes.action, dtype=jnp.float32), len(obs))[:, None]  # [A B, 1]
            values = proposal_values(spec.search, proposals, critics, state.critic.params, carry, obs, spec)  # [A, B]
            action = argmax_action(sizes.among_legal(values.T, obs))
        if spec.epsilon is None:
            return action, carry
        random_actions = random_action(sizes, obs, k_action)
        epsilon = exploration_rate(spec, spec.epsilon, state.updates)
        return jnp.where(jax.random.uniform(k_epsilon, action.shape) < epsilon, random_actions, action), carry

    def update(state: ValueState, batch: Batch, key: Key) -> tuple[ValueState, Metrics]:
        """theta moves down the gradient of Eq. (4), and the target network follows when it is due."""
        theta, theta_target, _ = state.critic
        gradient, metrics = critic_gradient(critics, spec, theta, theta_target, batch, key)
        if spec.max_grad_norm is not None:
            gradient, _ = optax.clip_by_global_norm(spec.max_grad_norm).update(gradient, optax.EmptyState())
        if spec.epsilon is not None:
            metrics["exploration_rate"] = exploration_rate(spec, spec.epsilon, state.updates)
        critic = adam_step(state.critic, gradient, spec.critic_lr, spec.adam_b1)
        updates = state.updates + 1
        target = cond_every(
            spec.target_every,
            updates,
            lambda: polyak(critic.params, critic.target, spec.target_rate),
            lambda: critic.target,
        )
        return ValueState(updates, critic._replace(target=target)), as_metrics(metrics)

    def critics_policy(state: ValueState, obs: Array, _: Key, __: Key) -> tuple[Array, Array]:
        return exploit(state, obs), jnp.zeros(len(obs))

    beliefs = make_beliefs(critics, lambda state: state.critic.params, critics_policy, spec)
    return Agent(init, explore, exploit, update, partial(init_search, spec.search, spec), beliefs)


def best_action(spec: ValueSpec, critics: Critics, theta: Mlp, obs: Array, mask: Mask | None) -> Array:
    """argmax_a Q(s, a; theta), its index. [B, 1]"""
    q = reduce_critics(spec, *critics.action_values(theta, obs, mask))
    return argmax_action(q)


def argmax_action(values: Array) -> Array:
    """The index of the largest in each row: [B, A] -> [B, 1]."""
    return values.argmax(axis=-1, keepdims=True).astype(jnp.float32)


def random_action(sizes: Sizes, obs: Array, key: Key) -> Array:
    """Any action, or any that is legal in s: all with the same probability. [B, 1]"""
    if not sizes.n_legal:
        return jax.random.randint(key, (len(obs), 1), 0, sizes.action).astype(jnp.float32)
    return argmax_action(sizes.among_legal(jax.random.uniform(key, (len(obs), sizes.action)), obs))


def critic_gradient(
    critics: Critics, spec: ValueSpec, theta: Mlp, theta_target: Mlp, batch: Batch, key: Key
) -> tuple[Mlp, dict[str, Array]]:
    """Eq. (4) with y = r + gamma D_m Q(s', a'; theta'), a' = argmax_a Q(s', a) of the complete network.

    That is the target network, or for the double estimate the online one.
    """
    k_mask, *_ = jax.random.split(key, 4)  # as in core/bellman.py, which needs the others
    mask, target_mask = draw_masks(spec, len(batch.reward), k_mask)  # the same one, except in ablations: [N, B, H]
    masked = spec.dropout is not None and spec.dropout.policy_mask
    selecting_theta = theta if spec.double else theta_target
    next_action = best_action(spec, critics, selecting_theta, batch.next_obs, target_mask if masked else None)  # [B, 1]
    next_value = combine_critics(spec, *critics.values(theta_target, batch.next_obs, next_action, target_mask))  # [B]
    y = td_target(batch, spec.discount, next_value)  # [B]
    return td_gradient(critics, spec, theta, batch, mask, y)


def exploration_rate(spec: ValueSpec, epsilon: Epsilon, updates: Array) -> Array:
    """epsilon(t) = start + min(t / steps, 1) (end - start), t steps after the run began."""
    t = spec.warmup + updates / spec.updates_per_step
    return epsilon.start + jnp.minimum(t / epsilon.steps, 1.0) * (epsilon.end - epsilon.start)


def _algorithm(spec: ValueSpec, summary: str, parent: str | None, python_name: str | None = None) -> Algorithm:
    return Algorithm(spec, summary, parent, build, ("discrete",), python_name)


DQN = ValueSpec()
ME_DQN = replace(DQN, dropout=Dropout())
QR_DQN = replace(DQN, quantiles=Quantiles(count=50))
ME_QR_DQN = replace(QR_DQN, dropout=Dropout())

ALGORITHMS = {
    "dqn": _algorithm(DQN, "discrete actions, the one with the largest Q", None, "DQN"),
    "me-dqn": _algorithm(ME_DQN, "the consistent Bellman update on DQN", "dqn", "ME_DQN"),
    "me-dqn-do": _algorithm(DQN, "without dropout, which is dqn", "me-dqn"),
    "me-dqn-r": _algorithm(replace(ME_DQN, dropout=INDEPENDENT), "a separate mask on each side", "me-dqn"),
    "qr-dqn": _algorithm(QR_DQN, "DQN with 50 quantiles of the return", "dqn", "QRDQN"),
    "me-qr-dqn": _algorithm(ME_QR_DQN, "the consistent Bellman update on QR-DQN", "qr-dqn", "ME_QRDQN"),
    "me-qr-dqn-r": _algorithm(replace(ME_QR_DQN, dropout=INDEPENDENT), "a separate mask on each side", "me-qr-dqn"),
}
