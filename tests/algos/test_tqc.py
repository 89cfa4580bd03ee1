"""TQC: what its equation is, by hand, and what it comes down to."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos.sac import SAC
from mepg.algos.tqc import ME_TQC, TQC
from mepg.core import policies
from mepg.core.agent import build
from mepg.core.bellman import combine_critics, critic_gradient
from mepg.core.critics import make_critics
from mepg.core.spec import Dropout, Quantiles
from tests.conftest import SIZES, jit_quickly, make_batch

KEY = jax.random.key(3)


def gradient_of(spec, batch, seed=0):
    state = jit_quickly(build(spec, SIZES).init)(jax.random.key(seed))
    theta, pi = state.critic.params, partial(policies.make_policy(spec, SIZES).sample, state.actor.params)
    return critic_gradient(make_critics(spec, SIZES), spec, theta, theta, pi, 0.2, batch, KEY)[0]


def test_the_dropped_atoms_by_hand():
    """Two critics of three quantiles, one of each dropped: of 1 2 9 and 3 4 5, all but the largest two, 5 and 9."""
    atoms = jnp.array([[[1.0, 2.0, 9.0]], [[3.0, 4.0, 5.0]]])
    dropped, all_kept = (replace(TQC, quantiles=Quantiles(count=3, dropped=dropped)) for dropped in (1, 0))
    np.testing.assert_array_equal(combine_critics(dropped, atoms, jnp.zeros((2, 1, 4))).q, [[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(
        np.sort(combine_critics(all_kept, atoms, jnp.zeros((2, 1, 4))).q), [[1.0, 2.0, 3.0, 4.0, 5.0, 9.0]]
    )


def test_with_one_quantile_it_is_sac_with_one_critic():
    """Such a spec is SAC's, so here the path with quantiles is walked by force: the same, but for rounding."""
    one, batch = replace(SAC, critics=1, hidden=(16, 16)), make_batch()
    by_force = replace(one)
    object.__setattr__(by_force, "quantiles", Quantiles(count=1))
    ours, theirs = (gradient_of(spec, batch) for spec in (by_force, one))
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dropped", [0, 2])
def test_defining(dropped):
    """One network, one state, no reward, gamma = 1, alpha = 0: both sides are the same quantiles under one mask.

    The distance of a distribution to itself is not 0, so one mask gives what no mask gives with these quantiles, and
    two masks give more.
    """
    spec = replace(
        ME_TQC, hidden=(32, 32), discount=1.0, temperature=None, quantiles=Quantiles(count=5, dropped=dropped)
    )
    batch = make_batch(256)
    state = jit_quickly(build(spec, SIZES).init)(jax.random.key(0))
    theta, policy = state.critic.params, policies.make_policy(spec, SIZES)
    # All quantiles equal: then a distribution is at no distance from itself.
    last = theta[-1]._replace(w=jnp.repeat(theta[-1].w[..., :1], 5, axis=-1), b=jnp.repeat(theta[-1].b[..., :1], 5, -1))
    theta = (*theta[:-1], last)

    def pi(obs, _):
        return policy.mode(state.actor.params, obs), jnp.zeros(len(obs))

    still = batch._replace(
        action=pi(batch.obs, None)[0], reward=jnp.zeros(256), discount=jnp.ones(256), next_obs=batch.obs
    )
    for masks, least in (("consistent", None), ("independent", 1e-4), ("online", 1e-4)):
        other = replace(spec, dropout=Dropout(masks=masks))
        critics = make_critics(other, SIZES)
        loss = critic_gradient(critics, other, theta, theta, pi, 0.0, still, KEY)[1]["critic_loss"]
        assert loss == pytest.approx(0, abs=1e-12) if least is None else loss > least


def test_the_policy_sees_the_mean_of_all_quantiles_of_all_critics():
    spec = replace(TQC, hidden=(16, 16))
    critics, batch = make_critics(spec, SIZES), make_batch()
    theta = jit_quickly(critics.init)(KEY)
    atoms, contributions = critics.values(theta, batch.obs, batch.action, None)
    assert atoms.shape == (2, 16, 25)
    np.testing.assert_allclose(
        critics.policy_q(theta, batch.obs, batch.action, None), atoms.mean(axis=(0, 2)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        contributions.sum(axis=-1) + theta[-1].b.mean(axis=-1)[:, None], atoms.mean(axis=-1), rtol=1e-4, atol=1e-5
    )
