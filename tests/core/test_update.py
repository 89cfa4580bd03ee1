"""What a policy and a temperature learn from, by hand."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.agent import build
from mepg.core.bellman import critic_gradient
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.policies import make_policy
from mepg.core.spec import Dropout, Gaussian, Noise, Pessimism, PolicyAverage, Spec
from mepg.core.types import Sizes
from mepg.core.update import policy_loss, temperature_loss
from tests.conftest import SIZES, draw, jit_quickly, leaves_equal, make_batch

ONE = Sizes(obs=1, action=1)


def built(spec):
    return make_policy(spec, ONE), make_critics(spec, ONE)


def test_policy_gradient_by_hand():
    """Q(s, a) = 3a + 1 near a > 0 and pi = tanh(b): the gradient is -3 (1 - tanh(b)^2) (Eq. 5)."""
    spec = Spec(hidden=(1,))
    theta = (Layer(jnp.array([[[0.0], [1.0]]]), jnp.array([[1.0]])), Layer(jnp.array([[[3.0]]]), jnp.array([[-2.0]])))
    phi = (Layer(jnp.zeros((1, 1)), jnp.zeros(1)), Layer(jnp.zeros((1, 1)), jnp.array([0.5])))
    gradient = jax.grad(
        lambda f: policy_loss(*built(spec), f, theta, None, 0.0, jnp.ones((4, 1)), jax.random.key(0))[0]
    )(phi)
    assert gradient[1].b[0] == pytest.approx(-3 * (1 - np.tanh(0.5) ** 2), rel=1e-5)


@pytest.mark.parametrize(("policy_q", "expected"), [("first", -7.0), ("min", -4.0), ("mean", -5.5)])
def test_which_critics_the_policy_sees(policy_q, expected):
    spec = Spec(hidden=(1,), critics=2, policy_q=policy_q)
    theta = (Layer(jnp.zeros((2, 2, 1)), jnp.zeros((2, 1))), Layer(jnp.zeros((2, 1, 1)), jnp.array([[7.0], [4.0]])))
    phi = (Layer(jnp.zeros((1, 1)), jnp.zeros(1)), Layer(jnp.zeros((1, 1)), jnp.zeros(1)))
    loss, _ = policy_loss(*built(spec), phi, theta, None, 0.0, jnp.ones((3, 1)), jax.random.key(0))
    assert loss == expected


def test_temperature_loss_by_hand():
    """Eq. (8) with log pi = -2, H = -1: -0.5 * (-2 - 1) = 1.5; entropy above the target pulls alpha down."""
    assert temperature_loss(jnp.float32(0.5), jnp.array([-2.0, -2.0]), -1.0) == 1.5
    assert jax.grad(temperature_loss)(jnp.float32(0.5), jnp.array([-2.0]), -1.0) == 3.0


def states(spec, count=4):
    """The states before and after each update, on batches that differ."""
    agent = build(spec, SIZES)
    state, step = jit_quickly(agent.init)(jax.random.key(0)), jit_quickly(agent.update)
    history = [state]
    for number in range(count):
        state, _ = step(state, make_batch(seed=number), jax.random.key(number))
        history.append(state)
    return agent, history


GAUSSIAN = Spec(hidden=(16, 16), gaussian=Gaussian(), dropout=Dropout(), target_every=1)


@pytest.mark.parametrize("rate", [None, 0.3])
def test_the_average_follows_the_policy(rate):
    """phi_avg <- rate phi + (1 - rate) phi_avg."""
    _, history = states(replace(GAUSSIAN, policy_average=PolicyAverage(rate=rate), target_rate=0.1))
    eta = 0.1 if rate is None else rate
    for before, after in itertools.pairwise(history):
        expected = jax.tree.map(lambda a, p: (1 - eta) * a + eta * p, before.policy_average, after.actor.params)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), expected, after.policy_average)


@pytest.mark.parametrize("use", ["acting", "targets", "both"])
def test_who_uses_the_average(use):
    """Acting with it leaves what is learned as it was; choosing a' by it changes y, and so theta."""
    agent, (*_, averaged) = states(replace(GAUSSIAN, policy_average=PolicyAverage(use=use)))
    plain_agent, (*_, plain) = states(GAUSSIAN)
    obs, key = draw(5, SIZES.obs), jax.random.key(3)
    phi = averaged.actor.params if use == "targets" else averaged.policy_average
    as_plain = averaged._replace(actor=averaged.actor._replace(params=phi), policy_average=None)
    assert np.array_equal(agent.exploit(averaged, obs), plain_agent.exploit(as_plain, obs))
    taken, expected = (each.explore(s, (), obs, key)[0] for each, s in ((agent, averaged), (plain_agent, as_plain)))
    assert np.array_equal(taken, expected)
    same = jax.tree.all(jax.tree.map(np.array_equal, averaged.critic.params, plain.critic.params))
    assert same == (use == "acting")


def test_a_deterministic_policy_has_a_target_and_an_average():
    spec = Spec(hidden=(16,), exploration=Noise(std=0.1), policy_average=PolicyAverage(rate=0.5))
    _, (*_, state) = states(spec)
    different = jax.tree.map(lambda x, y: not np.array_equal(x, y), state.actor.target, state.policy_average)
    assert jax.tree.all(different)


def test_y_may_be_another():
    """An agent with a `critic_gradient` of its own: here y is r, as at a terminal state."""

    def of_the_reward(critics, spec, theta, theta_target, pi, alpha, batch, key, weight):
        return critic_gradient(
            critics, spec, theta, theta_target, pi, alpha, batch._replace(discount=0 * batch.discount), key, weight
        )

    spec, batch, key = algorithms()["me-sac"].spec, make_batch(), jax.random.key(1)
    plain, other = build(spec, SIZES), build(spec, SIZES, critic_gradient=of_the_reward)
    state = plain.init(jax.random.key(0))
    ended, _ = jit_quickly(plain.update)(state, batch._replace(discount=0 * batch.discount), key)
    assert leaves_equal(jit_quickly(other.update)(state, batch, key)[0], ended)


def test_pessimism_lowers_y_by_beta_sigma():
    """With s' the same for all and gamma = 1, y falls by beta sigma, and so, after one step, does the mean of Q."""
    low, high = (replace(GAUSSIAN, pessimism=pessimism) for pessimism in (Pessimism(beta=5.0), None))
    (_, (*_, a)), (_, (*_, b)) = states(low, 50), states(high, 50)
    batch, critics = make_batch(seed=99), make_critics(GAUSSIAN, SIZES)
    assert critics.q(a.critic.params, batch.obs, batch.action).mean() < (
        critics.q(b.critic.params, batch.obs, batch.action).mean()
    )


@pytest.mark.parametrize("name", [name for name in algorithms() if name.startswith("me-") and "+lcb" not in name])
def test_without_beta_there_is_no_pessimism(name):
    spec = algorithms()[name].spec
    assert replace(spec, pessimism=Pessimism(beta=0)) == spec
