"""Small models."""

import numpy as np

import mepg
from tests.conftest import leaves_equal
from tests.run import stubs  # noqa: F401

TINY = {
    "learning_starts": 30,
    "batch_size": 8,
    "buffer_size": 500,
    "policy_kwargs": {"net_arch": [8, 8]},
    "seed": 3,
}


OBS = np.array([0.3, -0.2, 0.1], np.float32)


def make(kind=None, env="StubScaled-v0", **arguments):
    return (kind or mepg.ME_SAC)("MlpPolicy", env, **{**TINY, **arguments})


def states_equal(one, other):
    return leaves_equal(one.get_parameters(), other.get_parameters())
