"""The masks' closed forms, against masks that are drawn."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.algos.mepg import ME_DDPG, ME_SAC
from mepg.core import policies
from mepg.core.bellman import critic_gradient
from mepg.core.critics import make_critics
from mepg.core.masks import draw_mask, mask_variance
from mepg.core.normalise import with_normalised_obs
from mepg.core.posterior import posterior, posterior_covariance, posterior_mean, posterior_variance
from mepg.core.spec import Dropout, Spec
from tests.conftest import EVERY_AGENT, SIZES, jit_quickly, make_batch, sizes_of
from tests.core.test_bellman import networks
from tests.core.test_probes import B, learner, transitions

DRAWN = 100_000


@cache
def critics(trained, **changes):
    """A spec, its critics and some inputs: as they begin, or after some hundred updates."""
    spec = Spec(hidden=(16, 32), critic_lr=3e-3, **changes)
    agent = algorithms()["ddpg"].build(spec, SIZES)
    state = jit_quickly(agent.init)(jax.random.key(0))
    if trained:
        update = jit_quickly(agent.update)
        for i in range(300):
            state, _ = update(state, make_batch(seed=i % 20), jax.random.fold_in(jax.random.key(1), i))
    batch = make_batch(4, seed=99)
    return spec, state.critic.params, batch.obs, batch.action


def believed(spec, theta, obs, action):
    return posterior(make_critics(spec, SIZES), theta, obs, action, spec)


def drawn(spec, theta, obs, action):
    """Q of each critic under `DRAWN` masks, [N, masks, B]."""
    masks = draw_mask(spec, spec.critics, DRAWN, jax.random.key(5))

    @jit_quickly
    def q(rows):
        one = lambda row: make_critics(spec, SIZES).q(theta, obs, action, jax.tree.map(lambda m: m[:, None], row))  # noqa: E731
        return jax.vmap(one, in_axes=1, out_axes=1)(rows)

    few = [jax.tree.map(lambda m, i=i: m[:, i : i + 10_000], masks) for i in range(0, DRAWN, 10_000)]
    return np.concatenate([q(rows) for rows in few], axis=1)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_closed_forms_against_masks_that_are_drawn(trained, p):
    spec, theta, obs, action = critics(trained, dropout=Dropout(p=p))
    belief = believed(spec, theta, obs, action)
    (q,) = drawn(spec, theta, obs, action).astype(np.float64)  # [masks, B]
    std = np.sqrt(posterior_variance(belief))
    np.testing.assert_allclose(posterior_mean(belief), make_critics(spec, SIZES).q(theta, obs, action)[0], rtol=1e-6)
    np.testing.assert_allclose(posterior_mean(belief), q.mean(axis=0), atol=5 * std.max() / DRAWN**0.5)
    np.testing.assert_allclose(std, q.std(axis=0), rtol=0.015)
    scale = np.outer(std, std).max()
    np.testing.assert_allclose(posterior_covariance(belief), np.cov(q.T, bias=True), atol=0.015 * scale)
    np.testing.assert_allclose(np.diag(posterior_covariance(belief)), posterior_variance(belief), rtol=1e-5)
    for level, width in ((0.5, 0.6745), (0.9, 1.6449)):  # a sum over many units: nearly normal
        inside = (np.abs(q - np.asarray(posterior_mean(belief))) <= width * std).mean()
        assert inside == pytest.approx(level, abs=0.08 if p == 0.1 else 0.04)


def test_several_masked_critics_vary_within_and_between():
    spec, theta, obs, action = critics(False, critics=3, dropout=Dropout(p=0.3))
    belief = believed(spec, theta, obs, action)
    q = drawn(spec, theta, obs, action).reshape(-1, len(obs)).astype(np.float64)
    np.testing.assert_allclose(np.sqrt(posterior_variance(belief)), q.std(axis=0), rtol=0.015)
    np.testing.assert_allclose(posterior_covariance(belief), np.cov(q.T, bias=True), atol=0.02 * q.var(axis=0).max())


def test_without_masks_the_critics_spread_is_left():
    spec, theta, obs, action = critics(False, critics=3)
    q = make_critics(spec, SIZES).q(theta, obs, action)
    belief = believed(spec, theta, obs, action)
    np.testing.assert_allclose(posterior_mean(belief), q.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(posterior_variance(belief)), q.std(axis=0), rtol=1e-5)
    alone, theta, *_ = critics(False)
    assert not posterior_variance(believed(alone, theta, obs, action)).any()


@pytest.mark.parametrize("changes", [{"layers": "all"}, {"place": "before"}])
def test_where_there_is_no_closed_form_masks_are_drawn(changes):
    spec, theta, obs, action = critics(False, layer_norm=True, dropout=Dropout(p=0.3, **changes))
    (q,) = drawn(spec, theta, obs, action)
    belief = believed(spec, theta, obs, action)
    np.testing.assert_allclose(np.sqrt(posterior_variance(belief)), q.std(axis=0), rtol=0.12)
    np.testing.assert_allclose(posterior_mean(belief), q.mean(axis=0), atol=0.2 * q.std())
    assert not algorithms()["ddpg"].build(spec, SIZES).beliefs.closed_form


def test_by_hand():
    """Units worth 8 and 2 at one input, 2 and 3 at another; p = 0.5, so lambda = 1."""
    belief = _two_units()
    np.testing.assert_allclose(posterior_variance(belief), [68, 13])
    np.testing.assert_allclose(posterior_covariance(belief), [[68, 22], [22, 13]])


def _two_units():
    from mepg.core.nets import Layer

    spec = Spec(hidden=(2,), dropout=Dropout(p=0.5))
    theta = (Layer(jnp.eye(2)[None], jnp.zeros((1, 2))), Layer(jnp.ones((1, 2, 1)), jnp.zeros((1, 1))))
    return believed(spec, theta, jnp.array([[8.0], [2.0]]), jnp.array([[2.0], [3.0]]))


def test_lambda_is_of_the_p_that_is_drawn():
    assert mask_variance(Dropout(p=0.5)) == 1
    assert mask_variance(Dropout(p=0.1)) == pytest.approx(1 / 9, rel=1e-4)
    m = draw_mask(Spec(hidden=(500,), dropout=Dropout(p=0.3)), 1, 2000, jax.random.key(0))[-1]
    assert m.var() == pytest.approx(mask_variance(Dropout(p=0.3)), rel=0.01)


@pytest.mark.parametrize("name", EVERY_AGENT)
def test_every_algorithm_can_be_looked_into(name):
    """Mean, covariance, sub-networks and the policy that is judged; of each kind with normalised observations too."""
    entry = algorithms()[name]
    sizes = sizes_of(name)
    agent = entry.build(replace(entry.spec, hidden=(8, 8)), sizes)
    batch = make_batch(5, sizes)
    for one in (
        (agent, with_normalised_obs(agent, sizes))
        if name in ("me-sac", "sunrise", "ace", "ace-flat", "me-dqn")
        else (agent,)
    ):
        state = jit_quickly(one.init)(jax.random.key(0))

        @jit_quickly
        def look(state, one=one):
            belief = one.beliefs.posterior(state, batch.obs, batch.action)
            draws = jax.vmap(lambda key: one.beliefs.subnetwork(state, batch.obs, batch.action, key))(
                jax.random.split(jax.random.key(1), 50)
            )
            action, bonus = one.beliefs.critics_policy(state, batch.obs, jax.random.key(2), jax.random.key(3))
            return (
                posterior_mean(belief),
                posterior_variance(belief),
                posterior_covariance(belief),
                draws,
                action,
                bonus,
            )

        q, v, cov, draws, action, bonus = look(state)
        assert draws.shape == (50, 5)
        np.testing.assert_allclose(np.diag(cov), v, rtol=1e-3, atol=1e-7)
        assert (np.linalg.eigvalsh(cov) > -1e-5).all()
        assert np.abs(draws.mean(axis=0) - q).max() <= 0.9 * np.sqrt(v).max() + 1e-6
        assert action.shape == batch.action.shape
        assert np.abs(action).max() <= (1 if sizes.action_kind == "box" else sizes.action - 1)
        assert bonus.shape == (5,)
        assert bool(bonus.any()) == (getattr(entry.spec, "temperature", None) is not None)


def test_normalised_observations_are_what_the_critics_see():
    agent = algorithms()["me-sac"].build(replace(ME_SAC, hidden=(8, 8)), SIZES)
    wrapped = with_normalised_obs(agent, SIZES)
    state = jit_quickly(wrapped.init)(jax.random.key(0))
    state = state._replace(mean=jnp.full(SIZES.obs, 2.0), variance=jnp.full(SIZES.obs, 4.0))
    batch = make_batch(5)
    ours = wrapped.beliefs.posterior(state, batch.obs, batch.action)
    theirs = agent.beliefs.posterior(state.agent, (batch.obs - 2) / 2, batch.action)
    np.testing.assert_allclose(ours.q, theirs.q, rtol=1e-5)


# The noise of the Bellman residual


def evaluation(spec):
    """A function of a key: one critic update's gradient and metrics."""
    theta, phi = networks(spec)
    theta_target, _ = networks(spec, seed=1)
    pi = partial(policies.make_policy(spec, SIZES).sample, phi)
    return partial(critic_gradient, make_critics(spec, SIZES), spec, theta, theta_target, pi, 0.0, make_batch(8))


