"""CrossQ: SAC without target networks (Bhatt, Palenicek et al., 2024), and the consistent Bellman update on it.

What makes that stable is batch normalisation, and that both sides of the Bellman equation are one batch: (s, a) and
(s', a') go through a critic together, so that they are normalised by the same mean and variance. With a mask, a
transition's row of it is the same in both halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.algos.mepg import INDEPENDENT
from mepg.core import agent, nets
from mepg.core.bellman import QValue, combine_critics, critic_loss, td_target
from mepg.core.critics import make_critics
from mepg.core.masks import draw_masks
from mepg.core.nets import BatchNorm, Layer, Mask, Mlp, Network, affine, make_network
from mepg.core.policies import add_noise, make_policy, output_width
from mepg.core.spec import Dropout, Gaussian, Spec, Temperature, require
from mepg.core.types import Agent, AgentState, Array, Batch, Key, Metrics, Sizes, Trainable
from mepg.core.update import (
    Networks,
    adam_step,
    as_metrics,
    entropy_coefficient,
    improve_policy,
    learning_rate,
    next_action_policy_params,
    policy_step,
    update_targets,
)


@dataclass(frozen=True, kw_only=True)
class BatchNormalisation:
    """Batch normalisation of each layer's input, in actor and critics."""

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
            "minto": False,
        }.items():
            value = getattr(self, name)
            require(value == only, name, f"{str(only).lower()} in CrossQ", value)
        if self.policy_average is not None and self.policy_average.rate is None:
            raise ValueError("policy_average.rate must be set: CrossQ has no target networks whose rate it could have")
        if self.gaussian is None:
            raise ValueError("gaussian must be set: CrossQ has a stochastic policy")
        widths = 1 <= len(self.actor_hidden) <= 100 and all(1 <= width <= 65_536 for width in self.actor_hidden)
        require(widths, "actor_hidden", "one to a hundred widths in [1, 65536]", self.actor_hidden)
        super().__post_init__()


def build(spec: CrossQ, sizes: Sizes) -> Agent:
    """An agent of `core.agent`'s, whose networks act with running statistics and learn with the batch's own."""
    q = batch_normalised(spec, (sizes.obs + sizes.action, *spec.hidden, 1))
    pi = batch_normalised(spec, (sizes.actor_obs_width, *spec.actor_hidden, output_width(spec, sizes)))
    critics = make_critics(spec, sizes, q.network)
    warmup = 0 if spec.batch_norm is None else spec.batch_norm.warmup

    def networks_with(policy_network: Network) -> Networks:
        actor = agent.single_actor(make_policy(spec, sizes, policy_network), critics)
        return Networks(actor, critics, agent.target_entropy(spec, sizes))

    networks = networks_with(pi.network)

    def init(key: Key) -> AgentState:
        state = agent.init(networks, spec, key)
        return state._replace(critic=state.critic._replace(target=None))

    def update(state: AgentState, batch: Batch, key: Key) -> tuple[AgentState, Metrics]:
        """One update of Algorithm 1, without target networks."""
        k_critic, k_policy, k_policy_mask = jax.random.split(key, 3)
        critic, metrics = critic_step(q, networks, spec, state, batch, k_critic, state.updates >= warmup)
        state = state._replace(updates=state.updates + 1, critic=critic)
        # The policy is updated at every `actor_every`-th update only, and so are its running statistics.
        renorm = state.updates - spec.actor_every >= min(warmup * spec.actor_every, 2**31 - 1)

        def step(
            _: Networks, spec: CrossQ, state: AgentState, batch: Batch, *rest: Any
        ) -> tuple[Trainable, Trainable | None, Metrics]:
            """phi moves down the gradient of Eq. (6): the policy has the batch's statistics, critics running ones."""
            in_training = pi.network._replace(apply=lambda phi, obs: pi.train(phi, obs, None, renorm)[0])
            actor, temperature, metrics = policy_step(networks_with(in_training), spec, state, batch, *rest)
            new_statistics = pi.train(state.actor.params, sizes.actor_input(batch.obs), None, renorm)[-1]
            return actor._replace(params=with_statistics(actor.params, new_statistics)), temperature, metrics

        state, policy_metrics = improve_policy(networks, spec, state, batch, k_policy, k_policy_mask, step=step)
        return update_targets(spec, state), as_metrics(metrics) | policy_metrics

    return agent.make_agent(networks, spec, update)._replace(init=init)


