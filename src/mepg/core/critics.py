"""Critics: N networks for Q(s, a), along axis 0 of their parameters theta.

For continuous actions, a network sees (s, a). For discrete ones it sees s and has outputs for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.masks import mask_variance
from mepg.core.nets import Mask, Mlp, Network, init_ensemble, make_network
from mepg.core.spec import CriticSpec
from mepg.core.types import Array, Key, Sizes


class Critics(NamedTuple):
    """The critics, as pure functions of theta. Without a mask, the complete networks.

    A value is Q, or with quantiles [K] of them. Contributions are c_j = w_j x_j: what unit j of the last hidden layer
    adds to the complete network's Q, which is the mean of its quantiles if it has any.
    """

    init: Callable[[Key], Mlp]  # -> theta
    # A single critic's value and contributions, [B], [B, H].
    single_value: Callable[[Mlp, Array, Array, Mask | None], tuple[Array, Array]]
    values: Callable[[Mlp, Array, Array, Mask | None], tuple[Array, Array]]  # every critic's: [N, B], [N, B, H]
    policy_q: Callable[[Mlp, Array, Array, Mask | None], Array]  # the Q that the policy is improved on, [B]
    # Every critic's Q of each discrete action, and the sum of their units' squared contributions: [N, B, A], [N, B, A].
    # What is not legal has a Q of `ILLEGAL`.
    action_values: Callable[[Mlp, Array, Mask | None], tuple[Array, Array]]
    quantile_mean: Callable[[Array], Array]  # of values -> Q: [N, B] or [N, B, K] -> [N, B]

    def q(self, theta: Mlp, obs: Array, action: Array, mask: Mask | None = None) -> Array:
        """D_m Q(s, a; theta) of every critic. [N, B]"""
        return self.quantile_mean(self.values(theta, obs, action, mask)[0])


def make_critics(spec: CriticSpec, sizes: Sizes, network: Network | None = None) -> Critics:
    """The critics that a spec describes, of the spec's network unless another one is given."""
    discrete, quantiles = sizes.action_kind == "discrete", spec.quantiles
    n_actions, n_quantiles = sizes.action if discrete else 1, 1 if quantiles is None else quantiles.count
    if network is None:
        network = make_network(
            (sizes.obs if discrete else sizes.obs + sizes.action, *spec.hidden, n_actions * n_quantiles),
            spec.init,
            layer_norm=spec.layer_norm,
            mask_place=spec.mask_place,
            precision=spec.precision,
        )

    def quantile_mean(value: Array) -> Array:
        return value if quantiles is None else value.mean(axis=-1)

    def single_critic_value(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> tuple[Array, Array]:
        x = jnp.concatenate([obs, action], axis=-1)
        value, units = network.apply_masked(theta, x, mask)
        if quantiles is None:
            return value.squeeze(-1), units * theta[-1].w[:, 0]
        return value, units * theta[-1].w.mean(axis=1)

    def discrete_single_critic_value(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> tuple[Array, Array]:
        outputs, units = network.apply_masked(theta, sizes.without_legal(obs), mask)
        one_hot = action == jnp.arange(n_actions)  # [B, A]
        value = jnp.where(one_hot[:, :, None], outputs.reshape(-1, n_actions, n_quantiles), 0.0).sum(axis=1)
        weights = theta[-1].w.reshape(-1, n_actions, n_quantiles).mean(axis=-1)  # [H, A]
        return value.squeeze(-1) if quantiles is None else value, units * (one_hot.astype(jnp.float32) @ weights.T)

    def single_critic_action_values(theta: Mlp, obs: Array, mask: Mask | None) -> tuple[Array, Array]:
        outputs, units = network.apply_masked(theta, sizes.without_legal(obs), mask)
        weights = theta[-1].w.reshape(-1, n_actions, n_quantiles).mean(axis=-1)  # [H, A]
        q = outputs if quantiles is None else outputs.reshape(-1, n_actions, n_quantiles).mean(axis=-1)
        return sizes.among_legal(q, obs), jnp.square(units) @ jnp.square(weights)

    def policy_q(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> Array:
        if spec.policy_q == "first":
            theta, mask = jax.tree.map(lambda leaf: leaf[:1], (theta, mask))
        value, contributions = values(theta, obs, action, mask)
        return reduce_critics(spec, quantile_mean(value), jnp.square(contributions).sum(axis=-1))

    single_value = discrete_single_critic_value if discrete else single_critic_value
    values = _vmap_critics(single_value)
    return Critics(
        lambda key: init_ensemble(network, spec.critics, key),
        single_value,
        values,
        policy_q,
        _vmap_critics(single_critic_action_values),
        quantile_mean,
    )


def reduce_critics(spec: CriticSpec, q: Array, sum_squares: Array) -> Array:
    """The policy's Q: the first of N critics', their minimum or their mean. [N, ...], [N, ...] -> [...]"""
    if spec.pessimism is not None and spec.pessimism.policy:
        q = lower_bound(spec, q, sum_squares)
    if spec.policy_q == "first":
        q = q[:1]
    return q.mean(axis=0) if spec.policy_q == "mean" else q.min(axis=0)


def lower_bound(spec: CriticSpec, q: Array, sum_squares: Array) -> Array:
    """Q - beta sigma, sigma^2 = lambda sum_j c_j^2: the spread of Q over all masks, from the same forward pass.

    `sum_squares` is sum_j c_j^2. [N, B], [N, B] -> [N, B]; with quantiles, which all move alike, [N, B, K], [N, B].
    """
    if spec.pessimism is None or spec.dropout is None:
        return q
    sigma = jnp.sqrt(mask_variance(spec.dropout) * sum_squares + 1e-12)  # 1e-12: a finite gradient where all c_j are 0
    return q - spec.pessimism.beta * sigma.reshape(*sigma.shape, *(1,) * (q.ndim - sigma.ndim))


def _vmap_critics(function: Callable[..., Any]) -> Callable[..., Any]:
    """A single critic's function of theta, inputs and a mask, for all of them, along axis 0."""

    def mapped(theta: Mlp, *args: Any) -> Any:
        *inputs, mask = args
        if len(theta[0].b) == 1:  # without vmap, which would cost some copies
            return jax.tree.map(lambda leaf: leaf[None], function(_first(theta), *inputs, _first(mask)))
        return jax.vmap(lambda theta, mask: function(theta, *inputs, mask))(theta, mask)

    return mapped


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)
