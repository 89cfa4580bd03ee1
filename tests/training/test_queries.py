"""What one may ask a trained agent: the same question, the same answer; another number, another draw."""

import jax
import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.training.config import Config
from mepg.training.queries import AgentQueries
from tests.conftest import SIZES, jit_quickly, make_batch

BATCH = make_batch(4)


@pytest.fixture(scope="module")
def agent():
    return Config.make("me-sac", ["hidden=8,8", "dropout.p=0.5"], env="Pendulum-v1").build(SIZES)


@pytest.fixture(scope="module")
def state(agent):
    return jit_quickly(agent.init)(jax.random.key(0))


def test_draws_depend_on_the_seed_and_the_number_only(agent, state):
    one, again, other = AgentQueries(agent, 3), AgentQueries(agent, 3), AgentQueries(agent, 4)
    first = one.draw_actions(state, BATCH.obs, 1)
    assert first.shape == (4, SIZES.action)
    assert np.abs(first).max() <= 1
    later = one.draw_actions(state, BATCH.obs, 2)
    np.testing.assert_array_equal(again.draw_actions(state, BATCH.obs, 1), first)
    assert not np.array_equal(first, later)
    assert not np.array_equal(first, other.draw_actions(state, BATCH.obs, 1))
    q = one.subnetworks(state, BATCH.obs, BATCH.action, 3, 1)
    assert q.shape == (3, 4)
    np.testing.assert_array_equal(again.subnetworks(state, BATCH.obs, BATCH.action, 3, 1), q)
    assert not np.array_equal(one.subnetworks(state, BATCH.obs, BATCH.action, 3, 2), q)


def test_answers_agree_and_can_be_written_on(agent, state):
    ask = AgentQueries(agent, 0)
    mean, variance = ask.moments(state, BATCH.obs, BATCH.action)
    covariance = ask.covariance(state, BATCH.obs, BATCH.action)
    drawn = ask.subnetworks(state, BATCH.obs, BATCH.action, 2000, 1)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-4)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 2000))
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(variance), rtol=0.15)
    for answer in (mean, variance, covariance, drawn):
        answer *= 0
    assert ask.moments(state, BATCH.obs, BATCH.action)[0].any()


def test_an_agent_that_says_nothing_about_its_critics(agent, state):
    silent = AgentQueries(agent._replace(beliefs=None), 0)
    with pytest.raises(UsageError, match="its Agent has no `beliefs`"):
        silent.moments(state, BATCH.obs, BATCH.action)
    assert silent.draw_actions(state, BATCH.obs, 1).shape == (4, SIZES.action), "acting needs none"