def noise_metrics(spec, keys):
    return jax.jit(jax.vmap(evaluation(spec)))(jax.random.split(jax.random.key(2), keys))


@pytest.mark.parametrize("masks", ["consistent", "independent"])
def test_the_noise_that_is_logged_is_what_masks_add_to_the_loss(masks):
    """E[loss] - loss of the complete networks, times 2: with one mask, and with two."""
    spec = Spec(hidden=(16, 32), discount=0.9, dropout=Dropout(p=0.3, masks=masks))
    _, metrics = noise_metrics(spec, 20_000)
    _, complete = noise_metrics(replace(spec, dropout=None), 1)
    name = {"consistent": "noise_one_mask", "independent": "noise_two_masks"}[masks]
    added = 2 * (np.asarray(metrics["critic_loss"], np.float64) - np.asarray(complete["critic_loss"])[0])
    error = added.std() / len(added) ** 0.5
    assert metrics[name][0] == pytest.approx(added.mean(), abs=4 * error)
    assert np.ptp(np.asarray(metrics[name])) == 0, "no chance in it"


def test_noise_of_several_critics_by_hand():
    """Where y is the other critic's, one mask for each critic is already two."""
    from mepg.core.posterior import residual_variance

    c, d = jnp.array([[1.0, 2.0], [1.0, 2.0]]), jnp.array([[1.0, 1.0], [1.0, 1.0]])
    one, two = residual_variance(c, d, jnp.array([True, False]), Dropout(p=0.5))
    assert one.tolist() == [1, 7]
    assert two.tolist() == [7, 7]


