"""Algorithm 1: one update.

With each transition (s, a, r, s') that is stored, the training loop samples a batch, and `update`

- draws m and moves theta down the gradient of Eq. (4): `bellman.critic_gradient`;
- every `actor_every` updates moves phi down the gradient of Eq. (6), `policy_loss`, and alpha down that of Eq. (8),
  `temperature_loss`;
- every `target_every` updates lets the targets follow: theta' <- eta theta + (1 - eta) theta', phi' likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mepg.core.bellman import critic_gradient
from mepg.core.critics import Critics
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.policies import Policy
from mepg.core.spec import ActorSpec, Spec
from mepg.core.types import AgentState, Array, Batch, Key, LossWeights, Metric, Metrics, Params, Trainable

CriticGradient = Callable[..., tuple[Mlp, dict[str, Array]]]  # as `bellman.critic_gradient`, with another y


class Actor(NamedTuple):
    """How actions are chosen and improved. theta is used only to choose among several policies, as in ACE."""

    init: Callable[[Key], Mlp]  # -> phi
    sample: Callable[[Mlp, Mlp, Array, Key], tuple[Array, Array]]  # phi, theta, s -> a, log pi(a | s)
    mode: Callable[[Mlp, Mlp, Array], Array]  # phi, theta, s -> a
    # phi, theta, m, alpha, s, key, weight -> the loss, log pi(a | s)
    loss: Callable[[Mlp, Mlp, Mask | None, Array | float, Array, Key, Array | float], tuple[Array, Array]]


class Networks(NamedTuple):
    """An agent's networks, as functions of their parameters."""

    actor: Actor
    critics: Critics
    target_entropy: Array | float  # what alpha aims at, everywhere or in each state of a batch: [B]


def update(
    nets: Networks,
    spec: Spec,
    state: AgentState,
    batch: Batch,
    key: Key,
    weights: LossWeights = LossWeights(),  # noqa: B008
    critic_gradient: CriticGradient = critic_gradient,
) -> tuple[AgentState, Metrics]:
    """One update of Algorithm 1: theta by Eq. (4), then phi, alpha and the targets, each at its interval."""
    k_critic, k_policy, k_policy_mask = jax.random.split(key, 3)
    pi = partial(nets.actor.sample, next_action_policy_params(spec, state), state.critic.target)
    theta, theta_target, _ = state.critic
    gradient, metrics = critic_gradient(
        nets.critics, spec, theta, theta_target, pi, entropy_coefficient(spec, state), batch, k_critic, weights.critic
    )
    critic = adam_step(state.critic, gradient, learning_rate(spec, spec.critic_lr, state.updates), spec.adam_b1)
    state = state._replace(updates=state.updates + 1, critic=critic)
    state, policy_metrics = improve_policy(nets, spec, state, batch, k_policy, k_policy_mask, weights.policy)
    return update_targets(spec, state), as_metrics(metrics) | policy_metrics


def policy_step(
    nets: Networks, spec: ActorSpec, state: AgentState, batch: Batch, key: Key, k_mask: Key, weight: Array | float
) -> tuple[Trainable, Trainable | None, Metrics]:
    """phi moves down the gradient of Eq. (6), and alpha down that of Eq. (8) unless it has an interval of its own."""
    alpha = entropy_coefficient(spec, state)
    masked = spec.dropout is not None and spec.dropout.policy_mask
    mask, _ = draw_masks(spec, len(batch.reward), k_mask) if masked else (None, None)  # None: the complete critics
    (loss, log_prob), gradient = jax.value_and_grad(nets.actor.loss, has_aux=True)(
        state.actor.params, state.critic.params, mask, alpha, batch.obs, key, weight
    )
    metrics = {"actor_loss": loss}
    if spec.stochastic:
        metrics["entropy"] = -log_prob.mean()
    if spec.temperature is not None:
        metrics["ent_coef"] = jnp.float32(alpha)
    temperature = state.temperature
    if spec.temperature is not None and spec.temperature.every is None:
        temperature = temperature_step(spec, temperature, log_prob, nets.target_entropy, weight)
    if spec.temperature is not None and spec.temperature.lr is not None:
        metrics["ent_coef_loss"] = temperature_loss(jnp.float32(alpha), log_prob, nets.target_entropy, weight)
    actor_lr = learning_rate(spec, spec.actor_lr, state.updates)
    return adam_step(state.actor, gradient, actor_lr, spec.adam_b1), temperature, as_metrics(metrics)


