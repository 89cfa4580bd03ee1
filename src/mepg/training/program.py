"""An agent's functions, compiled for one run: learning and acting in one dispatch, keys derived inside.

Between calls the agent's state is a `DeviceState`, in the form that the program computes with. Here it is the flat list
of the state's arrays, because rebuilding the named tuples at each call would take time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.core.types import Agent, Array, Key, Sizes
from mepg.jax_defaults import with_jax_defaults
from mepg.training.config import Config
from mepg.training.keys import jax_key
from mepg.training.replay import FloatArray, Numbers, Replay, row_width, unpack

Leaves = list[Array]  # a state's arrays
DeviceState = Any  # here Leaves, in native code a State; `flatten` makes one, `arrays` and `unflatten` read it


class NextActions(NamedTuple):
    """The next action in each environment, and the agent's carry after choosing it (see `Agent`)."""

    actions: FloatArray  # [E, A]
    carry: Any  # of each episode under way: every leaf has a leading axis E


class Program:
    """What a loop calls, compiled by XLA. It keeps nothing between calls."""

    backend = "xla"

    @with_jax_defaults
    def __init__(self, config: Config, agent: Agent, sizes: Sizes) -> None:
        self._spec, self.agent, self._sizes, self._envs = config.spec, agent, sizes, config.envs
        self._updates = config.spec.updates_per_step * config.envs
        self._one_update = jax.jit(agent.update, inline=True)  # traced once, for its metrics' names and for learning
        # "act" is exploring's stream: `exploit` needs no key.
        self._keys = {stream: jax_key(config.seed, stream) for stream in ("init", "episode", "act", "update")}
        self.template = jax.eval_shape(agent.init, self._keys["init"])  # the shapes of a state
        self._treedef = jax.tree.structure(self.template)
        self.metric_names = self._name_metrics()
        # Keys are arguments, so that runs with other seeds find the same program in the cache.
        # `init` runs once and need not be optimised: the same bits, and seconds less to wait.
        self._init = jax.jit(
            lambda key: jax.tree.leaves(agent.init(key)),
            compiler_options={"xla_backend_optimization_level": 1},
        )
        self._begin = jax.jit(self._begin_impl)
        self._explore = jax.jit(self._explore_impl)
        self._exploit = jax.jit(self._exploit_impl)
        self._learn = jax.jit(self._learn_impl, donate_argnums=0)

    @with_jax_defaults
    def init(self) -> DeviceState:
        leaves: Leaves = self._init(self._keys["init"])
        return leaves

    @with_jax_defaults
    def empty_carry(self) -> Any:
        """The carry before any episode has begun: zeros."""
        shapes = jax.eval_shape(self.agent.begin, self._keys["episode"])
        return jax.tree.map(lambda leaf: jnp.zeros((self._envs, *leaf.shape), leaf.dtype), shapes)

    @with_jax_defaults
    def begin(self, carry: Any, index: int, episode: int) -> Any:
        """The carry after an episode has begun in the environment with this index."""
        if not jax.tree.leaves(carry):
            return carry
        return self._begin(carry, index, self._keys["episode"], episode)

    def _begin_impl(self, carry: Any, index: Array, key: Key, episode: Array) -> Any:
        new = self.agent.begin(jax.random.fold_in(key, episode))
        return jax.tree.map(lambda leaf, at_index: leaf.at[index].set(at_index), carry, new)

    def arrays(self, device_state: DeviceState) -> Leaves:
        """The state's arrays."""
        leaves: Leaves = device_state
        return leaves

    def unflatten(self, device_state: DeviceState) -> Any:
        """The state as the agent's functions take it."""
        return self._unflatten(self.arrays(device_state))

    def _unflatten(self, leaves: Leaves) -> Any:
        return jax.tree.unflatten(self._treedef, leaves)

    @with_jax_defaults
    def flatten(self, state: Any) -> DeviceState:
        """A copy of an agent's state."""
        return [jnp.array(leaf) for leaf in jax.tree.leaves(state)]

    def first_nonfinite(self, device_state: DeviceState) -> str | None:
        """The name of the state's first array that holds an infinite number or NaN."""
        leaves = self.arrays(device_state)
        index = next((i for i, leaf in enumerate(leaves) if not np.isfinite(np.asarray(leaf)).all()), None)
        if index is None:
            return None
        path, _ = jax.tree_util.tree_leaves_with_path(self.template)[index]
        return jax.tree_util.keystr(path, simple=True, separator=".")

    @with_jax_defaults
    def explore(self, device_state: DeviceState, carry: Any, obs: FloatArray, step: int) -> NextActions:
        """The actions to take in this step."""
        actions, carry = self._explore(device_state, carry, obs, step, self._keys["act"])
        return NextActions(np.asarray(actions), carry)

    @with_jax_defaults
    def exploit(self, device_state: DeviceState, obs: FloatArray) -> FloatArray:
        """The actions without exploration, [B, A]."""
        return np.asarray(self._exploit(device_state, obs))

    def sample(self, replay: Replay, fractions: npt.NDArray[np.float64]) -> tuple[Any, Numbers]:
        """Transitions at these fractions of the replay buffer, as `learn` takes them."""
        return replay.sample(fractions)

    @with_jax_defaults
    def learn(
        self, device_state: DeviceState, rows: Any, numbers: Numbers, carry: Any, obs: FloatArray, step: int
    ) -> tuple[DeviceState, Array, NextActions]:
        """All updates of this step, from sampled transitions, and the actions to take in the next step.

        Also returns the updates' metrics: [updates, 2, metrics], values and weights. The device state is donated: its
        buffers are overwritten.
        """
        device_state, metrics, actions, carry = self._learn(
            device_state, rows, numbers, carry, obs, step, self._keys["update"], self._keys["act"]
        )
        return device_state, metrics, NextActions(np.asarray(actions), carry)

    # The functions that are compiled, by XLA or to native code.

    def _exploit_impl(self, leaves: Leaves, obs: Array) -> Array:
        return self.agent.exploit(self._unflatten(leaves), obs)

    def _learn_impl(
        self,
        leaves: Leaves,
        rows: Array,
        numbers: Array,
        carry: Any,
        obs: Array,
        step: Array,
        k_update: Key,
        k_explore: Key,
    ) -> tuple[Leaves, Array, Array, Any]:
        state, metrics = self._update(self._unflatten(leaves), rows, numbers, jax.random.fold_in(k_update, step))
        leaves = jax.tree.leaves(state)
        return leaves, metrics, *self._explore_impl(leaves, carry, obs, step + 1, k_explore)

    def _explore_impl(self, leaves: Leaves, carry: Any, obs: Array, step: Array, key: Key) -> tuple[Array, Any]:
        key, state = jax.random.fold_in(key, step), self._unflatten(leaves)

        def explore(carry: Any, obs: Array, key: Key) -> tuple[Array, Any]:
            """In one environment."""
            action, carry = self.agent.explore(state, carry, obs[None], key)
            return action[0], carry

        if self._envs > 1:
            return jax.vmap(explore)(carry, obs, jax.random.split(key, self._envs))
        action, carry = explore(jax.tree.map(lambda leaf: leaf[0], carry), obs[0], key)
        return action[None], jax.tree.map(lambda leaf: leaf[None], carry)

    def _update(self, state: Any, rows: Array, numbers: Array, key: Key) -> tuple[Any, Array]:
        count = self._updates

        def update(state: Any, batch: tuple[Array, Array, Key]) -> tuple[Any, Array]:
            rows, numbers, key = batch
            state, metrics = self._one_update(state, unpack(rows, numbers, self._sizes), key)
            values, weights = zip(*(metrics[name] for name in self.metric_names), strict=True)
            return state, jnp.stack([jnp.stack(values), jnp.stack(weights)])

        if count == 1:
            state, metrics = update(state, (rows, numbers, key))
            return state, metrics[None]
        batches = rows.reshape(count, -1, rows.shape[-1]), numbers.reshape(count, -1), jax.random.split(key, count)
        return jax.lax.scan(update, state, batches)

    def _name_metrics(self) -> list[str]:
        key = self._keys["update"]
        rows = jax.ShapeDtypeStruct((self._spec.batch_size, row_width(self._sizes)), jnp.float32)
        numbers = jax.ShapeDtypeStruct((self._spec.batch_size,), jnp.uint32)

        def update(state: Any, rows: Array, numbers: Array) -> Any:
            return self._one_update(state, unpack(rows, numbers, self._sizes), key)[1]

        return list(jax.eval_shape(update, self.template, rows, numbers))
