"""ACE: several actors and one critic that says which of them to follow (D12).

`ace` is its authors' agent: all networks share an encoder, and the critic looks ahead through a learned
model. `ace-flat` is what the paper's Table 10 counts: DDPG with five separate actors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.algos.ddpg import DDPG
from mepg.core import agent
from mepg.core.critics import Critics
from mepg.core.nets import Layer, Mask, Mlp, Network, init_ensemble, make_network
from mepg.core.policies import best_proposal, make_policy
from mepg.core.spec import Spec, derive, require
from mepg.core.types import Agent, Array, Batch, Beliefs, Key, Metrics, Posterior, Sizes, Trainable
from mepg.core.update import Actor, adam_step, as_metrics, init_trainable, policy_loss, polyak

TrainedActors = Literal["all", "chosen"]  # those that learn at a state; `chosen`: only the one that is followed there


def is_best(values: Array) -> Array:
    """1 for the actor that is followed, 0 for the others. [K, B]"""
    return jax.nn.one_hot(values.argmax(axis=0), len(values), axis=0)


# ace-flat: a spec of several actors


@dataclass(frozen=True, kw_only=True)
class AceFlat(Spec):
    """Any spec, with several actors."""

    actors: int = 5  # K
    learners: TrainedActors = "all"

    def __post_init__(self) -> None:
        require(1 <= self.actors <= 100, "actors", "in [1, 100]", self.actors)
        super().__post_init__()

    def _make_canonical(self) -> None:
        super()._make_canonical()
        if self.actors == 1:
            self._set("learners", "all")


def several_actors(spec: AceFlat, sizes: Sizes, critics: Critics) -> Actor:
    """pi(s) = argmax Q(s, a) over the actions a that the K actors propose; phi has the actors on axis 0."""
    policy = make_policy(spec, sizes)

    def value(theta: Mlp, obs: Array, proposals: Array) -> Array:
        """Q of the complete critics, even if they are masked: choosing an action is the policy's part. [K, B]"""
        return jax.vmap(lambda action: critics.policy_q(theta, obs, action, None))(proposals)

    def propose(phi: Mlp, obs: Array, key: Key) -> tuple[Array, Array]:
        """[K, B, A], [K, B]"""
        keys = jax.random.split(key, spec.actors)
        return jax.vmap(lambda phi_i, k: policy.sample(phi_i, obs, k))(phi, keys)

    def sample(phi: Mlp, theta: Mlp, obs: Array, key: Key) -> tuple[Array, Array]:
        proposals, log_prob = propose(phi, obs, key)
        values = value(theta, obs, proposals)
        return best_proposal(proposals, values), best_proposal(log_prob, values)

    def mode(phi: Mlp, theta: Mlp, obs: Array) -> Array:
        proposals = jax.vmap(lambda phi_i: policy.mode(phi_i, obs))(phi)
        return best_proposal(proposals, value(theta, obs, proposals))

    def loss(
        phi: Mlp, theta: Mlp, mask: Mask | None, alpha: Array | float, obs: Array, key: Key, weight: Array | float
    ) -> tuple[Array, Array]:
        """Eq. (6) for each actor, added up."""
        weights = jnp.broadcast_to(weight, (spec.actors, len(obs)))
        if spec.learners == "chosen":
            weights *= is_best(value(theta, obs, propose(phi, obs, key)[0]))
        losses, log_prob = jax.vmap(
            lambda phi_i, k, w: policy_loss(policy, critics, phi_i, theta, mask, alpha, obs, k, w)
        )(phi, jax.random.split(key, spec.actors), weights)
        return losses.sum(), log_prob

    return Actor(lambda key: jax.vmap(policy.init)(jax.random.split(key, spec.actors)), sample, mode, loss)


build_flat = partial(agent.build, make_actor=several_actors)


# ace: the authors' networks, model and tree


@dataclass(frozen=True, kw_only=True)
class OrnsteinUhlenbeck:
    """Noise that goes on from step to step: x <- x - rate x dt + std sqrt(dt) N(0, 1), from 0 in every episode."""

    rate: float = 0.15
    std: float = 0.2
    dt: float = 0.01

    def __post_init__(self) -> None:
        require(0 <= self.std <= 1e6, "std", "in [0, 1e6]", self.std)
        require(self.dt > 0, "dt", "above 0", self.dt)
        require(0 <= self.rate * self.dt <= 1, "rate", f"in [0, {1 / self.dt:g}], 1 / dt", self.rate)


