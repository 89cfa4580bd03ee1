"""Randomness, derived from the run's seed."""

import jax
import numpy as np
import pytest

from mepg.training.keys import _STREAMS, UniformStream, episode_seed, generator, jax_key


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("stream", ["init", "belief"])
def test_a_key_is_the_one_that_jax_would_derive(seed, stream):
    theirs = jax.random.fold_in(jax.random.key(np.uint32(seed)), _STREAMS[stream])
    assert jax_key(seed, stream) == theirs
    assert jax.random.key_impl(jax_key(seed, stream)) == jax.random.key_impl(theirs)


def test_keys_are_derived():
    a, b = generator(1, "replay", 5), generator(1, "replay", 5)
    assert a.integers(2**62) == b.integers(2**62)
    others = [(2, "replay", 5), (1, "warmup", 5), (1, "replay", 6)]
    assert len({int(generator(*which).integers(2**62)) for which in others} | {int(b.integers(2**62))}) == 4


def test_training_and_evaluation_never_share_a_seed():
    assert all(episode_seed(seed, "train", i) % 2 == 0 for seed in range(5) for i in range(50))
    assert all(episode_seed(seed, "eval", 5000, i) % 2 == 1 for seed in range(5) for i in range(50))
    assert len({episode_seed(0, "train", i) for i in range(10_000)}) > 9_990


def test_fractions_are_a_function_of_the_step():
    forward, backward = UniformStream(0, "replay", 4), UniformStream(0, "replay", 4)
    steps = [1, 2, 63, 64, 65, 200]
    drawn = {step: forward(step) for step in steps}
    for step in reversed(steps):
        np.testing.assert_array_equal(backward(step), drawn[step])
    assert len({tuple(row) for row in drawn.values()}) == len(steps)
    every = np.concatenate([forward(step) for step in range(1, 2000)])
    assert 0 <= every.min() < every.max() < 1
    assert every.mean() == pytest.approx(0.5, abs=0.02)
    assert not np.array_equal(UniformStream(1, "replay", 4)(1), drawn[1])
