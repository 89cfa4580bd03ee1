"""Sizes and batches: what the two kinds of actions have in common, and what not."""

import jax
import pytest

from mepg.algos import algorithms
from mepg.core.types import Agent, Sizes
from tests.conftest import DISCRETE, SIZES, make_batch, sizes_of


def test_a_discrete_action_takes_one_number_however_many_there_are():
    assert Sizes(obs=3, action=4).action_width == 4
    assert Sizes(obs=3, action=4, action_kind="discrete").action_width == 1


@pytest.mark.parametrize("sizes", [SIZES, DISCRETE])
def test_a_batch_is_as_wide_as_its_sizes_say(sizes):
    batch = make_batch(5, sizes)
    assert batch.obs.shape == batch.next_obs.shape == (5, sizes.obs)
    assert batch.action.shape == (5, sizes.action_width)
    assert batch.reward.shape == batch.discount.shape == batch.number.shape == (5,)


def test_an_agent_remembers_nothing_within_an_episode_unless_it_says_so():
    agent = Agent(init=None, explore=None, exploit=None, update=None)
    assert agent.begin(jax.random.key(0)) == ()
    assert agent.beliefs is None


def test_who_remembers_something():
    key = jax.random.key(0)
    remembers = {
        name
        for name in ("ddpg", "me-sac", "sunrise", "ace", "me-dqn")
        if jax.tree.leaves(algorithms()[name].build(algorithms()[name].spec, sizes_of(name)).begin(key))
    }
    assert remembers == {"sunrise", "ace"}