@dataclass(frozen=True, kw_only=True)
class Ace:
    """The authors' settings."""

    actors: int = 5  # K
    learners: TrainedActors = "all"
    depth: int = 2  # of the tree: 1 asks the critic alone
    exploration: OrnsteinUhlenbeck | None = OrnsteinUhlenbeck()
    layer_norm: bool = False  # on the critic's hidden layer

    discount: float = 0.99  # gamma
    target_rate: float = 0.001  # eta
    lr: float = 1e-4  # of the one Adam that moves all networks
    value_scale: float = 10.0  # of the critic's and the reward model's loss beside the actors'
    hidden: tuple[int, int] = (400, 300)  # the encoder, and each network behind it
    batch_size: int = 64
    replay_size: int = 1_000_000
    warmup: int = 64  # steps with uniformly random actions, before the first update
    updates_per_step: int = 1

    def __post_init__(self) -> None:
        largest = {"actors": 100, "depth": 6, "batch_size": 10**6, "replay_size": 10**9, "updates_per_step": 10_000}
        for name, most in largest.items():
            require(1 <= getattr(self, name) <= most, name, f"in [1, {most}]", getattr(self, name))
        leaves = self.actors ** (self.depth - 1)
        require(leaves <= 10_000, "depth", "so low that the tree has at most 10,000 leaves", self.depth)
        require(all(1 <= width <= 65_536 for width in self.hidden), "hidden", "widths in [1, 65536]", self.hidden)
        for name in ("target_rate", "lr"):
            require(0 < getattr(self, name) <= 1, name, "in (0, 1]", getattr(self, name))
        require(0 < self.value_scale <= 1e6, "value_scale", "in (0, 1e6]", self.value_scale)
        require(0 <= self.discount <= 1, "discount", "in [0, 1]", self.discount)
        require(0 <= self.warmup <= 10**12, "warmup", "in [0, 10^12]", self.warmup)
        if self.actors == 1:
            object.__setattr__(self, "learners", "all")
        if self.exploration is not None and self.exploration.std == 0:
            object.__setattr__(self, "exploration", None)


class AceNetworks(NamedTuple):
    """All of ACE's networks. All but the encoder see z = tanh(encoder(s)) in place of s."""

    encoder: Layer
    actors: Mlp  # every leaf has a leading axis K
    critic: Mlp
    reward: Mlp
    transition: tuple[Layer, Layer]


class AceState(NamedTuple):
    """One set of networks, moved by one Adam."""

    updates: Array
    networks: Trainable


class Tree(NamedTuple):
    """What ACE's networks compute, as pure functions of them."""

    init: Callable[[Key], AceNetworks]
    encode: Callable[[AceNetworks, Array], Array]  # s -> z, [B, Z]
    propose: Callable[[AceNetworks, Array], Array]  # z -> what each actor would do, [K, B, A]
    imagine: Callable[[AceNetworks, Array, Array], tuple[Array, Array]]  # z, a -> the reward and z' that are expected
    value: Callable[[AceNetworks, Array, Array], Array]  # z, a -> Q_d(z, a), [B]
    values: Callable[[AceNetworks, Array, Array], Array]  # z, proposals -> Q_d of each, [K, B]


def make_tree(spec: Ace, sizes: Sizes) -> Tree:
    """The networks of a spec. Orthogonal weights, zero biases; actors and critic begin near 0."""
    code, width = spec.hidden

    def network(*widths: int, layer_norm: bool = False) -> Network:
        return make_network(widths, "orthogonal", activation=jnp.tanh, layer_norm=layer_norm)

    encoder, first, second = (network(n, code) for n in (sizes.obs, code, code + sizes.action))
    actor = network(code, width, sizes.action)
    critic = network(code + sizes.action, width, 1, layer_norm=spec.layer_norm)
    reward = network(code + sizes.action, width, 1)

    def init(key: Key) -> AceNetworks:
        k_encoder, k_actors, k_critic, k_reward, k_first, k_second = jax.random.split(key, 6)
        return AceNetworks(
            encoder=encoder.init(k_encoder)[0],
            actors=_near_zero(init_ensemble(actor, spec.actors, k_actors)),
            critic=_near_zero(critic.init(k_critic)),
            reward=reward.init(k_reward),
            transition=(first.init(k_first)[0], second.init(k_second)[0]),
        )

    def encode(net: AceNetworks, obs: Array) -> Array:
        return jnp.tanh(encoder.apply((net.encoder,), obs))

    def propose(net: AceNetworks, z: Array) -> Array:
        return jnp.tanh(jax.vmap(lambda layers: actor.apply(layers, z))(net.actors))

    def imagine(net: AceNetworks, z: Array, action: Array) -> tuple[Array, Array]:
        middle = z + jnp.tanh(first.apply(net.transition[:1], z))
        z_next = middle + jnp.tanh(second.apply(net.transition[1:], _join(middle, action)))
        return reward.apply(net.reward, _join(z, action)).squeeze(-1), z_next

    def value_at(depth: int, net: AceNetworks, z: Array, action: Array) -> Array:
        """Q_1(z, a) = critic(z, a);  Q_d(z, a) = r(z, a) + gamma max_i Q_{d-1}(z', pi_i(z')). [B]"""
        if depth == 1:
            return critic.apply(net.critic, _join(z, action)).squeeze(-1)
        expected, z_next = imagine(net, z, action)
        proposals = jax.lax.stop_gradient(propose(net, z_next))  # a value's error does not teach the actors
        return expected + spec.discount * values_at(depth - 1, net, z_next, proposals).max(axis=0)

    def values_at(depth: int, net: AceNetworks, z: Array, proposals: Array) -> Array:
        return jax.vmap(lambda action: value_at(depth, net, z, action))(proposals)

    return Tree(init, encode, propose, imagine, partial(value_at, spec.depth), partial(values_at, spec.depth))


