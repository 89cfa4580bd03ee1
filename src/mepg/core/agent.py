"""Algorithm 1: from a spec to an agent.

With each transition (s, a, r, s') that is stored, the outer loop (`run.loop`) samples a batch, and `update`

- draws m and moves theta down the gradient of Eq. (4): `bellman.critic_loss`;
- every `actor_every` updates moves phi down the gradient of Eq. (6): `improvement.policy_loss`,
  and alpha down that of Eq. (8): `improvement.temperature_loss`;
- every `target_every` updates lets the targets follow: theta' <- eta theta + (1 - eta) theta', phi' likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mepg.core import policies
from mepg.core.bellman import critic_loss
from mepg.core.improvement import policy_loss, temperature_loss
from mepg.core.masks import draw_masks
from mepg.core.nets import init_critics, init_mlp
from mepg.core.spec import Spec
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metric, Metrics, Params, Sizes, Trainable


def build(spec: Spec, sizes: Sizes) -> Agent:
    """The agent that `spec` describes, for observations and actions of these sizes."""
    actor_widths = (sizes.obs, *spec.hidden, policies.head_width(spec, sizes))
    critic_widths = (sizes.obs + sizes.action, *spec.hidden, 1)

    def init(key: Key) -> AgentState:
        k_actor, k_critic = jax.random.split(key)
        phi = init_mlp(k_actor, actor_widths, spec.init)
        theta = init_critics(k_critic, spec.critics, critic_widths, spec.init, layer_norm=spec.layer_norm)
        return AgentState(
            updates=jnp.int32(0),
            actor=_start(phi, spec.actor_lr, with_target=spec.gaussian is None),
            critic=_start(theta, spec.critic_lr, with_target=True),
            temperature=_start_temperature(spec),
        )

    def explore(state: AgentState, obs: Array, key: Key) -> Array:
        k_sample, k_noise = jax.random.split(key)
        action, _ = policies.sample(spec, state.actor.params, obs, k_sample)
        return policies.jitter(spec.exploration, action, k_noise)

    def exploit(state: AgentState, obs: Array) -> Array:
        return policies.mode(spec, state.actor.params, obs)

    def update(state: AgentState, batch: Batch, key: Key) -> tuple[AgentState, Metrics]:
        k_critic, k_policy, k_mask = jax.random.split(key, 3)
        updates = state.updates + 1  # D6: what is due at every d-th update is due at multiples of d
        critic, metrics = evaluate_policy(state, batch, k_critic)
        state = state._replace(updates=updates, critic=critic)

        def improve() -> tuple[Trainable, Trainable | None, Metrics]:
            return improve_policy(state, batch, k_policy, k_mask)

        def leave() -> tuple[Trainable, Trainable | None, Metrics]:
            unknown = jax.tree.map(lambda number: jnp.zeros(number.shape), jax.eval_shape(improve)[2])
            return state.actor, state.temperature, unknown

        actor, temperature, policy_metrics = _every(spec.actor_every, updates, improve, leave)
        if spec.temperature is not None and spec.temperature.every is not None:
            temperature = _every(
                spec.temperature.every,
                updates,
                lambda: adjust_temperature(state, batch, k_policy),
                lambda: state.temperature,
            )
        theta_target, phi_target = _every(
            spec.target_every,
            updates,
            lambda: (_follow(critic, spec.target_rate), _follow(actor, spec.target_rate)),
            lambda: (critic.target, actor.target),
        )
        state = AgentState(
            updates, actor._replace(target=phi_target), critic._replace(target=theta_target), temperature
        )
        return state, metrics | policy_metrics

    def evaluate_policy(state: AgentState, batch: Batch, key: Key) -> tuple[Trainable, Metrics]:
        theta, theta_target, _ = state.critic
        phi_next = state.actor.params if state.actor.target is None else state.actor.target
        gradient, metrics = jax.grad(critic_loss, has_aux=True)(
            theta, theta_target, phi_next, _alpha(spec, state), batch, key, spec
        )
        return _descend(state.critic, gradient, spec.critic_lr), _metrics(metrics)

    def improve_policy(
        state: AgentState, batch: Batch, key: Key, k_mask: Key
    ) -> tuple[Trainable, Trainable | None, Metrics]:
        alpha = _alpha(spec, state)
        masked = spec.dropout is not None and spec.dropout.improve_on == "masked"
        mask, _ = draw_masks(spec, len(batch.reward), k_mask) if masked else (None, None)
        (loss, log_prob), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            state.actor.params, state.critic.params, mask, alpha, batch.obs, key, spec
        )
        metrics = {"actor_loss": loss}
        if spec.gaussian is not None:
            metrics["entropy"] = -log_prob.mean()
        if spec.temperature is not None:
            metrics["ent_coef"] = jnp.float32(alpha)
        temperature = state.temperature
        if spec.temperature is not None and spec.temperature.every is None:
            temperature = _adjust(spec, sizes, temperature, log_prob)
        if spec.temperature is not None and spec.temperature.lr is not None:
            metrics["ent_coef_loss"] = temperature_loss(jnp.float32(alpha), log_prob, _target_entropy(spec, sizes))
        return _descend(state.actor, gradient, spec.actor_lr), temperature, _metrics(metrics)

    def adjust_temperature(state: AgentState, batch: Batch, key: Key) -> Trainable | None:
        _, log_prob = policies.sample(spec, state.actor.params, batch.obs, key)
        return _adjust(spec, sizes, state.temperature, log_prob)

    return Agent(init, explore, exploit, update)


class Count(NamedTuple):
    """Parameters of all networks, the targets among them (D11)."""

    as_paper: int  # Table 10: a Gaussian policy without its log-std outputs
    as_is: int


def count_parameters(spec: Spec, sizes: Sizes) -> Count:
    """From shapes alone; nothing is trained or even initialised."""
    state = jax.eval_shape(build(spec, sizes).init, jax.random.key(0))
    networks = [state.actor.params, state.actor.target, state.critic.params, state.critic.target]
    as_is = sum(leaf.size for leaf in jax.tree.leaves(networks))
    log_std_outputs = 0 if spec.gaussian is None else sizes.action * (spec.hidden[-1] + 1)
    return Count(as_paper=as_is - log_std_outputs, as_is=as_is)


def _metrics(values: dict[str, Array]) -> Metrics:
    return {name: Metric(value, jnp.float32(1)) for name, value in values.items()}


def _alpha(spec: Spec, state: AgentState) -> Array | float:
    if state.temperature is not None:
        return jnp.exp(state.temperature.params)
    return 0.0 if spec.temperature is None else spec.temperature.initial


def _start(params: Params, lr: float, *, with_target: bool) -> Trainable:
    # A copy: the state is donated to the update, and a buffer can be given away only once.
    target = jax.tree.map(jnp.copy, params) if with_target else None
    return Trainable(params, target, optax.adam(lr).init(params))


def _start_temperature(spec: Spec) -> Trainable | None:
    if spec.temperature is None or spec.temperature.lr is None:
        return None
    return _start(jnp.log(jnp.float32(spec.temperature.initial)), spec.temperature.lr, with_target=False)


def _descend(what: Trainable, gradient: Params, lr: float) -> Trainable:
    """One step of Adam."""
    step, moments = optax.adam(lr).update(gradient, what.moments)
    return what._replace(params=optax.apply_updates(what.params, step), moments=moments)


def _target_entropy(spec: Spec, sizes: Sizes) -> float:
    assert spec.temperature is not None
    given = spec.temperature.target_entropy
    return -float(sizes.action) if given is None else given


def _adjust(spec: Spec, sizes: Sizes, temperature: Trainable | None, log_prob: Array) -> Trainable | None:
    if temperature is None or spec.temperature is None or spec.temperature.lr is None:
        return temperature
    target = _target_entropy(spec, sizes)
    gradient = jax.grad(lambda log_alpha: temperature_loss(jnp.exp(log_alpha), log_prob, target))(temperature.params)
    return _descend(temperature, gradient, spec.temperature.lr)


def _follow(what: Trainable, rate: float) -> Params | None:
    """theta' <- eta theta + (1 - eta) theta'."""
    return None if what.target is None else optax.incremental_update(what.params, what.target, rate)


def _every(period: int, count: Array, act: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """`act` at multiples of `period`. Both must give only what `act` changes: what passes through is copied."""
    return act() if period == 1 else jax.lax.cond(count % period == 0, act, skip)
