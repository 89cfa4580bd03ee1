"""An agent's functions in C++ compiled for them. Between calls the state stays in their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mepg.algos import is_mixed
from mepg.core.types import Agent, Sizes
from mepg.jax_defaults import with_jax_defaults
from mepg.native.build import save_source
from mepg.native.check import Disagrees, compare
from mepg.native.library import Compiled, RowSelection, State, StateUse, compile_function
from mepg.training.config import Config
from mepg.training.program import NextActions, Program
from mepg.training.replay import FloatArray, Numbers, Replay, layout, row_width


class NativeProgram(Program):
    """What a loop calls, in native code. Initialisation, and batches of any size, are left to XLA.

    Raises CannotBuild, Unsupported or Disagrees if there can be no such program.
    """

    backend = "native"

    @with_jax_defaults
    def __init__(self, config: Config, agent: Agent, sizes: Sizes) -> None:
        super().__init__(config, agent, sizes)
        # Rounded numbers that are multiplied in another order differ by more than their last bit.
        self._tolerance = 2e-3 if is_mixed(config.spec) else 1e-5
        self._carry_tree = jax.tree.structure(self.empty_carry())
        self._words = {stream: np.asarray(jax.random.key_data(key)) for stream, key in self._keys.items()}
        self._native_learn = self._compile(self._learn_impl, self._learn_arguments, "written", config.threads)
        self._native_explore = self._compile(self._explore_impl, self._explore_arguments, "read")
        self._native_exploit = self._compile(
            self._exploit_impl, lambda number: (self._observations(number)[:1],), "read"
        )

    def init(self) -> State:
        return State.of(super().init())

    def flatten(self, state: Any) -> State:
        return State.of(jax.tree.leaves(state))

    def arrays(self, device_state: State) -> Any:
        return device_state.get()

    def explore(self, device_state: State, carry: Any, obs: FloatArray, step: int) -> NextActions:
        leaves = jax.tree.leaves(carry)
        actions, *leaves = self._native_explore(device_state, *leaves, obs, np.int32(step), self._words["act"])
        return NextActions(actions, jax.tree.unflatten(self._carry_tree, leaves))

    def exploit(self, device_state: State, obs: FloatArray) -> FloatArray:
        if len(obs) != 1:
            return super().exploit(device_state.get(), obs)
        return self._native_exploit(device_state, obs)[0]

    def sample(self, replay: Replay, fractions: npt.NDArray[np.float64]) -> tuple[RowSelection, Numbers]:
        rows, slots, numbers = replay.sample_slots(fractions)
        return RowSelection(rows, slots), numbers

    def learn(
        self, device_state: State, rows: Any, numbers: Numbers, carry: Any, obs: FloatArray, step: int
    ) -> tuple[State, Any, NextActions]:
        keys = self._words["update"], self._words["act"]
        leaves = jax.tree.leaves(carry)
        metrics, actions, *leaves = self._native_learn(device_state, rows, numbers, *leaves, obs, np.int32(step), *keys)
        return device_state, metrics, NextActions(actions, jax.tree.unflatten(self._carry_tree, leaves))

    def _compile(
        self,
        function: Callable[..., Any],
        arguments: Callable[[int], tuple[Any, ...]],
        state: StateUse,
        threads: int = 1,
    ) -> Compiled:
        """The function, compiled and checked: it computes what XLA's does."""
        compiled = compile_function(
            function, jax.tree.leaves(self.template), *arguments(0), state=state, threads=threads
        )
        if not compiled.checked:
            try:
                compare(compiled, function, super().init(), arguments, tolerance=self._tolerance)
            except Disagrees as error:
                raise Disagrees(f"{error}; please report it with {save_source(compiled.text)}") from None
            compiled.note_checked()
        return compiled

    # Arguments as they occur in a run; each number gives others.

    def _learn_arguments(self, number: int) -> tuple[Any, ...]:
        rng, count = np.random.default_rng(number), self._updates * self._spec.batch_size
        rows = rng.uniform(-1, 1, (count, row_width(self._sizes))).astype(np.float32)
        state, action, _, discount, next_state = layout(self._sizes)
        rows[:, discount] = rng.random(count) < 0.9
        if self._sizes.action_kind == "discrete":
            rows[:, action] = rng.integers(self._sizes.action, size=(count, 1))
        for obs in rows[:, state], rows[:, next_state]:
            self._allow_some(rng, obs)
        numbers = rng.integers(10**6, size=count).astype(np.uint32)
        carry, obs, step, k_act = self._explore_arguments(number)
        return rows, numbers, carry, obs, step, self._keys["update"], k_act

    def _explore_arguments(self, number: int) -> tuple[Any, ...]:
        carry = self.begin(self.empty_carry(), 0, number)
        return carry, self._observations(number), np.int32(number), self._keys["act"]

    def _observations(self, number: int) -> FloatArray:
        rng = np.random.default_rng(number)
        obs = rng.uniform(-1, 1, (self._envs, self._sizes.obs_width)).astype(np.float32)
        self._allow_some(rng, obs)
        return obs

    def _allow_some(self, rng: np.random.Generator, obs: FloatArray) -> None:
        """Make some actions legal, at least one in each state, where observations say it."""
        if self._sizes.n_legal:
            legal = obs[:, self._sizes.obs :]
            legal[:] = rng.random(legal.shape) < 0.5
            legal[np.arange(len(legal)), rng.integers(self._sizes.action, size=len(legal))] = 1
