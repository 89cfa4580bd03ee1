"""SAC for discrete actions: sums over actions, by hand and against many draws, and the defining test."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos.sac_discrete import ME_SAC_DISCRETE, SAC_DISCRETE, CategoricalSpec, build, critic_gradient
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.spec import Dropout, Quantiles, Temperature
from tests.conftest import DISCRETE, jit_quickly, leaves_equal, make_batch

KEY = jax.random.key(0)


def hand_made(*outputs):
    """Critics with one hidden unit that is 1 for every s, and these outputs for the four actions."""
    count = len(outputs)
    return (
        Layer(jnp.zeros((count, 3, 1)), jnp.ones((count, 1))),
        Layer(jnp.array(outputs)[:, None], jnp.zeros((count, 4))),
    )


def test_by_hand():
    """Two critics say 1 2 3 4 and 4 3 2 1: the minimum of each is 1 2 2 1. With pi of 1/2 1/4 1/8 1/8 its mean is
    1/2 + 1/2 + 1/4 + 1/8 = 11/8, and the entropy 7/4 log 2. alpha = 0.2, r = 1, gamma = 1/2.
    """
    pi = jnp.array([[0.5, 0.25, 0.125, 0.125]])
    target = hand_made([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0])
    spec = replace(SAC_DISCRETE, hidden=(1,), discount=0.5)
    batch = make_batch(1, DISCRETE)._replace(action=jnp.zeros((1, 1)), reward=jnp.ones(1), discount=jnp.ones(1))
    zero = jax.tree.map(jnp.zeros_like, target)
    _, metrics = critic_gradient(make_critics(spec, DISCRETE), spec, zero, target, jnp.log(pi), 0.2, batch, KEY)
    y = 1 + 0.5 * (11 / 8 + 0.2 * 7 / 4 * math.log(2))
    assert metrics["critic_loss"] == pytest.approx(2 * 0.5 * y**2)


@pytest.mark.parametrize("masks", ["consistent", "independent", "online"])
def test_defining(masks):
    """theta = theta', s = s', a policy that is sure of its action, r = 0, gamma = 1, alpha = 0."""
    dropout = Dropout(p=0.3, masks=masks)
    spec = replace(ME_SAC_DISCRETE, hidden=(32, 32), discount=1.0, temperature=None, dropout=dropout)
    critics, batch = make_critics(spec, DISCRETE), make_batch(64, DISCRETE)
    theta = jit_quickly(critics.init)(KEY)
    still = batch._replace(reward=jnp.zeros(64), discount=jnp.ones(64), next_obs=batch.obs)
    sure = jnp.where(batch.action == jnp.arange(4), 0.0, -1e9)
    log_pi = jax.nn.log_softmax(sure)
    loss = critic_gradient(critics, spec, theta, theta, log_pi, 0.0, still, KEY)[1]["critic_loss"]
    assert loss == pytest.approx(0, abs=1e-12) if masks == "consistent" else loss > 1e-4


def test_actions_come_as_often_as_the_policy_says():
    agent = build(replace(SAC_DISCRETE, hidden=(8,)), DISCRETE)
    state = jit_quickly(agent.init)(KEY)
    obs = jnp.tile(make_batch(1, DISCRETE).obs, (20_000, 1))
    action, bonus = jit_quickly(agent.beliefs.critics_policy)(state, obs, KEY, KEY)
    for choice in range(4):
        took = np.asarray(action[:, 0] == choice)
        assert np.exp(-np.asarray(bonus)[took][0] / 0.1) == pytest.approx(took.mean(), abs=0.02)  # alpha is 0.1
    explored, _ = agent.explore(state, (), obs[:7], KEY)
    assert explored.shape == (7, 1)


@pytest.mark.parametrize(("ratio", "grows"), [(1.0, True), (0.0, False)])
def test_alpha_aims_at_a_share_of_the_largest_entropy(ratio, grows):
    agent = build(replace(SAC_DISCRETE, hidden=(8,), entropy_ratio=ratio), DISCRETE)
    state = jit_quickly(agent.init)(KEY)
    after, metrics = jit_quickly(agent.update)(state, make_batch(16, DISCRETE), KEY)
    assert 0 < metrics["entropy"].value < math.log(4)
    assert bool(after.temperature.params > state.temperature.params) == grows


def test_what_means_the_same_and_what_cannot_be():
    fixed = replace(SAC_DISCRETE, temperature=Temperature(lr=None))
    assert replace(fixed, entropy_ratio=0.9) == fixed
    assert replace(ME_SAC_DISCRETE, dropout=Dropout(p=0), critics=2, actor_every=1) == SAC_DISCRETE
    for wrong in (
        {"quantiles": Quantiles()},
        {"entropy_ratio": 1.1},
        {"critics": 1, "dropout": Dropout(masks="expected")},
    ):
        with pytest.raises(ValueError, match=r"must be|needed|set another"):
            CategoricalSpec(**wrong)


def test_without_dropout_it_is_sac_discrete_in_bits():
    collapsed = replace(ME_SAC_DISCRETE, dropout=Dropout(p=0), critics=2, actor_every=1, hidden=(8,))
    states = []
    for spec in (collapsed, replace(SAC_DISCRETE, hidden=(8,))):
        agent = build(spec, DISCRETE)
        states.append(jit_quickly(agent.update)(jit_quickly(agent.init)(KEY), make_batch(16, DISCRETE), KEY)[0])
    assert leaves_equal(*states)
