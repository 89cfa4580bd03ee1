"""Policies: deterministic, and squashed Gaussian. A deterministic one has log-probability 0.

Actions live in [-1, 1] here; `envs.spaces` scales them to the environment's own bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.nets import Mlp, Network, make_network
from mepg.core.spec import Gaussian, Noise, Spec
from mepg.core.types import Array, Key, Sizes


class Policy(NamedTuple):
    """pi(a | s; phi), as pure functions of phi."""

    init: Callable[[Key], Mlp]  # -> phi
    sample: Callable[[Mlp, Array, Key], tuple[Array, Array]]  # phi, s -> a ~ pi(. | s), log pi(a | s): [B, A], [B]
    mode: Callable[[Mlp, Array], Array]  # phi, s -> the deterministic action, [B, A]


def make_policy(spec: Spec, sizes: Sizes, network: Network | None = None) -> Policy:
    """The policy that a spec describes, with the spec's network unless another one is given."""
    if network is None:
        widths = (sizes.actor_obs_width, *spec.hidden, output_width(spec, sizes))
        network = make_network(widths, spec.init, precision=spec.precision)

    def outputs(phi: Mlp, obs: Array) -> Array:
        return network.apply(phi, sizes.actor_input(obs))

    if spec.gaussian is None:

        def mode(phi: Mlp, obs: Array) -> Array:
            return jnp.tanh(outputs(phi, obs))

        def sample(phi: Mlp, obs: Array, _: Key) -> tuple[Array, Array]:
            action = mode(phi, obs)
            return action, jnp.zeros(action.shape[:-1])

        return Policy(network.init, sample, mode)
    gaussian = spec.gaussian

    def gaussian_mode(phi: Mlp, obs: Array) -> Array:
        mean, _ = jnp.split(outputs(phi, obs), 2, axis=-1)
        return jnp.tanh(mean)

    def gaussian_sample(phi: Mlp, obs: Array, key: Key) -> tuple[Array, Array]:
        return sample_squashed(*_gaussian_head(gaussian, outputs(phi, obs)), key)

    return Policy(network.init, gaussian_sample, gaussian_mode)


def output_width(spec: Spec, sizes: Sizes) -> int:
    """The outputs of the actor's network: actions, and for a Gaussian their log-std beside them."""
    return sizes.action if spec.gaussian is None else 2 * sizes.action


def sample_squashed(mean: Array, log_std: Array, key: Key) -> tuple[Array, Array]:
    """a = tanh(u), u ~ N(mean, std^2), and log pi(a) = sum log N(u) - log(1 - tanh(u)^2): [B, A], [B]."""
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    # log(1 - tanh(u)^2), in the form that neither overflows nor needs a small constant
    log_det_jacobian = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), (log_normal - log_det_jacobian).sum(axis=-1)


def add_noise(noise: Noise | None, action: Array, key: Key) -> Array:
    """a + eps, eps ~ clip(N(0, std^2), -c, c): serves exploration and target smoothing alike."""
    if noise is None:
        return action
    eps = noise.std * jax.random.normal(key, action.shape)
    if noise.clip is not None:
        eps = jnp.clip(eps, -noise.clip, noise.clip)
    return jnp.clip(action + eps, -1.0, 1.0)


def best_proposal(proposals: Array, values: Array) -> Array:
    """Each state's proposal of the highest value: [K, B, ...], [K, B] -> [B, ...]."""
    best = values.argmax(axis=0).reshape(1, -1, *(1,) * (proposals.ndim - 2))
    return jnp.take_along_axis(proposals, best, axis=0).squeeze(0)


def _gaussian_head(gaussian: Gaussian, outputs: Array) -> tuple[Array, Array]:
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    low, high = gaussian.log_std
    if gaussian.bound == "tanh":
        return mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1)
    return mean, jnp.clip(log_std, low, high)
