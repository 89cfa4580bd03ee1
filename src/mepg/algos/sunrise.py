"""SUNRISE: members that are whole SAC agents, bootstrapped, with backups that distrust what they disagree on (D13)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.algos.sac import SAC
from mepg.core import agent
from mepg.core.critics import Critics, make_critics
from mepg.core.nets import Mlp
from mepg.core.policies import Policy, best_proposal, make_policy
from mepg.core.posterior import make_beliefs
from mepg.core.spec import ActorSpec, Spec, derive, require
from mepg.core.types import Agent, AgentState, Array, Batch, Key, LossWeights, Metrics, Sizes, Trainable
from mepg.core.update import as_metrics, next_action_policy_params


@dataclass(frozen=True, kw_only=True)
class Sunrise(Spec):
    """A spec for each member, and what makes an ensemble of them."""

    members: int = 3  # M
    bootstrap: float | None = 0.5  # the probability that a member learns from a transition; None: from all
    backup_temperature: float | None = 20.0  # T of the backups' weights; None: all count alike
    ucb: float | None = None  # kappa of UCB exploration; None: one member explores for an episode

    def __post_init__(self) -> None:
        require(1 <= self.members <= 100, "members", "in [1, 100]", self.members)
        require(self.bootstrap is None or 0 < self.bootstrap <= 1, "bootstrap", "in (0, 1], or none", self.bootstrap)
        temperature = self.backup_temperature
        require(
            temperature is None or 0 <= temperature <= 1e6, "backup_temperature", "in [0, 1e6], or none", temperature
        )
        require(self.ucb is None or 0 <= self.ucb <= 1e6, "ucb", "in [0, 1e6], or none", self.ucb)
        if self.search is not None:
            raise ValueError("search is for an agent on its own: SUNRISE's members explore together; set ucb")
        super().__post_init__()

    @property
    def explores_with_critics(self) -> bool:
        return self.ucb is not None

    def _make_canonical(self) -> None:
        super()._make_canonical()
        if self.members == 1 or self.bootstrap == 1:  # bits are never all zero: the only member has each transition
            self._set("bootstrap", None)
        if self.members == 1:
            self._set("ucb", None)
        if self.backup_temperature == 0:
            self._set("backup_temperature", None)


class SunriseState(NamedTuple):
    """What learning changes, and what decides who learns from what."""

    members: AgentState  # every leaf but `updates` has a leading axis M
    bootstrap: Array  # the key of the bootstrap bits


# Members differ in all but how often they were updated: so a delay stays one decision for all of them.
MEMBERS = AgentState(updates=None, actor=0, critic=0, temperature=0, policy_average=0)  # type: ignore[arg-type]


def build(spec: Sunrise, sizes: Sizes) -> Agent:
    """M members, updated side by side on the same batch."""
    member, policy, critics = agent.build(spec, sizes), make_policy(spec, sizes), make_critics(spec, sizes)

    def init(key: Key) -> SunriseState:
        k_members, k_bootstrap = jax.random.split(key)
        members = jax.vmap(member.init, out_axes=MEMBERS)(jax.random.split(k_members, spec.members))
        return SunriseState(members, jax.random.key_data(k_bootstrap))

    def begin(key: Key) -> Any:
        return () if spec.ucb is not None else jax.random.randint(key, (), 0, spec.members)

    def explore(state: SunriseState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        if spec.ucb is None:
            action, _ = member.explore(member_state(state.members, carry), (), obs, key)
            return action, carry
        propose = jax.vmap(member.explore, (MEMBERS, None, None, 0))
        proposals, _ = propose(state.members, (), obs, jax.random.split(key, spec.members))
        return ucb_action(critics, proposals, obs, state.members.critic.params, spec.ucb), carry

    def exploit(state: SunriseState, obs: Array) -> Array:
        return jax.vmap(member.exploit, (MEMBERS, None))(state.members, obs).mean(axis=0)

    def update(state: SunriseState, batch: Batch, key: Key) -> tuple[SunriseState, Metrics]:
        k_weight, k_members = jax.random.split(key)
        backup_weight, bootstrap_weights = jnp.ones(len(batch.reward)), jnp.ones((spec.members, len(batch.reward)))
        if spec.backup_temperature is not None:
            backup_weight = backup_weights(
                policy, critics, spec, state.members, batch.next_obs, k_weight, spec.backup_temperature
            )
        if spec.bootstrap is not None:
            k_bootstrap = jax.random.wrap_key_data(state.bootstrap, impl="threefry2x32")
            bits = bootstrap_bits(k_bootstrap, batch.number, spec.bootstrap, spec.members)
            # The authors' mean over a member's own transitions has one more in the denominator.
            bootstrap_weights = bits * (len(batch.reward) / (bits.sum(axis=1, keepdims=True) + 1))
        members, metrics = jax.vmap(
            lambda own, k, weight: member.update(
                own, batch, k, LossWeights(critic=weight * backup_weight, policy=weight)
            ),
            in_axes=(MEMBERS, 0, 0),
            out_axes=(MEMBERS, 0),
        )(state.members, jax.random.split(k_members, spec.members), bootstrap_weights)
        metrics = jax.tree.map(partial(jnp.mean, axis=0), metrics)
        return state._replace(members=members), metrics | as_metrics({"backup_weight": backup_weight.mean()})

    def critics_policy(state: SunriseState, obs: Array, k_episode: Key, k_step: Key) -> tuple[Array, Array]:
        """One member for an episode: each member's critics judge its own policy."""
        assert member.beliefs is not None
        chosen = jax.random.randint(k_episode, (), 0, spec.members)
        return member.beliefs.critics_policy(member_state(state.members, chosen), obs, k_episode, k_step)

    return Agent(
        init,
        explore,
        exploit,
        update,
        begin,
        make_beliefs(critics, lambda state: all_critics(state.members.critic.params), critics_policy, spec),
    )