def critic_step(
    network: BatchNormalisedNetwork,
    networks: Networks,
    spec: CrossQ,
    state: AgentState,
    batch: Batch,
    key: Key,
    renorm: Array,
) -> tuple[Trainable, dict[str, Array]]:
    """theta moves down the gradient of Eq. (4), both sides of which are one forward pass through theta."""
    k_mask, k_action, k_smoothing, _ = jax.random.split(key, 4)
    mask = _both_halves(*draw_masks(spec, len(batch.reward), k_mask), len(batch.reward))  # [N, 2 B, H]
    phi = next_action_policy_params(spec, state)
    next_action, next_log_prob = networks.actor.sample(phi, state.critic.params, batch.next_obs, k_action)
    next_action = add_noise(spec.smoothing, next_action, k_smoothing)
    entropy_cost = entropy_coefficient(spec, state) * next_log_prob
    x = jnp.concatenate([batch.obs, batch.action], axis=-1)
    next_x = jnp.concatenate([batch.next_obs, next_action], axis=-1)
    both = jnp.concatenate([x, next_x])  # [2 B, S + A]

    def forward(theta: Mlp, mask: Mask | None) -> tuple[Array, Array, Mlp]:
        """One critic's Q of both halves, what its units contribute, and theta with new running statistics."""
        q, units, new_statistics = network.train(theta, both, mask, renorm)
        return q.squeeze(-1), units * theta[-1].w[:, 0], new_statistics

    def loss(theta: Mlp) -> tuple[Array, tuple[dict[str, Array], Mlp]]:
        q, contributions, new_statistics = jax.vmap(forward)(theta, mask)  # [N, 2 B], [N, 2 B, H]
        (q, next_q), (c, next_c) = (jnp.split(each, 2, axis=1) for each in (q, contributions))
        y = jax.lax.stop_gradient(td_target(batch, spec.discount, combine_critics(spec, next_q, next_c), entropy_cost))
        losses, metrics = jax.vmap(lambda *online: critic_loss(spec, QValue(*online), y))(
            q, c, jnp.arange(spec.critics)
        )
        metrics = {"critic_loss": losses.sum(), **{name: values.mean() for name, values in metrics.items()}}
        return losses.sum(), (metrics, new_statistics)

    gradient, (metrics, new_statistics) = jax.grad(loss, has_aux=True)(state.critic.params)
    critic = adam_step(state.critic, gradient, learning_rate(spec, spec.critic_lr, state.updates), spec.adam_b1)
    return critic._replace(params=with_statistics(critic.params, new_statistics)), metrics


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


# Batch renormalisation

EPSILON = 1e-3  # added to a variance; this and the two below are those of CrossQ's authors
R_MAX, D_MAX = 3.0, 5.0


class BatchNormalisedNetwork(NamedTuple):
    """A perceptron with batch normalisation of each layer's input."""

    network: Network  # for acting: with running statistics
    # For learning: layers, x, m, renorm -> outputs, last hidden units, layers with new running statistics.
    train: Callable[[Mlp, Array, Mask | None, Array], tuple[Array, Array, Mlp]]


