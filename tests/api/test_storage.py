"""A model's files and copies: what comes back is what was there."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import mepg
from mepg.core.spec import PolicyAverage
from tests.api.models import OBS, make, states_equal
from tests.conftest import leaves_equal
from tests.run.stubs import Box


def test_saved_and_loaded_it_goes_on_learning(trained, tmp_path):
    trained.save(tmp_path / "deep" / "model.zip")
    trained.save_replay_buffer(tmp_path / "memory")
    model = mepg.ME_SAC.load(tmp_path / "deep" / "model", env="StubScaled-v0")
    assert leaves_equal(model._learner.state, trained._learner.state)
    model.load_replay_buffer(tmp_path / "memory")
    assert len(model.replay_buffer) == len(trained.replay_buffer) == 60
    np.testing.assert_array_equal(model.replay_buffer.read(0, 60), trained.replay_buffer.read(0, 60))
    before = model._learner.loop.updates
    model.learn(20)
    assert model._learner.loop.updates == before + 20, "the warm-up is over"
    assert not leaves_equal(model._learner.state, trained._learner.state)
    assert (tmp_path / "memory.npz").exists()


def test_an_averaged_policy_is_saved_and_acts(tmp_path):
    spec = replace(mepg.ME_SAC_LCB.default_spec, policy_average=PolicyAverage(), target_rate=0.1)
    model = make(mepg.ME_SAC_LCB, spec=spec).learn(60)
    model.save(tmp_path / "model")
    loaded = mepg.load(tmp_path / "model", env="StubScaled-v0")
    assert (loaded.algorithm, loaded._learner.config.spec) == ("me-sac+lcb", model._learner.config.spec)
    state = loaded._learner.state
    assert leaves_equal(state, model._learner.state)
    assert not leaves_equal(state.policy_average, state.actor.params)
    action, _ = model.predict(OBS, deterministic=True)
    np.testing.assert_array_equal(loaded.predict(OBS, deterministic=True)[0], action)
    for one, other in zip(model.q_posterior(OBS, action), loaded.q_posterior(OBS, action), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one != 0
    assert leaves_equal(copy.deepcopy(model).learn(20)._learner.state, model.learn(20)._learner.state)


def test_a_folder_of_the_command_line_loads_too(tmp_path):
    from mepg.cli import main

    tiny = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]
    argv = ["train", "me-sac-r", "--env", "StubScaled-v0", "--steps", "40", "--out", str(tmp_path / "run"), *tiny]
    assert main([*argv, "--normalize-obs"]) == 0
    model = mepg.load(tmp_path / "run", env="StubScaled-v0")
    assert model.algorithm == "me-sac-r"
    assert type(model._learner.state).__name__ == "NormalisedState"
    from mepg.envs.env import Env
    from mepg.storage.folder import Folder
    from mepg.storage.policy import load_policy

    env = Env("StubScaled-v0")
    expected = env.spaces.scale(load_policy(Folder(tmp_path / "run"), env.spaces).act(OBS))
    np.testing.assert_allclose(model.predict(OBS, deterministic=True)[0], expected, atol=1e-6)
    model.learn(10)
    with pytest.raises(mepg.UsageError, match=r"holds me-sac-r, not me-sac: load it with mepg\.load"):
        mepg.ME_SAC.load(tmp_path / "run")


def test_normalised_observations_are_saved_with_the_model(tmp_path):
    model = make(normalize_obs=True).learn(60)
    state = model._learner.state
    assert int(state.batches) == 30
    model.save(tmp_path / "m")
    again = mepg.ME_SAC.load(tmp_path / "m")
    far = OBS * 3
    np.testing.assert_array_equal(again.predict(far, deterministic=True)[0], model.predict(far, deterministic=True)[0])
    assert leaves_equal(again._learner.state, state)


def test_a_copy_goes_on_just_as_the_model_would():
    model = make(n_envs=2)
    model.learn(70)
    copied = copy.deepcopy(model)
    assert copied.num_timesteps == model.num_timesteps == 70
    assert states_equal(copied, model)
    model.learn(60, reset_num_timesteps=False)
    assert not states_equal(copied, model), "each learns for itself"
    copied.learn(60, reset_num_timesteps=False)
    assert states_equal(copied, model)
    np.testing.assert_array_equal(copied.replay_buffer.read(0, 130), model.replay_buffer.read(0, 130))
    np.testing.assert_array_equal(copied.predict(OBS)[0], model.predict(OBS)[0])


def test_a_copy_of_a_model_whose_environment_is_an_object():
    model = make(env=Box()).learn(60)
    model.note = ["a user's own"]
    copied = copy.deepcopy(model)
    assert copied.note == model.note
    assert copied.note is not model.note
    assert states_equal(copied, model)
    np.testing.assert_array_equal(copied.predict(OBS)[0], model.predict(OBS)[0])
    with pytest.raises(mepg.UsageError, match="no environment to learn in"):
        copied.learn(10)
    copied.set_env(Box())
    np.testing.assert_array_equal(copied.replay_buffer.read(0, 60), model.replay_buffer.read(0, 60))
    copied.learn(10)
    assert copied._learner.training.step == 70


def test_copies_of_a_loaded_model_and_of_an_empty_one(trained, tmp_path):
    trained.save(tmp_path / "model")
    loaded = mepg.load(tmp_path / "model")
    assert states_equal(copy.deepcopy(loaded), loaded)
    empty = copy.deepcopy(mepg.ME_SAC())
    with pytest.raises(mepg.UsageError, match="no environment yet"):
        empty.predict(OBS)
