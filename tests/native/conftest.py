from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mepg.algos import Algorithm, find
from mepg.core.types import Sizes
from mepg.native.check import compare
from mepg.native.library import compile_function
from mepg.native.processor import KNOWN, best_instructions
from mepg.training.program import Program
from mepg.training.replay import layout, row_width

# Wherever these tests run, they see the processor's best set of instructions and every lesser one.
SIZES = Sizes(5, 3)
HERE = [name for name, each in KNOWN.items() if each.needs <= best_instructions().needs]


def smaller(spec, **settings):
    """A spec with these settings, wherever in it they are."""
    names = {field.name for field in dataclasses.fields(spec)}
    inner = {"base": smaller(spec.base, **settings)} if "base" in names else {}
    return dataclasses.replace(spec, **inner, **{name: value for name, value in settings.items() if name in names})


class Case:
    """A learner's own function, with arguments for as many calls as one likes."""

    def __init__(self, what, sizes=SIZES, envs=1, seed=0, initialised=True, **settings):
        """`what`: an algorithm's name, or a spec. Only shapes are known of a state that is not initialised."""
        algorithm = find(what) if isinstance(what, str) else Algorithm(what, "")
        sizes = sizes._replace(action_kind=algorithm.actions[0])
        spec = smaller(algorithm.spec, **{"hidden": (20, 12), "batch_size": 10, **settings})
        self.agent = algorithm.build(spec, sizes)
        self.program = Program(SimpleNamespace(spec=spec, envs=envs, seed=seed), self.agent, sizes)
        state = self.program.init() if initialised else self.program.template
        self.leaves = [np.asarray(leaf) if initialised else leaf for leaf in jax.tree.leaves(state)]
        self._sizes, self._envs = sizes, envs
        self._rows = self.program._updates * spec.batch_size
        self._rng = np.random.default_rng(seed)
        self.memory = jax.tree.map(np.asarray, self.program.empty_carry())

    def learn(self, leaves, rows, numbers, memory, obs, step, k_update, k_act):
        """What `Program` compiles."""
        return self.program._learn_impl(leaves, rows, numbers, memory, obs, step, k_update, k_act)

    def arguments(self, step):
        rows = self._rng.uniform(-1, 1, (self._rows, row_width(self._sizes))).astype(np.float32)
        _, action, _, discount, _ = layout(self._sizes)
        rows[:, discount] = self._rng.random(self._rows) < 0.9
        if self._sizes.action_kind == "discrete":
            rows[:, action] = self._rng.integers(self._sizes.action, size=(self._rows, 1))
        numbers = self._rng.integers(1000, size=self._rows).astype(np.uint32)
        seen = self._rng.uniform(-1, 1, (self._envs, self._sizes.obs)).astype(np.float32)
        keys = self.program._keys["update"], self.program._keys["act"]
        return rows, numbers, self.memory, seen, np.int32(step), *keys

    def compile(self, instructions=None, threads=1):
        chosen = KNOWN[instructions] if instructions else None
        return compile_function(
            self.learn, self.leaves, *self.arguments(0), state="written", instructions=chosen, threads=threads
        )

    def check(self, instructions=None, calls=4, tolerance=1e-5, threads=1):
        compiled = self.compile(instructions, threads)
        compare(compiled, self.learn, self.leaves, self.arguments, tolerance=tolerance, calls=calls)


@pytest.fixture(scope="package", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CXX", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
