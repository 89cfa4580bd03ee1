"""What is compiled for a run."""

import jax
import numpy as np
import pytest

from mepg.training.config import Config
from mepg.training.program import Program
from mepg.training.replay import row_width
from tests.conftest import SIZES, all_but_slow, leaves_equal

SETTINGS = ["hidden=8,8", "batch_size=8"]


def make(name="me-sac", seed=0, *settings):
    config = Config.make(name, [*SETTINGS, *settings], env="Pendulum-v1", seed=seed)
    agent = config.build(SIZES)
    return agent, Program(config, agent, SIZES)


def some_rows(count):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (count, row_width(SIZES))).astype(np.float32), np.arange(count, dtype=np.uint32)


@pytest.mark.parametrize("name", all_but_slow(["me-sac", "me-ddpg", "sunrise", "ace"], ["me-sac", "ace"]))
def test_learning_and_acting_in_one_call_is_one_after_the_other(name):
    _, program = make(name)
    memory, obs = program.begin(program.empty_carry(), 0, 0), np.array([[0.1, 0.2, 0.3]], np.float32)
    rows, numbers = some_rows(8)
    leaves, metrics, choice = program.learn(program.init(), rows, numbers, memory, obs, 7)
    assert metrics.shape == (1, 2, len(program.metric_names))
    again = program.explore(leaves, memory, obs, 8)
    np.testing.assert_allclose(choice.actions, again.actions, atol=1e-6)
    for one, other in zip(jax.tree.leaves(choice.carry), jax.tree.leaves(again.carry), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_flat_and_back():
    agent, program = make()
    state = program.unflatten(program.init())
    assert jax.tree.structure(state) == jax.tree.structure(jax.eval_shape(agent.init, jax.random.key(0)))
    assert leaves_equal(program.unflatten(program.flatten(state)), state)


def test_another_seed_is_the_same_program():
    """So it is compiled once for all seeds, and found on disk."""

    def text(program):
        rows, numbers = some_rows(8)
        keys = program._keys["update"], program._keys["act"]
        return program._learn.lower(program.init(), rows, numbers, (), rows[:1, :3], 1, *keys).as_text()

    one, other = make(seed=0)[1], make(seed=1)[1]
    assert text(one) == text(other)
    assert not leaves_equal(one.init(), other.init())