def test_only_what_has_a_closed_form_is_logged():
    def names(**changes):
        return jax.eval_shape(evaluation(Spec(hidden=(8, 8), **changes)), jax.random.key(0))[1].keys()

    both = {"noise_one_mask", "noise_two_masks"}
    assert both <= names(dropout=Dropout())
    assert both <= names(dropout=Dropout(), critics=3, subset=2)
    assert not both & names()
    assert not both & names(dropout=Dropout(layers="all"))


# The expected update


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_expected_gradient_is_the_average_of_the_sampled_one(alpha):
    spec = replace(ME_SAC, hidden=(16, 32), discount=0.9, dropout=Dropout(p=0.3))
    expected = replace(spec, dropout=Dropout(p=0.3, masks="expected"))
    batch = make_batch(8)
    theta, phi = networks(spec)
    theta_target, _ = networks(spec, seed=1)
    fixed = jax.random.key(7)

    def pi(obs, _):  # the same next action whatever the key: only masks may differ
        return policies.make_policy(spec, SIZES).sample(phi, obs, fixed)

    def gradient(spec, key):
        return critic_gradient(make_critics(spec, SIZES), spec, theta, theta_target, pi, alpha, batch, key)

    keys = jax.random.split(jax.random.key(3), 40_000)
    sampled, metrics = jax.jit(jax.vmap(partial(gradient, spec)))(keys)
    exact, exact_metrics = gradient(expected, keys[0])
    assert exact_metrics["critic_loss"] == pytest.approx(float(metrics["critic_loss"].mean()), rel=0.01)
    flat = np.concatenate([np.asarray(leaf).reshape(len(keys), -1) for leaf in jax.tree.leaves(sampled)], axis=1)
    error = flat.std(axis=0) / len(keys) ** 0.5
    ours = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(exact)])
    np.testing.assert_allclose(ours, flat.mean(axis=0), atol=1e-6 + 5 * error.max())
    assert (np.abs(ours - flat.mean(axis=0)) <= 5 * error + 1e-6).mean() > 0.999
    complete, _ = gradient(replace(spec, dropout=None), keys[0])
    apart = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(complete)]) - ours
    assert np.abs(apart).max() > 20 * error.max(), "the masks must matter for this to be a test"


