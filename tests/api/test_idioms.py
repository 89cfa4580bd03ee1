"""What people write with Stable-Baselines3, and expect to go on working."""

import copy
import io
import json

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.api.arguments import INSTEAD
from tests.api.test_model import OBS, make
from tests.conftest import leaves_equal
from tests.run.stubs import Box
from tests.run.test_ownership import Scribbles, Tidy


@pytest.fixture(scope="module")
def trained():
    return make().learn(60)


def states_equal(one, other):
    return leaves_equal(one.get_parameters(), other.get_parameters())


# What is handed out


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


def test_what_a_callback_gets_is_its_own():
    def scribble(variables, _):
        for name in "actions", "new_obs", "rewards":
            variables[name] *= 0.5
        for info in variables["infos"]:
            if "terminal_observation" in info:
                info["terminal_observation"][:] = 7
            info.clear()

    model = make(env=Scribbles()).learn(60, callback=scribble)
    assert states_equal(model, make(env=Tidy()).learn(60))


@pytest.mark.parametrize("shape", [(), (1, 1), (2, 3)])
@pytest.mark.parametrize("bound", [1.0, 2.0])
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


# Parameters


def test_parameters_by_name(trained):
    parameters = trained.get_parameters()
    assert parameters["actor"]["params"]["0"]["w"].shape == (3, 8)
    before = trained.predict(OBS, deterministic=True)[0]
    parameters["actor"]["params"]["0"]["w"] *= 0  # a copy
    np.testing.assert_array_equal(trained.predict(OBS, deterministic=True)[0], before)


def test_parameters_of_another_model(trained):
    other = make(seed=9)
    assert not states_equal(other, trained)
    other.set_parameters(trained.get_parameters())
    assert states_equal(other, trained)
    np.testing.assert_array_equal(
        other.predict(OBS, deterministic=True)[0], trained.predict(OBS, deterministic=True)[0]
    )
    other.learn(40)
    assert not states_equal(other, trained), "and it goes on from there, alone"


def test_parameters_of_a_file(trained, tmp_path):
    trained.save(tmp_path / "model")
    trained.save(file := io.BytesIO())
    for location in tmp_path / "model", str(tmp_path / "model.zip"), file:
        other = make(seed=9)
        other.set_parameters(location)
        assert states_equal(other, trained)


def test_some_of_the_parameters(trained):
    other, weights = make(seed=9), trained.get_parameters()["actor"]["params"]
    before = other.get_parameters()
    some = {"actor": {"params": weights}}
    with pytest.raises(mepg.UsageError, match=r"updates is missing: exact_match=False sets only what is given"):
        other.set_parameters(some)
    other.set_parameters(some, exact_match=False)
    after = other.get_parameters()
    assert leaves_equal(after["actor"]["params"], weights)
    assert leaves_equal(after["critic"], before["critic"])
    other.set_parameters({"actor": {"params": {"0": {"b": [0.5] * 8}}}}, exact_match=False)
    np.testing.assert_array_equal(other.get_parameters()["actor"]["params"]["0"]["b"], np.full(8, 0.5, np.float32))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros(3), r"actor\.params\.0\.b has shape \(8,\), not \(3,\)"),
        ([np.nan] * 8, "holds a number that is not finite"),
        ([1e300] * 8, "holds a number that is not finite"),
        (["a"] * 8, "has to be numbers of type float32"),
        ([[1], [1, 2]], "has to be numbers of type float32"),
        (None, "has to be numbers of type float32"),
        (np.zeros(8, complex), "has to be numbers of type float32"),
    ],
)
def test_parameters_that_do_not_fit_change_nothing(trained, value, says):
    before = trained.get_parameters()
    given = {"actor": {"params": {"0": {"w": np.zeros((3, 8)), "b": value}}}}
    with pytest.raises(mepg.UsageError, match=says) as error:
        trained.set_parameters(given, exact_match=False)
    assert "\n" not in str(error.value)
    assert leaves_equal(trained.get_parameters(), before)


def test_parameters_that_are_not_there(trained, tmp_path):
    with pytest.raises(mepg.UsageError, match=r"unknown parameter 'actor\.parms'; did you mean 'actor\.params"):
        trained.set_parameters({"actor": {"parms": 1}}, exact_match=False)
    with pytest.raises(mepg.UsageError, match="there is neither a model"):
        trained.set_parameters(tmp_path / "nowhere")
    make(mepg.ME_DDPG).save(tmp_path / "other")
    with pytest.raises(mepg.UsageError, match="missing"):
        trained.set_parameters(tmp_path / "other")


# Files


