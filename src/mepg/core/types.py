"""The types that the rest of the core uses.

Shapes are trailing comments in one alphabet: `B` batch, `S` observation, `A` action, `H` hidden
units, `N` critics, `M` members (of SUNRISE) or critics of a subset (of REDQ), `K` quantiles, actors or proposals,
`J` any other axis.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Key = jax.Array
Params = Any  # a pytree of arrays
OptState = Any  # Adam's moments of a pytree of parameters


class Metric(NamedTuple):
    """A number worth watching, and its weight in a mean over updates: 0 where it was not computed."""

    value: Array
    weight: Array


Metrics = dict[str, Metric]


class Entry(NamedTuple):
    """A named entry of an observation, as of a Dict: s[start:end]."""

    name: str
    start: int
    end: int


ILLEGAL = -1e30  # in place of a number by which an action is chosen; finite, so that 0 times it is 0


class Sizes(NamedTuple):
    """All that an algorithm knows about its environment.

    Where an environment says which actions are legal, they are part of what it shows: s is [..., S + A] in all that
    follows, with 1 or 0 for each action behind its S numbers. Networks see the S numbers alone.
    """

    obs: int  # S
    action: int  # A: numbers in an action of a box, or discrete actions to choose from
    action_kind: str = "box"  # or "discrete"
    entries: tuple[Entry, ...] = ()  # of an observation whose entries have names, in order
    actor_entries: tuple[Entry, ...] | None = None  # those that the policy sees; None: it sees all of s
    n_legal: int = 0  # numbers behind s that say which actions are legal: A, or none where all of them always are

    @property
    def obs_width(self) -> int:
        """Numbers that an observation takes in a row and a batch: S, and A more if it says what is legal."""
        return self.obs + self.n_legal

    @property
    def action_width(self) -> int:
        """Numbers that an action takes in a row and a batch: A, or 1, the index of a discrete one."""
        return self.action if self.action_kind == "box" else 1

    @property
    def actor_obs_width(self) -> int:
        """Numbers of s that the policy sees."""
        return self.obs if self.actor_entries is None else sum(entry.end - entry.start for entry in self.actor_entries)

    @property
    def policy_sizes(self) -> Sizes:
        """The same for a policy by itself, whose s is its `policy_input`."""
        entries = self.entries if self.actor_entries is None else self.actor_entries
        widths = [entry.end - entry.start for entry in entries]
        moved = [
            Entry(entry.name, end - width, end)
            for entry, width, end in zip(entries, widths, accumulate(widths), strict=True)
        ]
        return self._replace(obs=self.actor_obs_width, entries=tuple(moved), actor_entries=None)

    @property
    def named_entries(self) -> tuple[Entry, ...]:
        """The entries of s that have names, the legal actions among them."""
        return (*self.entries, *([Entry("action_masks", self.obs, self.obs_width)] if self.n_legal else []))

    def actor_input(self, obs: Array) -> Array:
        """What the policy's network sees of s; the critics' see all of it but the legal actions."""
        if self.actor_entries is None:
            return self.without_legal(obs)
        return jnp.concatenate([obs[..., entry.start : entry.end] for entry in self.actor_entries], axis=-1)

    def policy_input(self, obs: Array) -> Array:
        """What a policy by itself needs of s: what its network sees, and the legal actions."""
        actor_input = self.actor_input(obs)
        return jnp.concatenate([actor_input, self.legal_actions(obs)], axis=-1) if self.n_legal else actor_input

    def without_legal(self, obs: Array) -> Array:
        """The S numbers of s that networks see."""
        return lax.slice_in_dim(obs, 0, self.obs, axis=-1) if self.n_legal else obs

    def legal_actions(self, obs: Array) -> Array:
        """What s says of each action: 1 if it is legal, else 0. [..., A]"""
        return lax.slice_in_dim(obs, self.obs, self.obs_width, axis=-1)

    def among_legal(self, values: Array, obs: Array) -> Array:
        """A number for each action, [..., A], so low that the action is never chosen if it is not legal in s."""
        return jnp.where(self.legal_actions(obs) > 0, values, ILLEGAL) if self.n_legal else values


class Batch(NamedTuple):
    """B transitions."""

    obs: Array  # s   [B, S]
    action: Array  # a   [B, A], in [-1, 1]; [B, 1], the index of a discrete one
    reward: Array  # r   [B]; of k steps, their discounted sum
    discount: Array  # [B], 1, or gamma^(k-1) of k steps; 0 where s' is terminal, which a time limit is not (D20)
    next_obs: Array  # s'  [B, S], after the last of the steps
    number: Array  # [B], which transition of the run it is, counted from the first


class LossWeights(NamedTuple):
    """How much each transition counts in a loss, [B]; the loss is the mean over the batch of what is weighted."""

    critic: Array | float = 1.0
    policy: Array | float = 1.0  # and of the temperature


class Trainable(NamedTuple):
    """Parameters, their target network and Adam's moments."""

    params: Params  # theta, phi or log alpha
    target: Params  # theta', phi'; None where nothing follows
    moments: OptState  # Adam's


class AgentState(NamedTuple):
    """All that learning changes: immutable, saved and restored as one pytree."""

    updates: Array  # how many critic updates there have been
    actor: Trainable
    critic: Trainable  # every leaf has a leading axis N: the critics
    temperature: Trainable | None  # log alpha; None: no entropy term, or a fixed one
    policy_average: Params = None  # of phi; None: there is none


class Posterior(NamedTuple):
    """Q as a random variable: Q_i + sum_j deviations_ij e_j, of a random critic i, with independent e_j of variance 1.

    `core.posterior` says where it comes from, and what its mean and covariance are.
    """

    q: Array  # [N, B]
    deviations: Array  # [N, B, J]; J is H for masked units, and 0 where nothing is masked


class Beliefs(NamedTuple):
    """What an agent's critics say of Q, for inspection. Training needs none of it."""

    posterior: Callable[[Any, Array, Array], Posterior]  # state, s, a -> Q
    subnetwork: Callable[[Any, Array, Array, Key], Array]  # state, s, a -> Q of one that is drawn, [B]
    # The policy whose Q the critics learn. state, s, keys of the episode and of the step -> a, its entropy bonus: [B]
    critics_policy: Callable[[Any, Array, Key, Key], tuple[Array, Array]]
    closed_form: bool = True  # False: the posterior is estimated from sub-networks that were drawn


def _empty_carry(_: Key) -> Any:
    return ()


class Agent(NamedTuple):
    """An algorithm bound to an environment's sizes: pure functions. Actions are as in a `Batch`, float32.

    What exploration carries from step to step within an episode, such as which member explores or the state of
    correlated noise, is a pytree of its own: `begin` makes the carry, `explore` returns the next. For most it is ().
    """

    init: Callable[[Key], Any]  # -> state
    explore: Callable[[Any, Any, Array, Key], tuple[Array, Any]]  # state, carry, s -> a, carry
    exploit: Callable[[Any, Array], Array]  # state, s -> a
    update: Callable[..., tuple[Any, Metrics]]  # state, batch, key -> state, metrics
    begin: Callable[[Key], Any] = _empty_carry  # -> carry, at the beginning of an episode
    beliefs: Beliefs | None = None  # None: `mepg inspect` and `q_posterior` cannot be used