def test_expected_masks_need_no_chance():
    """Without smoothing or a stochastic policy, the whole update is the same whatever its key is."""
    spec = replace(ME_DDPG, hidden=(8, 8), smoothing=None, dropout=Dropout(masks="expected"))
    agent = algorithms()["me-ddpg-x"].build(spec, SIZES)
    state = agent.init(jax.random.key(0))
    one, other = (jit_quickly(agent.update)(state, make_batch(), jax.random.key(i))[0] for i in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


# A chain whose values are known


def test_the_band_covers_the_values_of_a_chain():
    """s = 0, 0.25, ..., 1, each leads to the next for nothing, the last ends with 1: Q = gamma^steps to go."""
    spec = replace(
        ME_DDPG, hidden=(64, 64), actor_lr=3e-3, critic_lr=1e-3, target_rate=0.05, discount=0.8, exploration=None
    )
    rng = np.random.default_rng(0)
    agent, train = learner(spec)
    states = rng.integers(5, size=(1500, B)).astype(np.float32) / 4
    action = rng.uniform(-1, 1, (1500, B, 1)).astype(np.float32)
    end = states == 1
    batches = jax.vmap(transitions)(states, action, end, ~end, np.minimum(states + 0.25, 1))
    state = train(agent.init(jax.random.key(0)), batches)
    s = np.repeat(np.arange(5) / 4, 9).astype(np.float32)
    a = np.tile(np.linspace(-0.8, 0.8, 9), 5).astype(np.float32)
    truth = 0.8 ** (4 - 4 * s)
    belief = agent.beliefs.posterior(state, s[:, None], a[:, None])
    q, std = np.asarray(posterior_mean(belief)), np.sqrt(np.asarray(posterior_variance(belief)))
    np.testing.assert_allclose(q, truth, atol=0.1)
    assert (np.abs(q - truth) <= 1.96 * std).mean() >= 0.95
    assert (std > 0).all()
    draws = jax.vmap(lambda key: agent.beliefs.subnetwork(state, s[:, None], a[:, None], key))(
        jax.random.split(jax.random.key(0), 2000)
    )
    for level, width in ((0.5, 0.6745), (0.9, 1.6449), (0.95, 1.96)):
        assert (np.abs(draws - q) <= width * std).mean() == pytest.approx(level, abs=0.06)