def bootstrap_bits(key: Key, numbers: Array, probability: float, members: int) -> Array:
    """Which member learns from which transition: Bernoulli bits, never all zero. [M, B]

    A function of the transition's number: the same whenever it is sampled, and nothing has to be stored.
    """

    def draw(number: Array) -> Array:
        *words, fallback = jax.random.bits(jax.random.fold_in(key, number), (members + 1,))
        bits = jnp.stack(words) < jnp.uint32(min(round(probability * 2**32), 2**32 - 1))
        return jnp.where(bits.any(), bits, jnp.arange(members) == fallback % members)

    return jax.vmap(draw, out_axes=1)(numbers).astype(jnp.float32)


def backup_weights(
    policy: Policy,
    critics: Critics,
    spec: ActorSpec,
    members: AgentState,
    next_obs: Array,
    key: Key,
    temperature: float,
) -> Array:
    """w(s') = sigmoid(-T std) + 0.5, std over all members' target critics, each at its own member's action. [B]"""

    def next_q(phi: Mlp, critic: Trainable, k: Key) -> Array:
        action, _ = policy.sample(phi, next_obs, k)
        return critics.q(critic.target, next_obs, action)  # [N, B]

    keys = jax.random.split(key, len(members.critic.params[0].b))
    q = jax.vmap(next_q)(next_action_policy_params(spec, members), members.critic, keys)  # [M, N, B]
    return jax.nn.sigmoid(-temperature * q.std(axis=(0, 1))) + 0.5


def member_state(members: AgentState, index: Array) -> AgentState:
    """The state of the member with this index."""
    updates, *own = members
    return AgentState(updates, *jax.tree.map(lambda leaf: leaf[index], own))


def all_critics(theta: Mlp) -> Mlp:
    """All members' critics on one axis: [M, N, ...] -> [M N, ...]."""
    critics: Mlp = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), theta)
    return critics


def ucb_action(critics: Critics, proposals: Array, obs: Array, theta: Mlp, kappa: float) -> Array:
    """argmax_a mean + kappa std of Q(s, a) over all members' critics, a among the members' proposals. [B, A]"""
    q = jax.vmap(lambda action: critics.q(all_critics(theta), obs, action))(proposals)  # [M, M N, B]
    return best_proposal(proposals, q.mean(axis=1) + kappa * q.std(axis=1))


SUNRISE = derive(Sunrise, SAC, target_every=1)
SUNRISE_UCB = replace(SUNRISE, members=5, ucb=1.0)

ALGORITHMS = {
    "sunrise": Algorithm(
        SUNRISE,
        "three bootstrapped SAC agents, backups weighted by their agreement",
        "sac",
        build,
        python_name="SUNRISE",
    ),
    "sunrise-ucb": Algorithm(
        SUNRISE_UCB, "five members, exploring where values are high or uncertain", "sunrise", build
    ),
}
