"""Exploring by choice: the proposal that the critics or one of their sub-networks like best."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.algos.mepg import ME_DDPG
from mepg.core import policies
from mepg.core.critics import make_critics
from mepg.core.posterior import posterior, posterior_mean, posterior_variance
from mepg.core.spec import Dropout, Noise, Search
from tests.conftest import SIZES, jit_quickly, make_batch


def explorer(**search):
    spec = replace(ME_DDPG, hidden=(16, 16), exploration=Noise(std=0.5), search=Search(**search))
    agent = algorithms()["me-ddpg"].build(spec, SIZES)
    return spec, agent, jit_quickly(agent.init)(jax.random.key(0))


def proposals_of(spec, state, obs, key, k):
    k_sample, k_noise = jax.random.split(key)
    rows = jnp.tile(obs, (k, 1))
    action, _ = policies.make_policy(spec, SIZES).sample(state.actor.params, rows, k_sample)
    return policies.add_noise(spec.exploration, action, k_noise).reshape(k, len(obs), -1)


@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_ucb_takes_the_proposal_with_the_largest_mean_and_spread(kappa):
    spec, agent, state = explorer(how="ucb", proposals=6, kappa=kappa)
    obs = jnp.asarray(make_batch(3).obs)
    action, memory = agent.explore(state, agent.begin(jax.random.key(1)), obs, jax.random.key(2))
    assert memory == ()
    proposals = proposals_of(spec, state, obs, jax.random.key(2), 6)
    for i in range(3):
        here = jnp.tile(obs[i], (6, 1))
        belief = posterior(make_critics(spec, SIZES), state.critic.params, here, proposals[:, i], spec)
        best = int((posterior_mean(belief) + kappa * jnp.sqrt(posterior_variance(belief))).argmax())
        np.testing.assert_allclose(action[i], proposals[best, i], rtol=1e-6)


def test_thompson_asks_one_subnetwork_for_an_episode():
    spec, agent, state = explorer(how="thompson", proposals=6)
    obs = jnp.asarray(make_batch(3).obs)
    taken = []
    for episode in range(20):
        memory = agent.begin(jax.random.key(episode))
        action, later = agent.explore(state, memory, obs, jax.random.key(2))
        assert jax.tree.all(jax.tree.map(jnp.array_equal, memory, later))
        proposals = proposals_of(spec, state, obs, jax.random.key(2), 6)
        q = jnp.stack([make_critics(spec, SIZES).q(state.critic.params, obs, a, memory.mask)[0] for a in proposals])
        np.testing.assert_allclose(action, proposals[q.argmax(axis=0), jnp.arange(3)], rtol=1e-6)
        taken.append(action)
    assert len({np.asarray(action).tobytes() for action in taken}) > 1, "other masks like other actions"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dropout": None}, "search needs critics with uncertainty"),
        ({"exploration": None}, "search needs proposals that differ"),
        ({"dropout": Dropout(layers="all")}, "set search.how=thompson"),
    ],
)
def test_a_search_without_a_choice_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(ME_DDPG, search=Search(), **changes)


def test_searches_that_mean_the_same_are_equal():
    assert Search(how="thompson", kappa=5.0) == Search(how="thompson")
    replace(ME_DDPG, search=Search(how="thompson"), dropout=Dropout(layers="all"))