def improve_policy(
    nets: Networks,
    spec: ActorSpec,
    state: AgentState,
    batch: Batch,
    key: Key,
    k_mask: Key,
    weight: Array | float = 1.0,
    step: Callable[..., tuple[Trainable, Trainable | None, Metrics]] = policy_step,
) -> tuple[AgentState, Metrics]:
    """A `policy_step` every `actor_every` updates, the paper's delay d, and alpha's own step if it has an interval."""

    def due() -> tuple[Trainable, Trainable | None, Metrics]:
        return step(nets, spec, state, batch, key, k_mask, weight)

    def not_due() -> tuple[Trainable, Trainable | None, Metrics]:
        no_metrics = jax.tree.map(lambda number: jnp.zeros(number.shape), jax.eval_shape(due)[2])
        return state.actor, state.temperature, no_metrics

    def temperature_due() -> Trainable | None:
        _, log_prob = nets.actor.sample(state.actor.params, state.critic.params, batch.obs, key)
        return temperature_step(spec, state.temperature, log_prob, nets.target_entropy, weight)

    actor, temperature, metrics = cond_every(spec.actor_every, state.updates, due, not_due)
    if spec.temperature is not None and spec.temperature.every is not None:
        temperature = cond_every(spec.temperature.every, state.updates, temperature_due, lambda: state.temperature)
    return state._replace(actor=actor, temperature=temperature), metrics


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

    With alpha = 0 and a deterministic policy its gradient is Eq. (5). Without a mask the complete critics say Q: the
    ensemble of all their sub-networks. Also gives log pi(a | s), [B].
    """
    action, log_prob = policy.sample(phi, obs, key)
    q = critics.policy_q(theta, obs, action, mask)
    return (weight * (alpha * log_prob - q)).mean(), log_prob


def temperature_loss(
    alpha: Array, log_prob: Array, target_entropy: Array | float, weight: Array | float = 1.0
) -> Array:
    """Eq. (8): J(alpha) = E[ -alpha log pi(a | s) - alpha H ], H the target entropy."""
    return (weight * -alpha * (log_prob + target_entropy)).mean()


def temperature_step(
    spec: ActorSpec,
    temperature: Trainable | None,
    log_prob: Array,
    target_entropy: Array | float,
    weight: Array | float,
) -> Trainable | None:
    """log alpha moves down the gradient of Eq. (8); a fixed alpha stays."""
    if temperature is None or spec.temperature is None or spec.temperature.lr is None:
        return temperature

    def loss(log_alpha: Array) -> Array:
        return temperature_loss(jnp.exp(log_alpha), log_prob, target_entropy, weight)

    return adam_step(temperature, jax.grad(loss)(temperature.params), spec.temperature.lr)


def entropy_coefficient(spec: ActorSpec, state: AgentState) -> Array | float:
    """alpha, learned or fixed; 0 without an entropy term."""
    if state.temperature is not None:
        return jnp.exp(state.temperature.params)
    return 0.0 if spec.temperature is None else spec.temperature.initial


def acting_policy_params(spec: ActorSpec, state: AgentState) -> Params:
    """phi of the policy that acts: the learned one, or its average."""
    averaged = spec.policy_average is not None and spec.policy_average.acts
    return state.policy_average if averaged else state.actor.params


def next_action_policy_params(spec: ActorSpec, state: AgentState) -> Params:
    """phi of the policy that chooses a': the target's if there is one, or the average."""
    if spec.policy_average is not None and spec.policy_average.in_targets:
        return state.policy_average
    return state.actor.params if state.actor.target is None else state.actor.target


def update_targets(spec: ActorSpec, state: AgentState) -> AgentState:
    """theta', phi' and the policy's average follow, every `target_every` updates."""
    rate = spec.target_rate
    average_rate = rate if spec.policy_average is None else spec.policy_average.rate or rate
    theta_target, phi_target, phi_average = cond_every(
        spec.target_every,
        state.updates,
        lambda: (
            polyak(state.critic.params, state.critic.target, rate),
            polyak(state.actor.params, state.actor.target, rate),
            polyak(state.actor.params, state.policy_average, average_rate),
        ),
        lambda: (state.critic.target, state.actor.target, state.policy_average),
    )
    return state._replace(
        critic=state.critic._replace(target=theta_target),
        actor=state.actor._replace(target=phi_target),
        policy_average=phi_average,
    )


def polyak(params: Params, target: Params | None, rate: float) -> Params | None:
    """theta' <- eta theta + (1 - eta) theta'; None where there is no target."""
    return None if target is None else optax.incremental_update(params, target, rate)


def init_trainable(params: Params, *, with_target: bool) -> Trainable:
    """Parameters with a target network, if they have one, and Adam's moments at 0."""
    # A copy: the state is donated to the update, and a buffer can be given away only once.
    target = jax.tree.map(jnp.copy, params) if with_target else None
    return Trainable(params, target, optax.adam(0.0).init(params))  # moments do not depend on the rate


def learning_rate(spec: ActorSpec, lr: float, updates: Array) -> Array | float:
    """lr (1 - t / T) after t of T updates, and 0 from then on; without a decay, lr."""
    if spec.lr_decay is None:
        return lr
    return lr * jnp.maximum(1 - updates / spec.lr_decay, 0.0)


def adam_step(trainable: Trainable, gradient: Params, lr: Array | float, b1: float = 0.9) -> Trainable:
    """One step of Adam."""
    step, moments = optax.adam(lr, b1).update(gradient, trainable.moments)
    return trainable._replace(params=optax.apply_updates(trainable.params, step), moments=moments)


def cond_every(period: int, updates: Array, due: Callable[[], Any], not_due: Callable[[], Any]) -> Any:
    """`due()` at multiples of `period` (D6), else `not_due()`. Return only what changes: the rest would be copied."""
    return due() if period == 1 else jax.lax.cond(updates % period == 0, due, not_due)


def as_metrics(values: dict[str, Array]) -> Metrics:
    """Each value with weight 1."""
    return {name: Metric(value, jnp.float32(1)) for name, value in values.items()}
