"""An agent's functions, compiled for one run: learning and acting in one dispatch, keys derived inside.

Between calls a state is held as the program likes it. Here it is the flat list of its arrays: it has fifty, and putting
its named tuples together again each time would take 3% of an update.
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
from mepg.training.replay import Numbers, Replay, Rows, row_width, unpack

Leaves = list[Array]  # a state's arrays
Held = Any  # a state as a program holds it: here Leaves. `arrays`, `unflatten` and `flatten` lead out and in.


class NextActions(NamedTuple):
    """The next action in each environment, and what the agent remembers of the episodes after it."""

    actions: Rows  # [E, A]
    memory: Any  # every leaf has a leading axis E


class Program:
    """What a loop calls, compiled by XLA. Nothing of a run's course is kept here."""

    backend = "xla"

    @with_jax_defaults
    def __init__(self, config: Config, agent: Agent, sizes: Sizes) -> None:
        self._spec, self.agent, self._sizes, self._envs = config.spec, agent, sizes, config.envs
        self._updates = config.spec.updates_per_step * config.envs
        self._one_update = jax.jit(agent.update, inline=True)  # traced once, for its metrics' names and for learning
        self._keys = {stream: jax_key(config.seed, stream) for stream in ("init", "episode", "act", "update")}
        self.template = jax.eval_shape(agent.init, self._keys["init"])  # the shapes of a state
        self._tree = jax.tree.structure(self.template)
        self.metric_names = self._name_metrics()
        # Keys are arguments, so that runs with other seeds find the same program in the cache.
        # What runs once need not be optimised: the same bits, and with SUNRISE ten seconds less to wait.
        self._init = jax.jit(
            lambda key: jax.tree.leaves(agent.init(key)), compiler_options={"xla_backend_optimization_level": 1}
        )
        self._begin = jax.jit(self._begin_at)
        self._explore = jax.jit(self._choose)
        self._exploit = jax.jit(self._act)
        self._learn = jax.jit(self._update_and_choose, donate_argnums=0)

    @with_jax_defaults
    def init(self) -> Held:
        leaves: Leaves = self._init(self._keys["init"])
        return leaves

    @with_jax_defaults
    def nothing_yet(self) -> Any:
        """The memory of no episode at all."""
        one = jax.eval_shape(self.agent.begin, self._keys["episode"])
        return jax.tree.map(lambda leaf: jnp.zeros((self._envs, *leaf.shape), leaf.dtype), one)

    @with_jax_defaults
    def begin(self, memory: Any, index: int, episode: int) -> Any:
        """The memory, with that of the episode which begins at this index."""
        return self._begin(memory, index, self._keys["episode"], episode) if jax.tree.leaves(memory) else memory

    def _begin_at(self, memory: Any, index: Array, key: Key, episode: Array) -> Any:
        new = self.agent.begin(jax.random.fold_in(key, episode))
        return jax.tree.map(lambda all_of_them, leaf: all_of_them.at[index].set(leaf), memory, new)

    def arrays(self, held: Held) -> Leaves:
        """The arrays of a state."""
        leaves: Leaves = held
        return leaves

    def unflatten(self, held: Held) -> Any:
        """The state as the agent knows it."""
        return self._named(self.arrays(held))

    def _named(self, leaves: Leaves) -> Any:
        return jax.tree.unflatten(self._tree, leaves)

    @with_jax_defaults
    def flatten(self, state: Any) -> Held:
        """A copy of a state, as the others take it."""
        return [jnp.array(leaf) for leaf in jax.tree.leaves(state)]

    def not_finite(self, held: Held) -> str | None:
        """The name of the first of a state's arrays that holds an infinite number or NaN."""
        leaves = self.arrays(held)
        index = next((i for i, leaf in enumerate(leaves) if not np.isfinite(np.asarray(leaf)).all()), None)
        if index is None:
            return None
        path, _ = jax.tree_util.tree_leaves_with_path(self.template)[index]
        return jax.tree_util.keystr(path, simple=True, separator=".")

    @with_jax_defaults
    def explore(self, held: Held, memory: Any, obs: Rows, step: int) -> NextActions:
        """The actions to take in this step."""
        actions, memory = self._explore(held, memory, obs, step, self._keys["act"])
        return NextActions(np.asarray(actions), memory)

    @with_jax_defaults
    def exploit(self, held: Held, obs: Rows) -> Rows:
        """The actions without exploration, [B, A]."""
        return np.asarray(self._exploit(held, obs))

    def sample(self, replay: Replay, fractions: npt.NDArray[np.float64]) -> tuple[Any, Numbers]:
        """Transitions at these fractions of the replay memory, as `learn` takes them."""
        return replay.sample(fractions)

    @with_jax_defaults
    def learn(
        self, held: Held, rows: Any, numbers: Numbers, memory: Any, obs: Rows, step: int
    ) -> tuple[Held, Array, NextActions]:
        """All updates of this step, from rows that were sampled, and the actions to take in the next.

        Also gives the updates' metrics: [updates, 2, metrics], values and weights. The state is given
        away: its memory is written over.
        """
        keys = self._keys["update"], self._keys["act"]
        held, metrics, actions, memory = self._learn(held, rows, numbers, memory, obs, step, *keys)
        return held, metrics, NextActions(np.asarray(actions), memory)

    # What is compiled, by XLA or otherwise.

    def _act(self, leaves: Leaves, obs: Array) -> Array:
        return self.agent.exploit(self._named(leaves), obs)

    def _update_and_choose(
        self,
        leaves: Leaves,
        rows: Array,
        numbers: Array,
        memory: Any,
        obs: Array,
        step: Array,
        k_update: Key,
        k_act: Key,
    ) -> tuple[Leaves, Array, Array, Any]:
        state, metrics = self._update(self._named(leaves), rows, numbers, jax.random.fold_in(k_update, step))
        leaves = jax.tree.leaves(state)
        return leaves, metrics, *self._choose(leaves, memory, obs, step + 1, k_act)

    def _choose(self, leaves: Leaves, memory: Any, obs: Array, step: Array, key: Key) -> tuple[Array, Any]:
        key, state = jax.random.fold_in(key, step), self._named(leaves)

        def at_one(memory: Any, obs: Array, key: Key) -> tuple[Array, Any]:
            action, memory = self.agent.explore(state, memory, obs[None], key)
            return action[0], memory

        if self._envs > 1:
            return jax.vmap(at_one)(memory, obs, jax.random.split(key, self._envs))
        action, memory = at_one(jax.tree.map(lambda leaf: leaf[0], memory), obs[0], key)
        return action[None], jax.tree.map(lambda leaf: leaf[None], memory)

    def _update(self, state: Any, rows: Array, numbers: Array, key: Key) -> tuple[Any, Array]:
        count = self._updates

        def one(state: Any, given: tuple[Array, Array, Key]) -> tuple[Any, Array]:
            rows, numbers, key = given
            state, metrics = self._one_update(state, unpack(rows, numbers, self._sizes), key)
            values, weights = zip(*(metrics[name] for name in self.metric_names), strict=True)
            return state, jnp.stack([jnp.stack(values), jnp.stack(weights)])

        if count == 1:
            state, metrics = one(state, (rows, numbers, key))
            return state, metrics[None]
        each = rows.reshape(count, -1, rows.shape[-1]), numbers.reshape(count, -1), jax.random.split(key, count)
        return jax.lax.scan(one, state, each)

    def _name_metrics(self) -> list[str]:
        key = self._keys["update"]
        rows = jax.ShapeDtypeStruct((self._spec.batch_size, row_width(self._sizes)), jnp.float32)
        numbers = jax.ShapeDtypeStruct((self._spec.batch_size,), jnp.uint32)

        def update(state: Any, rows: Array, numbers: Array) -> Any:
            return self._one_update(state, unpack(rows, numbers, self._sizes), key)[1]

        return list(jax.eval_shape(update, self.template, rows, numbers))
