"""Algorithm 1: from a spec to an agent.

With each transition (s, a, r, s') that is stored, the outer loop (`run.loop`) samples a batch, and `update`

- draws m and moves theta down the gradient of Eq. (4): `bellman.critic_gradient`;
- every `actor_every` updates moves phi down the gradient of Eq. (6): `improvement.policy_loss`,
  and alpha down that of Eq. (8): `improvement.temperature_loss`;
- every `target_every` updates lets the targets follow: theta' <- eta theta + (1 - eta) theta', phi' likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mepg.core import policies
from mepg.core.bellman import Equation, actor_critic, critic_gradient
from mepg.core.critics import Critics, make_critics
from mepg.core.improvement import policy_loss, temperature_loss
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp
from mepg.core.posterior import beliefs
from mepg.core.search import begin_search, most_promising
from mepg.core.spec import ActorSpec, Spec
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metric, Metrics, Params, Sizes, Trainable, Weights


class Actors(NamedTuple):
    """How actions are chosen and improved. Where there are several actors, theta tells which to follow."""

    init: Callable[[Key], Mlp]  # -> phi
    sample: Callable[[Mlp, Mlp, Array, Key], tuple[Array, Array]]  # phi, theta, s -> a, log pi(a | s)
    mode: Callable[[Mlp, Mlp, Array], Array]  # phi, theta, s -> a
    loss: Callable[[Mlp, Mlp, Mask | None, Array | float, Array, Key, Array | float], tuple[Array, Array]]


def one_actor(spec: Spec, sizes: Sizes, critics: Critics) -> Actors:
    """A single policy network, as in every algorithm here but ACE."""
    return actors_of(policies.make_policy(spec, sizes), critics)


def actors_of(policy: policies.Policy, critics: Critics) -> Actors:
    """The same, for a policy that has been made."""
    return Actors(
        init=policy.init,
        sample=lambda phi, _, obs, key: policy.sample(phi, obs, key),
        mode=lambda phi, _, obs: policy.mode(phi, obs),
        loss=partial(policy_loss, policy, critics),
    )


class Parts(NamedTuple):
    """What an agent is made of. The functions below work for all agents that have these parts."""

    spec: ActorSpec
    actors: Actors
    init_critics: Callable[[Key], Mlp]  # -> theta
    target_entropy: float  # what alpha aims at, unless the spec says otherwise
    evaluate: Callable[..., tuple[Trainable, Metrics]]  # as `evaluate_policy` without its first argument
    improve: Callable[..., tuple[Trainable, Trainable | None, Metrics]]  # as `improve_policy`


def build(spec: Spec, sizes: Sizes, make_actors: Callable[[Any, Sizes, Critics], Actors] = one_actor) -> Agent:
    """The agent that `spec` describes, for observations and actions of these sizes."""
    critics = make_critics(spec, sizes)
    actors = make_actors(spec, sizes, critics)
    evaluate = partial(evaluate_policy, partial(judged, spec, critics, actors))
    return assemble(critics, Parts(spec, actors, critics.init, -float(sizes.action), evaluate, improve_policy))


def assemble(critics: Critics, parts: Parts) -> Agent:
    """The agent that has these parts, for actions in a box."""
    spec = parts.spec
    assert isinstance(spec, Spec)
    return Agent(
        init=partial(init, parts),
        explore=partial(explore, spec, critics, parts.actors),
        exploit=partial(exploit, parts),
        update=partial(update, parts),
        begin=partial(begin_search, spec.search, spec),
        beliefs=beliefs(critics, lambda state: state.critic.params, partial(play, parts), spec),
    )


def init(parts: Parts, key: Key) -> AgentState:
    """theta, phi and alpha, with their targets where they have any."""
    spec, (k_actor, k_critic) = parts.spec, jax.random.split(key)
    phi = parts.actors.init(k_actor)
    theta = parts.init_critics(k_critic)
    return AgentState(
        updates=jnp.int32(0),
        actor=start(phi, spec.actor_lr, with_target=not spec.stochastic),
        critic=start(theta, spec.critic_lr, with_target=True),
        temperature=_start_temperature(spec),
    )


def explore(
    spec: Spec, critics: Critics, actors: Actors, state: AgentState, memory: Any, obs: Array, key: Key
) -> tuple[Array, Any]:
    """a ~ pi(s), and noise; or with a search the most promising of several such proposals."""
    k_sample, k_noise = jax.random.split(key)

    def propose(obs: Array) -> Array:
        action, _ = actors.sample(state.actor.params, state.critic.params, obs, k_sample)
        return policies.jitter(spec.exploration, action, k_noise)

    if spec.search is None:
        return propose(obs), memory
    proposals = propose(jnp.tile(obs, (spec.search.proposals, 1)))
    return most_promising(spec.search, proposals, critics, state.critic.params, memory, obs, spec), memory


def exploit(parts: Parts, state: AgentState, obs: Array) -> Array:
    """The policy's best guess at a."""
    return parts.actors.mode(state.actor.params, state.critic.params, obs)


