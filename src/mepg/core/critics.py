"""Critics: N networks for Q(s, a), along axis 0 of their parameters theta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mepg.core.nets import Mask, Mlp, Network, init_several, make_network
from mepg.core.spec import Spec
from mepg.core.types import Array, Key, Sizes


class Critics(NamedTuple):
    """What can be asked of critics, as pure functions of theta. Without a mask, the complete networks answer.

    Parts are c_j = w_j x_j: what unit j of the last hidden layer adds to the complete network's Q.
    """

    init: Callable[[Key], Mlp]  # -> theta
    one: Callable[[Mlp, Array, Array, Mask | None], tuple[Array, Array]]  # a single critic's Q and parts: [B], [B, H]
    all: Callable[[Mlp, Array, Array, Mask | None], tuple[Array, Array]]  # every critic's: [N, B], [N, B, H]
    view: Callable[[Mlp, Array, Array, Mask | None], Array]  # Q as the policy sees it, [B]

    def q(self, theta: Mlp, obs: Array, action: Array, mask: Mask | None = None) -> Array:
        """D_m Q(s, a; theta) of every critic. [N, B]"""
        return self.all(theta, obs, action, mask)[0]


def make_critics(spec: Spec, sizes: Sizes, network: Network | None = None) -> Critics:
    """The critics that a spec describes, with the network that it describes too or another one."""
    if network is None:
        network = make_network(
            (sizes.obs + sizes.action, *spec.hidden, 1),
            spec.init,
            layer_norm=spec.layer_norm,
            masked=spec.mask_place,
            precision=spec.precision,
        )

    def one(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> tuple[Array, Array]:
        q, units = network.apply_masked(theta, jnp.concatenate([obs, action], axis=-1), mask)
        return q.squeeze(-1), units * theta[-1].w[:, 0]

    def every(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> tuple[Array, Array]:
        if len(theta[0].b) == 1:  # without an axis of one, which would cost some copies
            q, parts = one(_first(theta), obs, action, _first(mask))
            return q[None], parts[None]
        return jax.vmap(lambda theta, mask: one(theta, obs, action, mask))(theta, mask)

    def view(theta: Mlp, obs: Array, action: Array, mask: Mask | None) -> Array:
        """The first of N critics, their minimum or their mean."""
        if spec.improve_on == "first":
            theta, mask = jax.tree.map(lambda leaf: leaf[:1], (theta, mask))
        q, _ = every(theta, obs, action, mask)
        return q.mean(axis=0) if spec.improve_on == "mean" else q.min(axis=0)

    return Critics(lambda key: init_several(network, spec.critics, key), one, every, view)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)
