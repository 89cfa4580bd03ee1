"""An agent's functions, compiled for one run: learning and acting in one dispatch, keys derived inside.

Between calls a state is the flat list of its arrays. It has fifty, and putting its named tuples together
again each time would take longer than choosing an action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mepg.core.types import Agent, Array, Key, Sizes
from mepg.run.config import Config
from mepg.run.envs import Vector
from mepg.run.keys import jax_key
from mepg.run.replay import Numbers, Rows, row_width, unpack

Leaves = list[Array]  # a state's arrays


class Choice(NamedTuple):
    """The next action, and what the agent remembers of the episode after it."""

    action: Vector
    memory: Any


class Program:
    """What a loop calls. Nothing of a run's course is kept here."""

    def __init__(self, config: Config, agent: Agent, sizes: Sizes) -> None:
        self._spec, self._agent, self._sizes = config.spec, agent, sizes
        self._k_init, self._k_episode, self._k_act, self._k_update = (
            jax_key(config.seed, stream) for stream in ("init", "episode", "act", "update")
        )
        self._tree = jax.tree.structure(jax.eval_shape(agent.init, self._k_init))
        self.metric_names = self._name_metrics()
        # What runs once need not be optimised: the same bits, and with SUNRISE ten seconds less to wait.
        self.init = jax.jit(
            lambda: jax.tree.leaves(agent.init(self._k_init)), compiler_options={"xla_backend_optimization_level": 1}
        )
        self.begin = jax.jit(lambda episode: agent.begin(jax.random.fold_in(self._k_episode, episode)))
        self._explore = jax.jit(self._choose)
        self._exploit = jax.jit(lambda leaves, obs: agent.exploit(self.unflatten(leaves), obs))
        self._learn = jax.jit(self._update_and_choose, donate_argnums=0)

    def unflatten(self, leaves: Leaves) -> Any:
        """The state as the agent knows it."""
        return jax.tree.unflatten(self._tree, leaves)

    def flatten(self, state: Any) -> Leaves:
        """A copy of a state, as the others take it."""
        return [jnp.array(leaf) for leaf in jax.tree.leaves(state)]

    def explore(self, leaves: Leaves, memory: Any, obs: Vector, step: int) -> Choice:
        """The action to take in this step."""
        action, memory = self._explore(leaves, memory, obs, step)
        return Choice(np.asarray(action), memory)

    def exploit(self, leaves: Leaves, obs: Rows) -> Rows:
        """The actions without exploration, [B, A]."""
        return np.asarray(self._exploit(leaves, obs))

    def learn(
        self, leaves: Leaves, rows: Rows, numbers: Numbers, memory: Any, obs: Vector, step: int
    ) -> tuple[Leaves, Array, Choice]:
        """All updates of this step, and the action to take in the next.

        Also gives the updates' metrics: [updates, 2, metrics], values and weights. `leaves` is given
        away: its memory is written over.
        """
        leaves, metrics, action, memory = self._learn(leaves, rows, numbers, memory, obs, step)
        return leaves, metrics, Choice(np.asarray(action), memory)

    def _update_and_choose(
        self, leaves: Leaves, rows: Array, numbers: Array, memory: Any, obs: Array, step: Array
    ) -> tuple[Leaves, Array, Array, Any]:
        state, metrics = self._update(self.unflatten(leaves), rows, numbers, jax.random.fold_in(self._k_update, step))
        leaves = jax.tree.leaves(state)
        return leaves, metrics, *self._choose(leaves, memory, obs, step + 1)

    def _choose(self, leaves: Leaves, memory: Any, obs: Array, step: Array) -> tuple[Array, Any]:
        key = jax.random.fold_in(self._k_act, step)
        action, memory = self._agent.explore(self.unflatten(leaves), memory, obs[None], key)
        return action[0], memory

    def _update(self, state: Any, rows: Array, numbers: Array, key: Key) -> tuple[Any, Array]:
        count = self._spec.updates_per_step

        def one(state: Any, given: tuple[Array, Array, Key]) -> tuple[Any, Array]:
            rows, numbers, key = given
            state, metrics = self._agent.update(state, unpack(rows, numbers, self._sizes), key)
            values, weights = zip(*(metrics[name] for name in self.metric_names), strict=True)
            return state, jnp.stack([jnp.stack(values), jnp.stack(weights)])

        if count == 1:
            state, metrics = one(state, (rows, numbers, key))
            return state, metrics[None]
        each = rows.reshape(count, -1, rows.shape[-1]), numbers.reshape(count, -1), jax.random.split(key, count)
        return jax.lax.scan(one, state, each)

    def _name_metrics(self) -> list[str]:
        rows = jax.ShapeDtypeStruct((self._spec.batch_size, row_width(self._sizes)), jnp.float32)
        numbers = jax.ShapeDtypeStruct((self._spec.batch_size,), jnp.uint32)

        def update(rows: Array, numbers: Array) -> Any:
            state = self._agent.init(self._k_init)
            return self._agent.update(state, unpack(rows, numbers, self._sizes), self._k_update)[1]

        return list(jax.eval_shape(update, rows, numbers))
