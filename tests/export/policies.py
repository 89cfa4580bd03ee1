"""Policies to export: small ones of every kind."""

import io

import jax
import jax.numpy as jnp
import numpy as np

from mepg.algos import algorithms
from mepg.export.convert import policy_npz
from mepg.export.standalone import load_policy
from mepg.settings import apply_settings
from tests.conftest import SIZES as SIZES
from tests.conftest import jit_quickly, sizes_of

TINY = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]


def some_agent(name, settings=()):
    """Small, and far enough from where it began that actors differ."""
    algorithm = algorithms()[name]
    agent = algorithm.build(apply_settings(algorithm.spec, ["hidden=16,12", *settings]), sizes_of(name))
    rng = np.random.default_rng(0)

    def shake(leaf):
        noise = 0.3 * rng.standard_normal(leaf.shape).astype(np.float32)
        return leaf + noise if leaf.dtype == jnp.float32 else leaf

    return agent, jax.tree.map(shake, jit_quickly(agent.init)(jax.random.key(0)))


def load_numpy(source):
    return load_policy(io.BytesIO(policy_npz(source.program)))
