"""From a spec to an agent: its networks, how they begin, how they act, and `update.update`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.bellman import critic_gradient
from mepg.core.critics import Critics, make_critics
from mepg.core.nets import BatchNorm
from mepg.core.policies import Policy, add_noise, make_policy
from mepg.core.posterior import make_beliefs
from mepg.core.search import choose_proposal, init_search
from mepg.core.spec import ActorSpec, Spec
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metrics, Sizes, Trainable
from mepg.core.update import (
    Actor,
    CriticGradient,
    Networks,
    acting_policy_params,
    entropy_coefficient,
    init_trainable,
    policy_loss,
    update,
)

Update = Callable[[AgentState, Batch, Key], tuple[AgentState, Metrics]]


def build(
    spec: Spec,
    sizes: Sizes,
    make_actor: Callable[[Any, Sizes, Critics], Actor] | None = None,
    critic_gradient: CriticGradient = critic_gradient,
) -> Agent:
    """The agent that `spec` describes, for observations and actions of these sizes.

    :param critic_gradient: another function of the same shape, for another y
    """
    critics = make_critics(spec, sizes)
    actor = single_actor(make_policy(spec, sizes), critics) if make_actor is None else make_actor(spec, sizes, critics)
    nets = Networks(actor, critics, target_entropy(spec, sizes))
    return make_agent(nets, spec, partial(update, nets, spec, critic_gradient=critic_gradient))


def single_actor(policy: Policy, critics: Critics) -> Actor:
    """The actor of one policy, as in every algorithm here but ACE."""
    return Actor(
        init=policy.init,
        sample=lambda phi, _, obs, key: policy.sample(phi, obs, key),
        mode=lambda phi, _, obs: policy.mode(phi, obs),
        loss=partial(policy_loss, policy, critics),
    )


def target_entropy(spec: ActorSpec, sizes: Sizes) -> float:
    """H of Eq. (8): -dim(A), unless the spec says otherwise."""
    from_spec = None if spec.temperature is None else spec.temperature.target_entropy
    return -float(sizes.action) if from_spec is None else from_spec


def make_agent(nets: Networks, spec: Spec, update: Update) -> Agent:
    """The agent that has these networks, for actions in a box."""
    return Agent(
        init=partial(init, nets, spec),
        explore=partial(explore, nets, spec),
        exploit=partial(exploit, nets, spec),
        update=update,
        begin=partial(init_search, spec.search, spec),
        beliefs=make_beliefs(
            nets.critics, lambda state: state.critic.params, partial(critics_policy, nets, spec), spec
        ),
    )


def init(nets: Networks, spec: ActorSpec, key: Key) -> AgentState:
    """theta, phi and alpha, with their targets where they have any."""
    k_actor, k_critic = jax.random.split(key)
    temperature = None
    if spec.temperature is not None and spec.temperature.lr is not None:
        log_alpha = jnp.log(jnp.float32(spec.temperature.initial))
        temperature = init_trainable(log_alpha, with_target=False)
    actor = init_trainable(nets.actor.init(k_actor), with_target=not spec.stochastic)
    return AgentState(
        updates=jnp.int32(0),
        actor=actor,
        critic=init_trainable(nets.critics.init(k_critic), with_target=True),
        temperature=temperature,
        policy_average=None if spec.policy_average is None else jax.tree.map(jnp.copy, actor.params),
    )


def explore(nets: Networks, spec: Spec, state: AgentState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
    """a ~ pi(s), and noise; or with a search the most promising of several such proposals."""
    k_sample, k_noise = jax.random.split(key)
    theta = state.critic.params

    def propose(obs: Array) -> Array:
        action, _ = nets.actor.sample(acting_policy_params(spec, state), theta, obs, k_sample)
        return add_noise(spec.exploration, action, k_noise)

    if spec.search is None:
        return propose(obs), carry
    proposals = propose(jnp.tile(obs, (spec.search.proposals, 1)))
    return choose_proposal(spec.search, proposals, nets.critics, theta, carry, obs, spec), carry


def exploit(nets: Networks, spec: ActorSpec, state: AgentState, obs: Array) -> Array:
    """The policy's mode."""
    return nets.actor.mode(acting_policy_params(spec, state), state.critic.params, obs)


def critics_policy(
    nets: Networks, spec: ActorSpec, state: AgentState, obs: Array, _: Key, key: Key
) -> tuple[Array, Array]:
    """a ~ pi(s), the policy whose Q the critics learn, and its entropy bonus in Eq. (7): -alpha log pi(a | s)."""
    averaged = spec.policy_average is not None and spec.policy_average.in_targets
    phi = state.policy_average if averaged else state.actor.params
    action, log_prob = nets.actor.sample(phi, state.critic.params, obs, key)
    return action, -entropy_coefficient(spec, state) * log_prob


class ParameterCount(NamedTuple):
    """Parameters of all networks, the targets among them (D11)."""

    as_paper: int  # Table 10: a Gaussian policy without its log-std outputs
    as_is: int


def count_parameters(agent: Agent, spec: Any) -> ParameterCount:
    """Of every `Trainable` of the agent's state but log alpha; from shapes alone, nothing is initialised.

    Running means and variances of batch normalisation are no parameters: no gradient moves them.
    """
    state = jax.eval_shape(agent.init, jax.random.key(0))
    count = log_std_outputs = 0
    for path, trainable in jax.tree.flatten_with_path(state, is_leaf=lambda node: isinstance(node, Trainable))[0]:
        name = getattr(path[-1], "name", None) if path else None
        if not isinstance(trainable, Trainable) or name == "temperature":
            continue
        count += _size((trainable.params, trainable.target))
        if name == "actor" and getattr(spec, "gaussian", None) is not None:
            *_, head = trainable.params
            log_std_outputs += _size((head.w, head.b)) // 2
    return ParameterCount(as_paper=count - log_std_outputs, as_is=count)


def _size(tree: Any) -> int:
    def size(node: Any) -> int:
        return sum(leaf.size for leaf in ((node.scale, node.shift) if isinstance(node, BatchNorm) else (node,)))

    return sum(map(size, jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, BatchNorm))))