def build(spec: Ace, sizes: Sizes) -> Agent:
    """The authors' agent."""
    tree = make_tree(spec, sizes)

    def init(key: Key) -> AceState:
        return AceState(jnp.int32(0), init_trainable(tree.init(key), with_target=True))

    def begin(_: Key) -> Any:
        return () if spec.exploration is None else jnp.zeros(sizes.action)

    def explore(state: AceState, carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
        action, noise = exploit(state, obs), spec.exploration
        if noise is None:
            return action, carry
        shock = noise.std * noise.dt**0.5 * jax.random.normal(key, carry.shape)
        carry = carry - noise.rate * carry * noise.dt + shock
        return jnp.clip(action + carry, -1.0, 1.0), carry

    def exploit(state: AceState, obs: Array) -> Array:
        net = state.networks.params
        z = tree.encode(net, obs)
        proposals = tree.propose(net, z)
        return best_proposal(proposals, tree.values(net, z, proposals))

    def update(state: AceState, batch: Batch, key: Key) -> tuple[AceState, Metrics]:  # noqa: ARG001
        target, networks = state.networks.target, state.networks
        z_next = tree.encode(target, batch.next_obs)
        next_q = tree.values(target, z_next, tree.propose(target, z_next)).max(axis=0)
        y = batch.reward + spec.discount * batch.discount * next_q

        gradient, metrics = jax.grad(partial(value_loss, spec, tree), has_aux=True)(networks.params, batch, y)
        networks = adam_step(networks, gradient, spec.lr)
        # The same Adam again: what has no gradient now, the critic and the model, still moves with its momentum.
        loss, gradient = jax.value_and_grad(partial(actors_loss, spec, tree))(networks.params, batch.obs)
        networks = adam_step(networks, gradient, spec.lr)
        networks = networks._replace(target=polyak(networks.params, networks.target, spec.target_rate))
        return AceState(state.updates + 1, networks), as_metrics(metrics | {"actor_loss": loss})

    def posterior(state: AceState, obs: Array, action: Array) -> Posterior:
        """The tree's value. One critic and no masks: nothing about it varies."""
        net = state.networks.params
        q = tree.value(net, tree.encode(net, obs), action)[None]
        return Posterior(q, jnp.zeros((*q.shape, 0)))

    beliefs = Beliefs(
        posterior,
        subnetwork=lambda state, obs, action, _: posterior(state, obs, action).q[0],
        critics_policy=lambda state, obs, *_: (exploit(state, obs), jnp.zeros(len(obs))),
    )
    return Agent(init, explore, exploit, update, begin, beliefs)


def value_loss(spec: Ace, tree: Tree, net: AceNetworks, batch: Batch, y: Array) -> tuple[Array, dict[str, Array]]:
    """E[ 1/2 (Q_d(s, a) - y)^2 + 1/2 (r(s, a) - r)^2 ]; the transition model learns only through Q_d."""
    z = tree.encode(net, batch.obs)
    q = tree.value(net, z, batch.action)
    reward, _ = tree.imagine(net, z, batch.action)
    critic_loss = 0.5 * jnp.square(q - y).mean()
    reward_loss = 0.5 * jnp.square(reward - batch.reward).mean()
    metrics = {"critic_loss": critic_loss, "reward_loss": reward_loss, "q": q.mean()}
    return spec.value_scale * (critic_loss + reward_loss), metrics


def actors_loss(spec: Ace, tree: Tree, net: AceNetworks, obs: Array) -> Array:
    """-E[ Q_d(s, pi_i(s)) ], added up over the actors; it moves them and the encoder that they see through."""
    z, fixed = tree.encode(net, obs), jax.lax.stop_gradient(net)
    values = tree.values(fixed, jax.lax.stop_gradient(z), tree.propose(net, z))  # [K, B]
    if spec.learners == "chosen":
        values *= is_best(values)
    return -values.mean(axis=1).sum()


def _near_zero(layers: Mlp) -> Mlp:
    *hidden, output = layers
    return (*hidden, output._replace(w=3e-3 * output.w))


def _join(z: Array, action: Array) -> Array:
    return jnp.concatenate([z, action], axis=-1)


ACE_FLAT = derive(AceFlat, DDPG, hidden=(400, 300))

ALGORITHMS = {
    "ace": Algorithm(Ace(), "five actors; a tree through a learned model chooses one", None, build, python_name="ACE"),
    "ace-flat": Algorithm(ACE_FLAT, "five separate actors and one critic, as Table 10 counts", "ddpg", build_flat),
}
