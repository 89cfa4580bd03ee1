"""What a model does without learning."""

import gymnasium
import numpy as np
import pytest

import mepg
from tests.api.models import OBS, make, states_equal
from tests.conftest import all_but_slow
from tests.run.stubs import Box


def test_predictions_are_within_the_environments_own_bounds(trained):
    batch = np.random.default_rng(0).normal(0, 10, (200, 3))
    actions, _ = trained.predict(batch)
    assert actions.shape == (200, 2)
    assert actions.min() >= -3
    assert actions.max() <= 5
    assert actions.max() > 1, "they are scaled"
    np.testing.assert_allclose(trained.predict(batch[7], deterministic=True)[0],
                               trained.predict(batch, deterministic=True)[0][7], atol=1e-5)  # fmt: skip


def test_a_gaussian_policy_is_drawn_from_and_a_deterministic_one_is_not(trained):
    assert not np.array_equal(trained.predict(OBS)[0], trained.predict(OBS)[0])
    certain = make(mepg.ME_DDPG).learn(35)
    np.testing.assert_array_equal(certain.predict(OBS)[0], certain.predict(OBS, deterministic=True)[0])
    # state and episode_start are handed through, and ignored
    assert trained.predict(OBS, state="mine", episode_start=[True])[1] == "mine"


@pytest.mark.parametrize(
    ("obs", "says"),
    [
        (np.zeros(4), r"an observation has shape \(3,\), or \(n, 3\) for several, not \(4,\)"),
        (np.zeros((2, 2, 3)), r"not \(2, 2, 3\)"),
        (0.0, r"not \(\)"),
        ([0.0, np.nan, 0.0], "the observation holds nan at index 1"),
        ([[0.0, 0.0, 0.0], [0.0, 0.0, np.inf]], r"holds inf at index \(1, 2\)"),
        ({"x": 1}, "an observation is 3 numbers, not a dict"),
        ("left", "an observation is 3 numbers, not a str"),
        (["1", "2", "3"], "an observation is 3 numbers, not a list"),
        (np.zeros(3, complex), "an observation is 3 numbers, not a ndarray of complex128"),
        (np.zeros(3, "M8[s]"), "not a ndarray of datetime64"),
        (np.zeros(3, [("x", float)]), "not a ndarray of"),
        ([1e300, 0.0, 0.0], "the observation holds inf at index 0"),
        ((np.zeros(3), {}), r"not a tuple: give the first of the two values that reset\(\) returned"),
        (None, "an observation has shape|the observation holds nan"),
    ],
)
def test_bad_observations(trained, obs, says):
    with pytest.raises(mepg.UsageError, match=says):
        trained.predict(obs)


def test_observations_may_be_any_kind_of_number(trained):
    first, _ = trained.predict([0, 1, 0], deterministic=True)
    for kind in (np.float16, np.float64, np.int8, np.uint64, bool, object):
        np.testing.assert_array_equal(trained.predict(np.array([0, 1, 0], kind), deterministic=True)[0], first)


def test_a_model_of_other_spaces_is_refused(trained, tmp_path):
    trained.save(tmp_path / "m")
    with pytest.raises(mepg.UsageError, match="trained on StubScaled-v0 with observations of size 3, and HopperBullet"):
        mepg.ME_SAC.load(tmp_path / "m", env="HopperBulletEnv-v0")
    with pytest.raises(mepg.UsageError, match=r"actions from \[-3.0, -3.0\], and StubPlain-v0 has \[-1.0, -1.0\]"):
        mepg.ME_SAC.load(tmp_path / "m", env="StubPlain-v0")
    with pytest.raises(mepg.UsageError, match="holds me-sac, not me-ddpg"):
        mepg.ME_DDPG.load(tmp_path / "m")
    without = mepg.ME_SAC.load(tmp_path / "m")
    with pytest.raises(mepg.UsageError, match=r"no environment to learn in: model\.set_env\(env\)"):
        without.learn(10)
    without.set_env(gymnasium.make("StubScaled-v0"))
    without.learn(10)
    with pytest.raises(mepg.UsageError, match="no environment yet"):
        mepg.ME_SAC().predict(OBS)


@pytest.mark.parametrize("bound", [1.0, 2.0])
@pytest.mark.parametrize("kind", [mepg.ME_SAC, mepg.ME_DDPG])
def test_predictions_can_be_written_on(bound, kind):
    model = make(kind, env=Box(-bound, bound))
    for obs in OBS, np.tile(OBS, (4, 1)):
        for deterministic in True, False:
            action, _ = model.predict(obs, deterministic=deterministic)
            action *= 2
    np.testing.assert_array_equal(model.predict(OBS, deterministic=True)[0], model.predict(OBS, deterministic=True)[0])


def test_beliefs_and_spaces_can_be_written_on(trained):
    batch = np.tile(OBS, (4, 1))
    actions, _ = trained.predict(batch)
    for array in (
        *trained.q_posterior(batch, actions),
        trained.q_covariance(batch, actions),
        trained.q_samples(batch, actions, n=3),
        trained.q_samples(OBS, actions[0], n=3),
        trained.replay_buffer.read(0, 5),
    ):
        array *= 2
    before = trained.predict(OBS, deterministic=True)[0]
    trained.action_space.low[:] = 0
    np.testing.assert_array_equal(trained.predict(OBS, deterministic=True)[0], before)
    assert make().action_space.low[0] == -3


@pytest.mark.parametrize("shape", [(), (1, 1), (2, 3)])
@pytest.mark.parametrize("bound", all_but_slow([1.0, 2.0], [2.0]))
def test_actions_of_any_shape(shape, bound, tmp_path):
    space = gymnasium.spaces.Box(-bound, bound, shape, np.float32)
    model = make(env=Box(actions=space)).learn(40)
    batch = np.tile(OBS, (5, 1))
    for deterministic in True, False:
        action, _ = model.predict(OBS, deterministic=deterministic)
        assert isinstance(action, np.ndarray)
        assert space.contains(action)
        action *= 0.5
        actions, _ = model.predict(batch, deterministic=deterministic)
        assert actions.shape == (5, *shape)
    assert np.shape(model.q_posterior(OBS, action)[0]) == ()
    assert model.q_posterior(batch, actions)[0].shape == (5,)
    with pytest.raises(mepg.UsageError, match="the action holds nan"):
        model.q_posterior(OBS, np.full(shape, np.nan))
    model.save(tmp_path / "model")
    again = mepg.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(OBS, deterministic=True)[0], model.predict(OBS, deterministic=True)[0])
    env = model.get_env()
    obs = env.reset()
    env.step(model.predict(obs)[0])


def test_a_model_may_be_given_its_first_environment_later():
    model = make(env=None)
    model.set_env("StubScaled-v0")
    assert states_equal(model.learn(50), make().learn(50))


def test_no_inputs_have_no_beliefs(trained):
    nothing = np.zeros((0, 3)), np.zeros((0, 2))
    assert trained.q_samples(*nothing, n=7).shape == (7, 0)
    assert [each.shape for each in trained.q_posterior(*nothing)] == [(0,), (0,)]
    assert trained.q_covariance(*nothing).shape == (0, 0)
    assert trained.predict(nothing[0])[0].shape == (0, 2)
