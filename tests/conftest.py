"""What all tests share. The number of threads is part of a run's bits, so it is set here too."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

# Most of the time would go into compiling the same programs again, here and in the processes that tests start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".pytest_cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

import jax
import numpy as np
import pytest

from mepg.core.types import Batch, Sizes
from mepg.run.threads import limit_threads

limit_threads(1)

SIZES = Sizes(obs=3, action=2)
MAIN = ["ddpg", "td3", "sac", "me-ddpg", "me-sac"]


def make_batch(size: int = 16, sizes: Sizes = SIZES, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return Batch(
        obs=draw(size, sizes.obs),
        action=np.tanh(draw(size, sizes.action)),
        reward=draw(size),
        alive=(rng.random(size) < 0.9).astype(np.float32),
        next_obs=draw(size, sizes.obs),
        number=rng.integers(10**6, size=size).astype(np.int32),
    )


# Half of the tests' time would go into optimising programs that run a few times.
jit_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def leaves_equal(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.fixture
def batch() -> Batch:
    return make_batch()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "test_learning" not in item.nodeid)  # the longest first
