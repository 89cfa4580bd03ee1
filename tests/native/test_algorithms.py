"""Compiled learners do what the jitted ones do."""

import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.types import Sizes
from mepg.native.library import State

from .conftest import HERE, Case

# Masks, two critics in a loop, branches, discrete actions, quantiles; the others are slow tests.
SAMPLE = ["me-sac", "td3", "me-dqn", "me-qr-dqn", "tqc", "me-sac-discrete"]


@pytest.mark.parametrize("name", SAMPLE)
def test_learning_in_full_precision(name):
    Case(name).check()


def test_learning_in_mixed_precision():
    Case("me-sac", precision="mixed").check()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["full", "mixed"])
@pytest.mark.parametrize("name", list(algorithms()))
def test_every_algorithm(name, precision):
    Case(name, precision=precision).check(tolerance=1e-5 if precision == "full" else 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize("precision", ["full", "mixed"])
def test_every_processor(instructions, precision):
    Case("redq", precision=precision).check(instructions, tolerance=1e-5 if precision == "full" else 2e-3)


@pytest.mark.slow
def test_several_environments():
    Case("me-ddpg", envs=3).check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_random_specs(seed):
    rng = np.random.default_rng(seed)
    name = rng.choice(list(algorithms()))
    sizes = Sizes(int(rng.integers(1, 71)), int(rng.integers(1, 12)))
    hidden = tuple(int(width) for width in rng.integers(2, 71, rng.integers(1, 4)))
    precision = str(rng.choice(["full", "mixed"]))
    tolerance = 1e-5 if precision == "full" else 2e-3
    case = Case(name, sizes, hidden=hidden, batch_size=int(rng.integers(2, 71)), precision=precision, seed=seed)
    case.check(calls=10, tolerance=tolerance)


def test_the_same_text_and_the_same_bits_twice():
    one, other = Case("me-ddpg"), Case("me-ddpg")
    first, second = one.compile(), other.compile()
    assert first.text == second.text
    states = [State.of(case.leaves) for case in (one, other)]
    for step in (1, 2, 3):
        for case, state, compiled in zip((one, other), states, (first, second), strict=True):
            rows, numbers, memory, obs, step, *keys = case.arguments(step)
            assert not memory
            compiled(state, rows, numbers, obs, step, *keys)
    assert all(np.array_equal(a, b) for a, b in zip(*(state.get() for state in states), strict=True))
