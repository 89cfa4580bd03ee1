"""Several networks for Q."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.critics import lower_bound, make_critics
from mepg.core.masks import draw_mask
from mepg.core.spec import Dropout, Pessimism, Quantiles, Spec
from mepg.core.types import Sizes
from tests.conftest import SIZES, draw, jit_quickly


def test_one_critic_needs_no_axis():
    """[1, B], and the same as without the special case: two equal critics, by the general one."""
    critics = make_critics(Spec(hidden=(16,)), SIZES)
    theta = jit_quickly(critics.init)(jax.random.key(0))
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), theta)
    obs, action = draw(6, 3), draw(6, 2, seed=1)
    one, two = critics.q(theta, obs, action), critics.q(twice, obs, action)
    assert one.shape == (1, 6)
    np.testing.assert_allclose(np.concatenate([one, one]), two, atol=1e-6)


@pytest.mark.parametrize(("policy_q", "which"), [("first", 0), ("min", "min"), ("mean", "mean")])
def test_what_the_policy_sees_of_several(policy_q, which):
    critics = make_critics(Spec(hidden=(16,), critics=3, policy_q=policy_q), SIZES)
    theta = jit_quickly(critics.init)(jax.random.key(0))
    obs, action = draw(6, 3), draw(6, 2, seed=1)
    q = np.asarray(critics.q(theta, obs, action))
    assert q.shape == (3, 6)
    assert len(np.unique(q[:, 0])) == 3, "each has weights of its own"
    expected = q[which] if isinstance(which, int) else getattr(q, which)(axis=0)
    np.testing.assert_allclose(critics.policy_q(theta, obs, action, None), expected, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 3])
def test_the_contributions_to_q_add_up_to_it(count):
    critics = make_critics(Spec(hidden=(16, 8), critics=count), SIZES)
    theta = jit_quickly(critics.init)(jax.random.key(0))
    q, contributions = critics.values(theta, draw(6, 3), draw(6, 2, seed=1), None)
    assert contributions.shape == (count, 6, 8)
    np.testing.assert_allclose(contributions.sum(axis=-1) + theta[-1].b, q, atol=1e-6)


def test_the_lower_bound_by_hand():
    """p = 0.5, so lambda = 1; c = (3, 4), so sigma = 5; Q = 7 - 0.2 * 5 = 6."""
    spec = Spec(hidden=(2,), dropout=Dropout(p=0.5), pessimism=Pessimism(beta=0.2))
    squares = jnp.square(jnp.array([[[3.0, 4.0]]])).sum(axis=-1)
    np.testing.assert_allclose(lower_bound(spec, jnp.array([[7.0]]), squares), [[6.0]], rtol=1e-6)
    quantiles = lower_bound(spec, jnp.array([[[7.0, 9.0]]]), squares)
    np.testing.assert_allclose(quantiles, [[[6.0, 8.0]]], rtol=1e-6)


@pytest.mark.parametrize("quantiles", [None, Quantiles(count=5)])
@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_sigma_is_the_spread_over_drawn_masks(kind, quantiles):
    """What is subtracted is beta times the standard deviation of Q over many sub-networks."""
    spec = Spec(
        hidden=(16, 16),
        critics=2,
        dropout=Dropout(p=0.2),
        quantiles=quantiles,
        pessimism=Pessimism(beta=2.0, policy=True),
        policy_q="first",
    )
    sizes = Sizes(3, 2, kind)
    critics = make_critics(spec, sizes)
    theta = jit_quickly(critics.init)(jax.random.key(0))
    obs, action = draw(6, 3), (jnp.arange(6)[:, None] % 2).astype(jnp.float32) if kind == "discrete" else draw(6, 2)
    masks = draw_mask(spec, 2, 20_000, jax.random.key(1))

    def q_under(number):
        return critics.q(theta, obs, action, jax.tree.map(lambda rows: rows[:, number, None], masks))[0]

    spread = np.std(jax.lax.map(q_under, jnp.arange(20_000)), axis=0)
    penalty = critics.q(theta, obs, action)[0] - critics.policy_q(theta, obs, action, None)
    np.testing.assert_allclose(penalty, 2.0 * spread, rtol=0.03)


def test_the_spread_of_each_discrete_action_is_that_of_the_taken_one():
    spec = algorithms()["me-qr-dqn"].spec
    critics = make_critics(spec, Sizes(3, 4, "discrete"))
    theta, obs = jit_quickly(critics.init)(jax.random.key(0)), draw(6, 3)
    q, squares = critics.action_values(theta, obs, None)
    for action in range(4):
        taken = jnp.full((6, 1), float(action))
        _, contributions = critics.values(theta, obs, taken, None)
        np.testing.assert_allclose(squares[:, :, action], jnp.square(contributions).sum(axis=-1), rtol=1e-4)
        np.testing.assert_allclose(q[:, :, action], critics.q(theta, obs, taken), rtol=1e-5)


def test_the_gradient_of_the_bound_is_finite_where_no_unit_contributes():
    spec = Spec(hidden=(2,), dropout=Dropout(), pessimism=Pessimism())
    slope = jax.grad(lambda c: lower_bound(spec, jnp.zeros((1, 1)), jnp.square(c).sum(axis=-1)).sum())
    assert np.array_equal(slope(jnp.zeros((1, 1, 2))), np.zeros((1, 1, 2)))
