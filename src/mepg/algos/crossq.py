"""CrossQ: SAC without target networks (Bhatt, Palenicek et al., 2024), and the consistent Bellman update on it.

What makes that stable is batch normalisation, and that both sides of the Bellman equation are one batch: (s, a) and
(s', a') go through a critic together, so that they are normalised by the same mean and variance. With a mask, a
transition's row of it is the same in both halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.algos.mepg import INDEPENDENT
from mepg.core import agent
from mepg.core.bellman import Side, loss, lowest, target
from mepg.core.critics import make_critics
from mepg.core.distances import make_distance
from mepg.core.masks import draw_masks
from mepg.core.nets import Mask, Mlp, Network, NormalisedNetwork, make_network, make_normalised_network, with_statistics
from mepg.core.policies import head_width, jitter, make_policy
from mepg.core.spec import Dropout, Gaussian, Spec, Temperature, require
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metrics, Sizes, Trainable


@dataclass(frozen=True, kw_only=True)
class BatchNormalisation:
    """Of what goes into each layer of actor and critics."""

    momentum: float = 0.99  # of the running means and variances
    warmup: int = 100_000  # a network's updates before batch normalisation becomes batch renormalisation

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)
        require(0 <= self.warmup <= 10**9, "warmup", "in [0, 10^9]", self.warmup)


AUTHORS_POLICY, AUTHORS_TEMPERATURE = Gaussian(log_std=(-20.0, 2.0), bound="clip"), Temperature(initial=1.0, lr=1e-3)


@dataclass(frozen=True, kw_only=True)
class CrossQ(Spec):
    """The authors' settings, but for `hidden`: their critics are 2048 wide."""

    batch_norm: BatchNormalisation | None = BatchNormalisation()  # None: none, and SAC without targets is left
    actor_hidden: tuple[int, ...] = (256, 256)  # the policy's widths; `hidden` is the critics'
    gaussian: Gaussian | None = AUTHORS_POLICY
    temperature: Temperature | None = AUTHORS_TEMPERATURE
    critics: int = 2
    actor_every: int = 3
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    adam_b1: float = 0.5
    target_rate: float = 1.0  # there are no target networks, or they follow at once, which is the same
    target_every: int = 1
    warmup: int = 5_000  # steps with uniformly random actions, before the first update

    def __post_init__(self) -> None:
        for name, only in {
            "target_rate": 1,
            "target_every": 1,
            "subset": None,
            "layer_norm": False,
            "quantiles": None,
        }.items():
            value = getattr(self, name)
            require(value == only, name, f"{str(only).lower()} in CrossQ", value)
        if self.gaussian is None:
            raise ValueError("gaussian must be set: CrossQ has a stochastic policy")
        widths = 1 <= len(self.actor_hidden) <= 100 and all(1 <= width <= 65_536 for width in self.actor_hidden)
        require(widths, "actor_hidden", "one to a hundred widths in [1, 65536]", self.actor_hidden)
        super().__post_init__()


def build(spec: CrossQ, sizes: Sizes) -> Agent:
    """An agent of `core.agent`'s, whose networks act as they stand and learn with a batch's mean and variance."""
    q = _network(spec, (sizes.obs + sizes.action, *spec.hidden, 1))
    pi = _network(spec, (sizes.obs, *spec.actor_hidden, head_width(spec, sizes)))
    critics = make_critics(spec, sizes, q.network)
    warmup = 0 if spec.batch_norm is None else spec.batch_norm.warmup

    def actors_with(network: Network) -> agent.Actors:
        return agent.actors_of(make_policy(spec, sizes, network), critics)

    moves = partial(evaluate, q, warmup), partial(improve, pi, actors_with, min(warmup * spec.actor_every, 2**31 - 1))
    actors, entropy = actors_with(pi.network), -float(sizes.action)
    made = agent.assemble(critics, agent.Parts(spec, actors, critics.init, entropy, *moves))

    def init(key: Key) -> AgentState:
        state: AgentState = made.init(key)
        return state._replace(critic=state.critic._replace(target=None))

    return made._replace(init=init)


def _network(spec: CrossQ, widths: tuple[int, ...]) -> NormalisedNetwork:
    how = spec.batch_norm
    if how is not None:
        return make_normalised_network(widths, spec.init, momentum=how.momentum, precision=spec.precision)
    plain = make_network(widths, spec.init, precision=spec.precision)
    return NormalisedNetwork(plain, lambda layers, x, mask, _: (*plain.apply_masked(layers, x, mask), layers))