def update(
    parts: Parts,
    state: AgentState,
    batch: Batch,
    key: Key,
    weights: Weights = Weights(),  # noqa: B008
) -> tuple[AgentState, Metrics]:
    """One update of Algorithm 1: theta by Eq. (4), then what is due of phi, alpha and the targets."""
    spec, (k_critic, k_policy, k_mask) = parts.spec, jax.random.split(key, 3)
    updates = state.updates + 1  # D6: what is due at every d-th update is due at multiples of d
    critic, metrics = parts.evaluate(parts, state, batch, k_critic, weights.critic)
    state = state._replace(updates=updates, critic=critic)

    def improve() -> tuple[Trainable, Trainable | None, Metrics]:
        return parts.improve(parts, state, batch, k_policy, k_mask, weights.policy)

    def leave() -> tuple[Trainable, Trainable | None, Metrics]:
        unknown = jax.tree.map(lambda number: jnp.zeros(number.shape), jax.eval_shape(improve)[2])
        return state.actor, state.temperature, unknown

    actor, temperature, policy_metrics = every(spec.actor_every, updates, improve, leave)
    if spec.temperature is not None and spec.temperature.every is not None:
        temperature = every(
            spec.temperature.every,
            updates,
            lambda: adjust_temperature(parts, state, batch, k_policy, weights.policy),
            lambda: state.temperature,
        )
    theta_target, phi_target = every(
        spec.target_every,
        updates,
        lambda: (moved_target(critic, spec.target_rate), moved_target(actor, spec.target_rate)),
        lambda: (critic.target, actor.target),
    )
    state = AgentState(updates, actor._replace(target=phi_target), critic._replace(target=theta_target), temperature)
    return state, metrics | policy_metrics


def evaluate_policy(
    equation: Callable[[AgentState, Batch], Equation],
    parts: Parts,
    state: AgentState,
    batch: Batch,
    key: Key,
    weight: Array | float,
) -> tuple[Trainable, Metrics]:
    """theta moves down the gradient of Eq. (4), of this Bellman equation."""
    spec = parts.spec
    gradient, metrics = critic_gradient(equation(state, batch), state.critic.params, batch, key, spec, weight)
    return descend(state.critic, gradient, spec.critic_lr, spec.adam_b1), as_metrics(metrics)


def judged(spec: Spec, critics: Critics, actors: Actors, state: AgentState, batch: Batch) -> Equation:
    """The Bellman equation of the policy that the critics judge: the target actor's, where there is one."""
    phi_next = state.actor.params if state.actor.target is None else state.actor.target
    pi = partial(actors.sample, phi_next, state.critic.target)
    return actor_critic(critics, state.critic.target, pi, alpha_of(spec, state), batch, spec)


def improve_policy(
    parts: Parts, state: AgentState, batch: Batch, key: Key, k_mask: Key, weight: Array | float
) -> tuple[Trainable, Trainable | None, Metrics]:
    """phi moves down the gradient of Eq. (6), and alpha down that of Eq. (8) unless it has an interval of its own."""
    spec, alpha = parts.spec, alpha_of(parts.spec, state)
    masked = spec.dropout is not None and spec.dropout.improve_on == "masked"
    mask, _ = draw_masks(spec, len(batch.reward), k_mask) if masked else (None, None)
    (loss, log_prob), gradient = jax.value_and_grad(parts.actors.loss, has_aux=True)(
        state.actor.params, state.critic.params, mask, alpha, batch.obs, key, weight
    )
    metrics = {"actor_loss": loss}
    if spec.stochastic:
        metrics["entropy"] = -log_prob.mean()
    if spec.temperature is not None:
        metrics["ent_coef"] = jnp.float32(alpha)
    temperature = state.temperature
    if spec.temperature is not None and spec.temperature.every is None:
        temperature = _adjust(parts, temperature, log_prob, weight)
    if spec.temperature is not None and spec.temperature.lr is not None:
        target = _target_entropy(parts)
        metrics["ent_coef_loss"] = temperature_loss(jnp.float32(alpha), log_prob, target, weight)
    return descend(state.actor, gradient, spec.actor_lr, spec.adam_b1), temperature, as_metrics(metrics)


