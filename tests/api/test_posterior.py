"""model.q_posterior, q_covariance and q_samples."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import mepg
from mepg.core.critics import make_critics
from mepg.core.spec import Dropout
from tests.run import stubs  # noqa: F401

SMALL = {"seed": 0, "policy_kwargs": {"net_arch": [16, 16]}, "learning_starts": 20, "batch_size": 8}


@pytest.fixture(scope="module")
def model():
    """Observations normalised, actions not in [-1, 1]."""
    return mepg.ME_SAC("MlpPolicy", "StubScaled-v0", normalize_obs=True, **SMALL).learn(40)


def inputs(model, count):
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((count, *model.observation_space.shape)).astype(np.float32)
    return obs, model.predict(obs, deterministic=True)[0]


def test_posterior_covariance_and_samples_agree(model):
    obs, action = inputs(model, 4)
    mean, std = model.q_posterior(obs, action)
    covariance = model.q_covariance(obs, action)
    samples = model.q_samples(obs, action, 4000)
    assert mean.shape == std.shape == (4,)
    assert samples.shape == (4000, 4)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-4)
    np.testing.assert_allclose(samples.std(axis=0), std, rtol=0.1)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * std.max() / 4000**0.5)
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.1 * covariance.max())
    assert not np.array_equal(model.q_samples(obs, action, 5), model.q_samples(obs, action, 5)), "drawn anew"


def test_one_input_or_several(model):
    obs, action = inputs(model, 3)
    mean, std = model.q_posterior(obs, action)
    one, its_std = model.q_posterior(obs[1], action[1])
    assert np.ndim(one) == np.ndim(its_std) == 0
    np.testing.assert_allclose([one, its_std], [mean[1], std[1]], rtol=1e-4)
    assert model.q_samples(obs[1], action[1], 7).shape == (7,)
    assert model.q_covariance(obs[1], action[1]).shape == (1, 1)
    many, _ = model.q_posterior(obs[1], action)  # one observation, several actions
    assert many.shape == (3,)
    np.testing.assert_allclose(many[1], one, rtol=1e-4)


def test_actions_are_in_the_environments_own_bounds(model):
    obs, _ = inputs(model, 1)
    low, high = model.action_space.low, model.action_space.high
    at_low, at_high = (model.q_posterior(obs[0], bound)[0] for bound in (low, high))
    assert at_low != at_high
    learner = model._learner
    inner = [learner.queries.moments(learner.state, obs, np.full((1, len(low)), x, np.float32))[0][0] for x in (-1, 1)]
    np.testing.assert_allclose([at_low, at_high], inner, rtol=1e-5)


def test_what_is_no_observation_or_action_is_refused(model):
    obs, action = inputs(model, 2)
    for bad, says in [
        ((obs, action[:, :0]), "an action has shape"),
        ((obs[:, :1], action), "an observation has shape"),
        ((obs, np.full_like(action, np.nan)), "the action holds nan at index (0, 0)"),
        ((obs[0], 3 * model.action_space.high), "which is not in ["),
        ((np.stack([obs[0]] * 3), action), "3 observations and 2 actions do not make pairs"),
        (("obs", action), "an observation is"),
    ]:
        for ask in (model.q_posterior, model.q_covariance, model.q_samples):
            with pytest.raises(mepg.UsageError) as error:
                ask(*bad)
            assert says in str(error.value)
    with pytest.raises(mepg.UsageError, match="n must be a whole number, at least 1"):
        model.q_samples(obs, action, 0)
    with pytest.raises(mepg.UsageError, match="has no environment yet"):
        mepg.ME_SAC("MlpPolicy").q_posterior(obs, action)


def test_the_bound_is_beta_standard_deviations_below_the_mean():
    """What y is made from, by what a user can ask for."""
    model = mepg.ME_SAC_LCB("MlpPolicy", "StubScaled-v0", **SMALL).learn(40)
    obs, action = inputs(model, 4)
    mean, std = model.q_posterior(obs, action)
    spec, learner = model._learner.config.spec, model._learner
    theta, sizes = learner.state.critic.params, learner.spaces.sizes
    bound = make_critics(spec, sizes).policy_q(theta, obs, learner.spaces.read_actions(action)[0], None)
    np.testing.assert_allclose(bound, mean - spec.pessimism.beta * std, rtol=1e-4)
    assert std.min() > 0


def test_ensembles_answer_the_same_call():
    """Their mean and spread; one critic without masks has no doubts."""
    for kind, doubts in ((mepg.SAC, True), (mepg.DDPG, False)):
        model = kind("MlpPolicy", "StubScaled-v0", **SMALL)
        obs, action = inputs(model, 2)
        _, std = model.q_posterior(obs, action)
        assert bool((std > 0).all()) == doubts
        assert bool(np.ptp(model.q_samples(obs, action, 20), axis=0).any()) == doubts


def test_what_is_estimated_says_so():
    spec = replace(mepg.ME_DDPG.default_spec, dropout=Dropout(p=0.3, layers="all"), hidden=(16, 16))
    model = mepg.ME_DDPG("MlpPolicy", "StubScaled-v0", spec=spec, seed=0)
    obs, action = inputs(model, 2)
    with pytest.warns(UserWarning, match="have no closed form"):
        _, std = model.q_posterior(obs, action)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # drawn sub-networks are what was asked for
        samples = model.q_samples(obs, action, 2000)
    np.testing.assert_allclose(samples.std(axis=0), std, rtol=0.2)
