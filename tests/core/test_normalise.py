"""Observations to mean 0 and variance 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import find
from mepg.core.normalise import CLIP, normalise, update_statistics, with_normalised_obs
from mepg.training.config import Config
from tests.conftest import SIZES, jit_quickly, leaves_equal, make_batch

KEY = jax.random.key(0)


def make(name="me-sac", normalize_obs=True):
    agent = Config.make(name, ["hidden=8,8"], env="-", normalize_obs=normalize_obs).build(SIZES)
    return agent._replace(init=jit_quickly(agent.init), explore=jit_quickly(agent.explore))


def test_mean_and_variance_are_those_of_everything_seen():
    state = make().init(KEY)
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 100.0, 1e-3])
    batches = [(rng.standard_normal((64, 3)) * scale + (k + 1) * scale).astype(np.float32) for k in range(20)]
    for batch in batches:
        state = update_statistics(state, jnp.asarray(batch))
    everything = np.concatenate(batches)
    np.testing.assert_allclose(state.mean, everything.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(state.variance, everything.var(axis=0), rtol=1e-4)
    assert int(state.batches) == 20
    seen = np.asarray(normalise(state, jnp.asarray(everything)))
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-3)


def test_before_anything_was_seen_observations_are_as_they_are():
    state = make().init(KEY)
    np.testing.assert_allclose(normalise(state, jnp.array([[1.0, -2.0, 3.0]])), [[1, -2, 3]], rtol=1e-6)


def test_what_never_varies_and_what_is_far_away_stay_finite():
    state = update_statistics(make().init(KEY), jnp.full((32, 3), 5.0))
    np.testing.assert_array_equal(normalise(state, jnp.array([[5.0, 6.0, -1e30]])), [[0, CLIP, -CLIP]])


@pytest.mark.parametrize(
    "name", ["me-sac", "ace", *(pytest.param(n, marks=pytest.mark.slow) for n in ("td3", "sunrise"))]
)
def test_it_is_the_same_agent_on_normalised_observations(name):
    agent, inner = make(name), make(name, normalize_obs=False)
    state, batch = agent.init(KEY), make_batch(16)
    state = update_statistics(state, batch.obs * 7 + 3)  # something to remember
    raw = batch._replace(obs=batch.obs * 7 + 3, next_obs=batch.next_obs * 7 + 3)
    after, metrics = jit_quickly(agent.update)(state, raw, KEY)
    now = update_statistics(state, raw.obs)
    seen = raw._replace(obs=normalise(now, raw.obs), next_obs=normalise(now, raw.next_obs))
    expected, _ = jit_quickly(inner.update)(state.agent, seen, KEY)
    for one, other in zip(jax.tree.leaves(after.agent), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert all(np.isfinite(value) for value, _ in metrics.values())
    obs = raw.obs[:4]
    np.testing.assert_allclose(agent.exploit(after, obs), inner.exploit(after.agent, normalise(after, obs)), atol=1e-5)
    memory = agent.begin(KEY)
    explored, _ = agent.explore(after, memory, obs, KEY)
    same, _ = inner.explore(after.agent, memory, normalise(after, obs), KEY)
    np.testing.assert_allclose(explored, same, atol=1e-5)
    assert not leaves_equal(agent.exploit(after, obs), inner.exploit(after.agent, obs)), "does it matter at all?"


def test_it_wraps_any_agent():
    assert with_normalised_obs(find("ddpg").build(find("ddpg").spec, SIZES), SIZES).begin(KEY) == ()
