"""Tiny problems whose values are known; the critic finds them, and the policy what follows from them."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.agent import build
from mepg.core.critics import make_critics
from mepg.core.spec import Spec, Temperature
from mepg.core.types import Batch, Sizes
from tests.conftest import MAIN

SIZES = Sizes(obs=1, action=1)
B = 64


UPDATES = 1500


@cache
def learner(spec):
    """An agent, and a function that takes it through as many batches as it is given, compiled once."""
    agent = build(spec, SIZES)
    keys = jax.random.split(jax.random.key(1), UPDATES)

    def step(state, item):
        batch, key = item
        return agent.update(state, batch, key)[0], None

    return agent, jax.jit(lambda state, batches: jax.lax.scan(step, state, (batches, keys))[0])


def learn(name, problem):
    """The state after learning from uniformly random actions in `problem(coin, action) -> Batch`."""
    spec = replace(
        algorithms()[name].spec, hidden=(32, 32), actor_lr=3e-3, critic_lr=3e-3, target_rate=0.05, discount=0.5
    )
    if spec.temperature is not None:  # a bonus for entropy would change the values
        spec = replace(spec, temperature=Temperature(initial=1e-4, lr=None))
    return run(spec, problem)


def run(spec, problem):
    rng = np.random.default_rng(0)
    coin = rng.integers(2, size=(UPDATES, B)).astype(np.float32)
    action = rng.uniform(-1, 1, (UPDATES, B, 1)).astype(np.float32)
    agent, train = learner(spec)
    return agent, train(agent.init(jax.random.key(0)), jax.vmap(problem)(coin, action))


def q(state, obs, action):
    critics = make_critics(Spec(), SIZES)  # complete networks, whatever the algorithm
    return float(critics.q(state.critic.params, jnp.array([[obs]]), jnp.array([[action]])).min())


def transitions(obs, action, reward, alive, next_obs):
    fill = lambda x: jnp.broadcast_to(jnp.asarray(x, jnp.float32), (B,))  # noqa: E731
    return Batch(fill(obs)[:, None], action, fill(reward), fill(alive), fill(next_obs)[:, None], fill(0))


@pytest.mark.parametrize("name", MAIN)
def test_reward_that_follows_from_the_observation(name):
    """One step: r = s. Q(s, a) = s."""
    _, state = learn(name, lambda coin, a: transitions(coin, a, coin, 0, 0))
    for obs in (0.0, 1.0):
        for action in (-0.5, 0.5):
            assert q(state, obs, action) == pytest.approx(obs, abs=0.1)


@pytest.mark.parametrize("name", MAIN)
def test_reward_that_is_a_step_away(name):
    """s = 0 leads to s = 1 for nothing, s = 1 ends with 1. Q(1) = 1, Q(0) = gamma."""
    _, state = learn(name, lambda coin, a: transitions(coin, a, coin, 1 - coin, 1))
    assert q(state, 1.0, 0.0) == pytest.approx(1, abs=0.1)
    assert q(state, 0.0, 0.0) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("name", MAIN)
def test_a_time_limit_is_not_an_end(name):
    """A state that leads to itself and pays 1: 1 / (1 - gamma) while alive, 1 if it is the end."""
    _, state = learn(name, lambda coin, a: transitions(coin, a, 1, coin, coin))
    assert q(state, 1.0, 0.0) == pytest.approx(2, abs=0.15)
    assert q(state, 0.0, 0.0) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("name", MAIN)
def test_reward_that_follows_from_the_action(name):
    """r = -(a - (s - 0.5))^2: the policy finds a = s - 0.5, and is worth 0 there."""
    agent, state = learn(name, lambda coin, a: transitions(coin, a, -((a[:, 0] - coin + 0.5) ** 2), 0, 0))
    for obs in (0.0, 1.0):
        action = float(agent.exploit(state, jnp.array([[obs]]))[0, 0])
        assert action == pytest.approx(obs - 0.5, abs=0.15)
        assert q(state, obs, action) == pytest.approx(0, abs=0.1)
        assert q(state, obs, obs - 1.0) == pytest.approx(-0.25, abs=0.12)


def test_self_loop_with_heavy_dropout_needs_the_consistent_mask():
    """A state that leads to itself and pays 1, gamma = 0.9, half of the units dropped: it is worth 10.

    Setting the expected semi-gradient to zero for k active units that share Q evenly gives
    10 / (1 + 1/k) with the same mask on both sides and 1 / (0.1 + 1/k) with two: for k = 32, half of
    the units, 9.7 and 7.6.
    """
    values = {}
    for name in ("me-ddpg", "me-ddpg-r"):
        spec = algorithms()[name].spec
        dropout = replace(spec.dropout, p=0.5)
        spec = replace(spec, dropout=dropout, hidden=(64, 64), critic_lr=3e-3, target_rate=0.2, discount=0.9)
        _, state = run(spec, lambda coin, a: transitions(1, a, 1, 1, 1))
        values[name] = np.mean([q(state, 1.0, action) for action in (-0.5, 0.0, 0.5)])
    assert values["me-ddpg"] == pytest.approx(9.7, abs=0.3)
    assert values["me-ddpg-r"] == pytest.approx(7.6, abs=0.8)