def adjust_temperature(
    parts: Parts, state: AgentState, batch: Batch, key: Key, weight: Array | float
) -> Trainable | None:
    """alpha moves down the gradient of Eq. (8), at a ~ pi(s)."""
    _, log_prob = parts.actors.sample(state.actor.params, state.critic.params, batch.obs, key)
    return _adjust(parts, state.temperature, log_prob, weight)


def play(parts: Parts, state: AgentState, obs: Array, _: Key, key: Key) -> tuple[Array, Array]:
    """a ~ pi(s), the policy that the critics judge, and what Eq. (7) pays for its entropy: -alpha log pi(a | s)."""
    action, log_prob = parts.actors.sample(state.actor.params, state.critic.params, obs, key)
    return action, -alpha_of(parts.spec, state) * log_prob


class Count(NamedTuple):
    """Parameters of all networks, the targets among them (D11)."""

    as_paper: int  # Table 10: a Gaussian policy without its log-std outputs
    as_is: int


def count_parameters(spec: Spec, sizes: Sizes) -> Count:
    """Counted from shapes alone; nothing is trained or even initialised."""
    return count_networks(jax.eval_shape(build(spec, sizes).init, jax.random.key(0)), spec)


def count_networks(state: AgentState, spec: ActorSpec) -> Count:
    """The same from a state, which may hold several agents or actors on axis 0."""
    networks = [state.actor.params, state.actor.target, state.critic.params, state.critic.target]
    as_is = sum(leaf.size for leaf in jax.tree.leaves(networks))
    outputs = sum(leaf.size for leaf in jax.tree.leaves(state.actor.params[-1]))
    log_std_outputs = outputs // 2 if isinstance(spec, Spec) and spec.stochastic else 0
    return Count(as_paper=as_is - log_std_outputs, as_is=as_is)


def as_metrics(values: dict[str, Array]) -> Metrics:
    """Each value with weight 1."""
    return {name: Metric(value, jnp.float32(1)) for name, value in values.items()}


def alpha_of(spec: ActorSpec, state: AgentState) -> Array | float:
    """alpha, learned or fixed; 0 without an entropy term."""
    if state.temperature is not None:
        return jnp.exp(state.temperature.params)
    return 0.0 if spec.temperature is None else spec.temperature.initial


def start(params: Params, lr: float, *, with_target: bool) -> Trainable:
    """Parameters with a target network, if they have one, and Adam's moments at 0."""
    # A copy: the state is donated to the update, and a buffer can be given away only once.
    target = jax.tree.map(jnp.copy, params) if with_target else None
    return Trainable(params, target, optax.adam(lr).init(params))


def _start_temperature(spec: ActorSpec) -> Trainable | None:
    if spec.temperature is None or spec.temperature.lr is None:
        return None
    return start(jnp.log(jnp.float32(spec.temperature.initial)), spec.temperature.lr, with_target=False)


def descend(what: Trainable, gradient: Params, lr: float, b1: float = 0.9) -> Trainable:
    """One step of Adam."""
    step, moments = optax.adam(lr, b1).update(gradient, what.moments)
    return what._replace(params=optax.apply_updates(what.params, step), moments=moments)


def shortened(gradient: Params, most: float | None) -> Params:
    """The gradient, with its norm brought down to `most` if it is longer; 1e-6 as in torch."""
    if most is None:
        return gradient
    norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(most / (norm + 1e-6), 1.0), gradient)


def _target_entropy(parts: Parts) -> float:
    assert parts.spec.temperature is not None
    given = parts.spec.temperature.target_entropy
    return parts.target_entropy if given is None else given


def _adjust(parts: Parts, temperature: Trainable | None, log_prob: Array, weight: Array | float) -> Trainable | None:
    setting = parts.spec.temperature
    if temperature is None or setting is None or setting.lr is None:
        return temperature
    target = _target_entropy(parts)
    gradient = jax.grad(lambda log_alpha: temperature_loss(jnp.exp(log_alpha), log_prob, target, weight))(
        temperature.params
    )
    return descend(temperature, gradient, setting.lr)


def moved_target(what: Trainable, rate: float) -> Params | None:
    """theta' <- eta theta + (1 - eta) theta'."""
    return None if what.target is None else optax.incremental_update(what.params, what.target, rate)


def every(period: int, count: Array, act: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """`act` at multiples of `period`. Both return only what `act` changes: anything passed through would be copied."""
    return act() if period == 1 else jax.lax.cond(count % period == 0, act, skip)
