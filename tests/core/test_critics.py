"""Several networks for Q."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.critics import make_critics
from mepg.core.spec import Spec
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


@pytest.mark.parametrize(("improve_on", "which"), [("first", 0), ("min", "min"), ("mean", "mean")])
def test_what_the_policy_sees_of_several(improve_on, which):
    critics = make_critics(Spec(hidden=(16,), critics=3, improve_on=improve_on), SIZES)
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
    q, contributions = critics.all(theta, draw(6, 3), draw(6, 2, seed=1), None)
    assert contributions.shape == (count, 6, 8)
    np.testing.assert_allclose(contributions.sum(axis=-1) + theta[-1].b, q, atol=1e-6)