def test_open_files(trained, tmp_path):
    before = trained.predict(OBS, deterministic=True)[0]
    buffer = io.BytesIO()
    trained.save(buffer)
    for _ in range(2):  # wherever it stands
        np.testing.assert_array_equal(mepg.ME_SAC.load(buffer).predict(OBS, deterministic=True)[0], before)
    with (tmp_path / "file").open("w+b") as file:
        trained.save(file)
        file.seek(0)
        assert mepg.load(file).algorithm == "me-sac"
    trained.save(tmp_path / "model")
    assert buffer.getvalue() == (tmp_path / "model.zip").read_bytes()
    with (tmp_path / "model.zip").open("rb") as file:
        assert mepg.load(file, env="StubScaled-v0").n_envs == 1


def test_a_replay_memory_in_an_open_file(trained):
    buffer, other = io.BytesIO(), make()
    trained.save_replay_buffer(buffer)
    other.load_replay_buffer(buffer)
    np.testing.assert_array_equal(other.replay_buffer.read(0, 60), trained.replay_buffer.read(0, 60))


def test_files_that_are_none(trained, tmp_path):
    (tmp_path / "text").write_text("text")
    closed = io.BytesIO()
    closed.close()
    with (tmp_path / "text").open() as text, (tmp_path / "text").open("rb") as to_read:
        for location in text, closed, 7, None, ["a"]:
            with pytest.raises(mepg.UsageError, match=r"give a path, or a file open in binary mode|neither a model"):
                mepg.load(location)
        for location in text, closed, to_read, io.StringIO(), 7, None:
            with pytest.raises(mepg.UsageError, match="give a path, or a file open in binary mode") as error:
                trained.save(location)
            assert "\n" not in str(error.value)
        with pytest.raises(mepg.UsageError, match="is not an archive, or it is damaged"):
            mepg.load(to_read)
    with pytest.raises(mepg.UsageError, match="save_replay_buffer"):
        trained.save(tmp_path / "model", include=["replay_buffer"])


# Copies


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
    assert copied._standing.step == 70


def test_copies_of_a_loaded_model_and_of_an_empty_one(trained, tmp_path):
    trained.save(tmp_path / "model")
    loaded = mepg.load(tmp_path / "model")
    assert states_equal(copy.deepcopy(loaded), loaded)
    empty = copy.deepcopy(mepg.ME_SAC())
    with pytest.raises(mepg.UsageError, match="no environment yet"):
        empty.predict(OBS)


# Arguments


@pytest.mark.parametrize("steps", [-1, "100", 1.5, None, True, float("nan"), float("inf"), [100], np.array([3, 4])])
def test_so_many_steps_there_are_not(trained, steps):
    before = trained.num_timesteps
    with pytest.raises(mepg.UsageError, match="total_timesteps must be a whole number, at least 0, not") as error:
        trained.learn(steps)
    assert "\n" not in str(error.value)
    assert trained.num_timesteps == before


@pytest.mark.parametrize("steps", [1e2, np.int64(100), np.float32(100), 100])
def test_a_whole_number_is_one_however_it_is_written(steps):
    assert make().learn(steps).num_timesteps == 100


@pytest.mark.parametrize(
    ("argument", "value"), [("log_interval", 0), ("log_interval", "4"), ("log_interval", -1), ("log_interval", 0.5)]
)
def test_a_log_interval_is_a_number_of_episodes(trained, argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        trained.learn(10, **{argument: value})


@pytest.mark.parametrize(
    ("argument", "value"), [("seed", "3"), ("seed", -1), ("seed", 1.5), ("n_envs", "2"), ("n_envs", 0)]
)
def test_numbers_that_are_none(argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        make(**{argument: value})


def test_settings_by_their_names(trained):
    assert (trained.buffer_size, trained.learning_starts, trained.batch_size) == (500, 30, 8)
    assert (trained.gamma, trained.tau, trained.learning_rate) == (0.99, 0.005, 3e-4)
    assert (trained.gradient_steps, trained.train_freq, trained.device) == (1, 1, "cpu")
    assert mepg.ACE().learning_rate == 1e-4
    with pytest.raises(AttributeError, match="gamma"):
        trained.gamma = 0.9
    assert trained.ep_info_buffer == [{"r": pytest.approx(trained._standing.recent[0].total), "l": 50}]
    json.dumps(trained.ep_info_buffer)


@pytest.mark.parametrize("name", [*INSTEAD, "use_sde", "ent_coef", "policy_delay", "policy_kwargs"])
def test_what_is_left_out_says_what_to_use(trained, name):
    assert not hasattr(trained, name)
    with pytest.raises(AttributeError, match=f"ME_SAC has no '{name}': ") as error:
        getattr(trained, name)
    assert "\n" not in str(error.value)
