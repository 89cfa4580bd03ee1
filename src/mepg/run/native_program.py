"""An agent's functions in C++ made for them, with the state in their memory between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mepg.core.arithmetic import ours
from mepg.core.types import Agent, Sizes
from mepg.native.build import save_source
from mepg.native.check import Disagrees, compare
from mepg.native.library import Compiled, RowSelection, State, StateUse, compile_function
from mepg.run.config import Config
from mepg.run.program import NextActions, Program
from mepg.run.replay import Numbers, Replay, Rows, layout, row_width


class NativeProgram(Program):
    """What a loop calls. What happens once, or to batches of any size, is left to XLA.

    Raises CannotBuild, Unsupported or Disagrees where there is no such program.
    """

    backend = "native"

    @ours
    def __init__(self, config: Config, agent: Agent, sizes: Sizes) -> None:
        super().__init__(config, agent, sizes)
        # Rounded numbers that are multiplied in another order differ by more than their last bit.
        self._tolerance = 2e-3 if getattr(config.spec, "precision", "full") == "mixed" else 1e-5
        self._memory_tree = jax.tree.structure(self.nothing_yet())
        self._words = {stream: np.asarray(jax.random.key_data(key)) for stream, key in self._keys.items()}
        self._fast_learn = self._compile(self._update_and_choose, self._some_learning, "written", config.threads)
        self._fast_explore = self._compile(self._choose, self._some_exploring, "read")
        self._fast_exploit = self._compile(self._act, lambda number: (self._some_obs(number)[:1],), "read")

    def init(self) -> State:
        return State.of(super().init())

    def flatten(self, state: Any) -> State:
        return State.of(jax.tree.leaves(state))

    def arrays(self, held: State) -> Any:
        return held.get()

    def explore(self, held: State, memory: Any, obs: Rows, step: int) -> NextActions:
        actions, *memory = self._fast_explore(held, *jax.tree.leaves(memory), obs, np.int32(step), self._words["act"])
        return NextActions(actions, jax.tree.unflatten(self._memory_tree, memory))

    def exploit(self, held: State, obs: Rows) -> Rows:
        return self._fast_exploit(held, obs)[0] if len(obs) == 1 else super().exploit(held.get(), obs)

    def sample(self, replay: Replay, fractions: npt.NDArray[np.float64]) -> tuple[RowSelection, Numbers]:
        rows, slots, numbers = replay.pick(fractions)
        return RowSelection(rows, slots), numbers

    def learn(
        self, held: State, rows: Any, numbers: Numbers, memory: Any, obs: Rows, step: int
    ) -> tuple[State, Any, NextActions]:
        keys = self._words["update"], self._words["act"]
        remembered = jax.tree.leaves(memory)
        metrics, actions, *remembered = self._fast_learn(held, rows, numbers, *remembered, obs, np.int32(step), *keys)
        return held, metrics, NextActions(actions, jax.tree.unflatten(self._memory_tree, remembered))

    def _compile(
        self,
        function: Callable[..., Any],
        arguments: Callable[[int], tuple[Any, ...]],
        state: StateUse,
        threads: int = 1,
    ) -> Compiled:
        """The function, and the certainty that it computes what XLA's does."""
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

    # Numbers as they come up in a run, others for each call.

    def _some_learning(self, number: int) -> tuple[Any, ...]:
        rng, count = np.random.default_rng(number), self._updates * self._spec.batch_size
        rows = rng.uniform(-1, 1, (count, row_width(self._sizes))).astype(np.float32)
        _, action, _, discount, _ = layout(self._sizes)
        rows[:, discount] = rng.random(count) < 0.9
        if self._sizes.action_kind == "discrete":
            rows[:, action] = rng.integers(self._sizes.action, size=(count, 1))
        numbers = rng.integers(10**6, size=count).astype(np.uint32)
        memory, obs, step, k_act = self._some_exploring(number)
        return rows, numbers, memory, obs, step, self._keys["update"], k_act

    def _some_exploring(self, number: int) -> tuple[Any, ...]:
        memory = self.begin(self.nothing_yet(), 0, number)
        return memory, self._some_obs(number), np.int32(number), self._keys["act"]

    def _some_obs(self, number: int) -> Rows:
        rng = np.random.default_rng(number)
        return rng.uniform(-1, 1, (self._envs, self._sizes.obs)).astype(np.float32)