def batch_normalised(spec: CrossQ, widths: tuple[int, ...]) -> BatchNormalisedNetwork:
    """Batch renormalisation (Ioffe, 2017) of the input, and of each hidden layer after its ReLU, as CrossQ has it.

    A mask acts on what is normalised, so it is not part of the mean and variance.
    """
    batch_norm = spec.batch_norm
    if batch_norm is None:
        plain = make_network(widths, spec.init, precision=spec.precision)
        return BatchNormalisedNetwork(plain, lambda layers, x, mask, _: (*plain.apply_masked(layers, x, mask), layers))
    momentum, multiply = batch_norm.momentum, nets.MATMULS[spec.precision]

    def forward(
        layers: Mlp, x: Array, mask: Mask | None, normalise: Callable[[BatchNorm, Array], tuple[Array, BatchNorm]]
    ) -> tuple[Array, Array, Mlp]:
        new_layers: list[Layer] = []
        for layer, m in zip(layers, (None, *(mask or (None,) * (len(layers) - 1))), strict=True):
            assert isinstance(layer.norm, BatchNorm)
            units, norm = normalise(layer.norm, jax.nn.relu(x) if new_layers else x)
            new_layers.append(layer._replace(norm=norm))
            product = jnp.matmul if len(new_layers) == len(layers) else multiply
            x = affine(product, layer.w, layer.b, units if m is None else m * units)
        return x, units, tuple(new_layers)

    def with_running_statistics(norm: BatchNorm, x: Array) -> tuple[Array, BatchNorm]:
        return (x - norm.mean) * jax.lax.rsqrt(norm.variance + EPSILON) * norm.scale + norm.shift, norm

    def apply_masked(layers: Mlp, x: Array, mask: Mask | None) -> tuple[Array, Array]:
        outputs, units, _ = forward(layers, x, mask, with_running_statistics)
        return outputs, units

    def train(layers: Mlp, x: Array, mask: Mask | None, renorm: Array) -> tuple[Array, Array, Mlp]:
        return forward(layers, x, mask, lambda norm, x: renormalise(norm, x, momentum, renorm))

    def init(key: Key) -> Mlp:
        layers = nets.init_layers(widths, nets.INITIALISERS[spec.init], False, key)
        all_ones = [jnp.ones(layer.w.shape[0]) for layer in layers]
        return tuple(
            layer._replace(norm=BatchNorm(ones, 0 * ones, 0 * ones, ones))
            for layer, ones in zip(layers, all_ones, strict=True)
        )

    network = Network(init, lambda layers, x: apply_masked(layers, x, None)[0], apply_masked)
    return BatchNormalisedNetwork(network, train)


def renormalise(norm: BatchNorm, x: Array, momentum: float, renorm: Array | bool) -> tuple[Array, BatchNorm]:
    """((x - mean) / std) r + d, scaled and shifted; r and d lead from the batch's mean and std to the running ones.

    Both are bounded, and 1 and 0 without `renorm`: plain batch normalisation. No gradient goes through them.
    """
    mean, variance = x.mean(axis=0), x.var(axis=0)
    inv_std = jax.lax.rsqrt(variance + EPSILON)
    batch_inv_std, shift, running_inv_std = jax.lax.stop_gradient(
        (inv_std, mean - norm.mean, jax.lax.rsqrt(norm.variance + EPSILON))
    )
    r = jnp.where(renorm, jnp.clip(running_inv_std / batch_inv_std, 1 / R_MAX, R_MAX), 1.0)
    d = jnp.where(renorm, jnp.clip(shift * running_inv_std, -D_MAX, D_MAX), 0.0)
    new_norm = norm._replace(
        mean=momentum * norm.mean + (1 - momentum) * mean,
        variance=momentum * norm.variance + (1 - momentum) * variance,
    )
    return ((x - mean) * inv_std * r + d) * norm.scale + norm.shift, new_norm


def with_statistics(layers: Mlp, others: Mlp) -> Mlp:
    """The layers with the running statistics of others, as `train` gave them."""

    def replaced(layer: Layer, other: Layer) -> Layer:
        if not (isinstance(layer.norm, BatchNorm) and isinstance(other.norm, BatchNorm)):
            return layer
        return layer._replace(norm=layer.norm._replace(mean=other.norm.mean, variance=other.norm.variance))

    return tuple(map(replaced, layers, others))


def _algorithm(spec: CrossQ, summary: str, parent: str, python_name: str | None = None) -> Algorithm:
    return Algorithm(spec, summary, parent, build, python_name=python_name)


CROSSQ = CrossQ()
ME_CROSSQ = replace(CROSSQ, dropout=Dropout(), critics=1)

ALGORITHMS = {
    "crossq": _algorithm(CROSSQ, "SAC with batch normalisation and without target networks", "sac", "CrossQ"),
    "me-crossq": _algorithm(ME_CROSSQ, "the consistent Bellman update on CrossQ", "crossq", "ME_CrossQ"),
    "me-crossq-do": _algorithm(replace(ME_CROSSQ, dropout=None), "without dropout", "me-crossq"),
    "me-crossq-r": _algorithm(replace(ME_CROSSQ, dropout=INDEPENDENT), "a separate mask on each side", "me-crossq"),
}
