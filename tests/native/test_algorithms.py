"""Compiled learners do what the jitted ones do."""

import contextlib

import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.spec import Dropout, Gaussian, Noise, Pessimism, PolicyAverage, Search, Spec, Temperature
from mepg.core.types import Sizes
from mepg.native.library import State

from .conftest import HERE, Case

pytestmark = pytest.mark.usefixtures("compiler")


# Masks and branches, discrete actions, quantiles of two critics in a loop; the others are slow tests.
@pytest.mark.parametrize("name", ["me-sac", "me-dqn", "tqc"])
def test_learning_in_full_precision(name):
    Case(name).check()


def test_learning_in_mixed_precision():
    Case("me-sac", precision="mixed").check()


@pytest.mark.parametrize("precision", ["full", "mixed"])
def test_learning_from_a_lower_bound_with_an_averaged_policy(precision):
    case = Case("me-sac+lcb", precision=precision, policy_average=PolicyAverage())
    case.check(tolerance=1e-5 if precision == "full" else 2e-3)


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


def random_settings(rng):
    """Every mechanism on or off, odd sizes: of an agent that is built from a `Spec`."""

    def maybe(value):
        return value if rng.random() < 0.5 else None

    gaussian = maybe(Gaussian(bound=str(rng.choice(["tanh", "clip"]))))
    temperature = Temperature(lr=maybe(1e-3), every=maybe(int(rng.integers(1, 4))))
    dropout = Dropout(
        p=float(rng.uniform(0.05, 0.6)),
        masks=str(rng.choice(["consistent", "independent", "online", "expected"])),
        layers=str(rng.choice(["last", "all"])),
        rows=str(rng.choice(["sample", "batch"])),
        place=str(rng.choice(["after", "before"])),
        policy_mask=bool(rng.integers(2)),
    )
    critics = int(rng.integers(1, 6))
    return {
        "gaussian": gaussian,
        "temperature": maybe(temperature) if gaussian else None,
        "exploration": maybe(Noise(std=0.1)),
        "search": maybe(Search(how=str(rng.choice(["ucb", "thompson"])), proposals=int(rng.integers(2, 9)))),
        "actor_every": int(rng.integers(1, 4)),
        "critics": critics,
        "subset": maybe(int(rng.integers(1, critics + 1))),
        "dropout": maybe(dropout),
        "smoothing": maybe(Noise(std=0.2, clip=0.5)),
        "policy_q": str(rng.choice(["first", "min", "mean"])),
        "layer_norm": bool(rng.random() < 0.5),
        "target_every": int(rng.integers(1, 4)),
        "updates_per_step": int(rng.integers(1, 4)),
        "init": str(rng.choice(["uniform", "orthogonal"])),
        "pessimism": maybe(Pessimism(beta=float(rng.uniform(0, 2)), policy=bool(rng.random() < 0.5))),
        "policy_average": maybe(PolicyAverage(rate=maybe(0.1), use=str(rng.choice(["acting", "targets", "both"])))),
    }


def random_spec(rng):
    """One whose mechanisms can be had together."""
    while True:
        with contextlib.suppress(ValueError):
            return Spec(**random_settings(rng))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 100))])
def test_random_specs(seed):
    rng = np.random.default_rng(seed)
    sizes = Sizes(int(rng.integers(1, 71)), int(rng.integers(1, 12)))
    hidden = tuple(int(width) for width in rng.integers(1, 71, rng.integers(1, 4)))
    precision, threads = str(rng.choice(["full", "mixed"])), int(rng.integers(1, 4))
    batch_size = int(rng.integers(1, 71))
    case = Case(random_spec(rng), sizes, hidden=hidden, batch_size=batch_size, precision=precision, seed=seed)
    case.check(calls=10, tolerance=1e-5 if precision == "full" else 2e-3, threads=threads)


# One of everything, many inputs and outputs, widths that no vector divides, one hidden layer and four.
ODD = [(3, 1, (1,), 1), (1, 1, (1, 1, 1, 1), 1), (400, 60, (17,), 7), (400, 1, (33,), 1), (7, 60, (3, 33), 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("obs", "action", "hidden", "batch_size"), ODD)
@pytest.mark.parametrize("precision", ["full", "mixed"])
@pytest.mark.parametrize("name", ["me-sac", "me-crossq", "me-tqc", "me-dqn"])
def test_odd_sizes(name, precision, obs, action, hidden, batch_size):
    widths = {"hidden": hidden, "actor_hidden": hidden}  # the second is CrossQ's
    case = Case(name, Sizes(obs, action), batch_size=batch_size, precision=precision, **widths)
    case.check(tolerance=1e-5 if precision == "full" else 2e-3, threads=2)


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