def evaluate(
    network: NormalisedNetwork,
    warmup: int,
    parts: agent.Parts,
    state: AgentState,
    batch: Batch,
    key: Key,
    weight: Array | float,
) -> tuple[Trainable, Metrics]:
    """theta moves down the gradient of Eq. (4), both sides of which are one forward pass through theta."""
    spec, count, trusted = parts.spec, len(batch.reward), state.updates >= warmup
    assert isinstance(spec, CrossQ)
    k_mask, k_action, k_smoothing, _ = jax.random.split(key, 4)
    mask = _both_halves(*draw_masks(spec, count, k_mask), count)
    next_action, bonus = agent.play(parts, state, batch.next_obs, key, k_action)  # a' ~ pi(s'), -alpha log pi(a' | s')
    next_action = jitter(spec.smoothing, next_action, k_smoothing)
    now, following = (
        jnp.concatenate(pair, axis=-1) for pair in ((batch.obs, batch.action), (batch.next_obs, next_action))
    )
    both = jnp.concatenate([now, following])  # [2 B, S + A]

    def one(theta: Mlp, mask: Mask | None) -> tuple[Array, Array, Mlp]:
        value, units, seen = network.train(theta, both, mask, trusted)
        return value.squeeze(-1), units * theta[-1].w[:, 0], seen

    def total(theta: Mlp) -> tuple[Array, tuple[dict[str, Array], Mlp]]:
        value, adds, seen = jax.vmap(one)(theta, mask)  # [N, 2 B], [N, 2 B, H]
        (value, next_value), (adds, next_adds) = (jnp.split(each, 2, axis=1) for each in (value, adds))
        least = lowest(next_value, next_adds, None)
        y = target(least._replace(value=least.value + bonus), batch, spec.discount)
        y = jax.lax.stop_gradient(y)
        losses, metrics = jax.vmap(lambda *online: loss(Side(*online), y, make_distance(spec), spec.dropout, weight))(
            value, adds, jnp.arange(spec.critics)
        )
        metrics = {"critic_loss": losses.sum(), **{name: values.mean() for name, values in metrics.items()}}
        return losses.sum(), (metrics, seen)

    gradient, (metrics, seen) = jax.grad(total, has_aux=True)(state.critic.params)
    critic = agent.descend(state.critic, gradient, spec.critic_lr, spec.adam_b1)
    return critic._replace(params=with_statistics(critic.params, seen)), agent.as_metrics(metrics)


def _both_halves(m: Mask | None, m_next: Mask | None, count: int) -> Mask | None:
    """A mask for (s, a) above (s', a'), [N, 2 B, H]: consistent masks are the same row twice."""
    if m is None:
        return None
    if m_next is None:  # the complete network on the side of s'
        m_next = jax.tree.map(jnp.ones_like, m)

    def rows(layer: Array) -> Array:
        return jnp.broadcast_to(layer, (layer.shape[0], count, layer.shape[2]))

    joined: Mask = jax.tree.map(lambda *halves: jnp.concatenate(list(map(rows, halves)), axis=1), m, m_next)
    return joined


def improve(
    network: NormalisedNetwork,
    actors_with: Callable[[Network], agent.Actors],
    warmup: int,  # in updates of the critics
    parts: agent.Parts,
    state: AgentState,
    batch: Batch,
    key: Key,
    k_mask: Key,
    weight: Array | float,
) -> tuple[Trainable, Trainable | None, Metrics]:
    """phi moves down the gradient of Eq. (6): the policy learns with the batch's mean and variance, critics stand."""
    trusted = state.updates - parts.spec.actor_every >= warmup

    def outputs(phi: Mlp, obs: Array) -> Array:
        return network.train(phi, obs, None, trusted)[0]

    actors = actors_with(network.network._replace(apply=outputs))
    actor, temperature, metrics = agent.improve_policy(parts._replace(actors=actors), state, batch, key, k_mask, weight)
    *_, seen = network.train(state.actor.params, batch.obs, None, trusted)
    return actor._replace(params=with_statistics(actor.params, seen)), temperature, metrics


def count_parameters(spec: CrossQ, sizes: Sizes) -> agent.Count:
    """Of actor and critics, without the running means and variances, which no gradient moves."""
    state = jax.eval_shape(build(spec, sizes).init, jax.random.key(0))
    *_, head = state.actor.params
    layers = (*state.actor.params, *state.critic.params)
    running = sum(layer.norm.mean.size + layer.norm.variance.size for layer in layers if layer.norm is not None)
    as_is = sum(leaf.size for leaf in jax.tree.leaves(layers)) - running
    return agent.Count(as_paper=as_is - (head.w.size + head.b.size) // 2, as_is=as_is)


def _named(spec: CrossQ, summary: str, parent: str) -> Algorithm:
    return Algorithm(spec, summary, parent, build, count_parameters)


CROSSQ = CrossQ()
ME_CROSSQ = replace(CROSSQ, dropout=Dropout(), critics=1)

ALGORITHMS = {
    "crossq": _named(CROSSQ, "SAC with batch normalisation and without target networks", "sac"),
    "me-crossq": _named(ME_CROSSQ, "the consistent Bellman update on CrossQ", "crossq"),
    "me-crossq-do": _named(replace(ME_CROSSQ, dropout=None), "without dropout", "me-crossq"),
    "me-crossq-r": _named(replace(ME_CROSSQ, dropout=INDEPENDENT), "a separate mask on each side", "me-crossq"),
}
