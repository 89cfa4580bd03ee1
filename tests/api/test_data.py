"""A model that begins with data."""

import copy

import numpy as np
import pytest

import mepg
from tests.api.models import make, states_equal
from tests.envs.own import Reach
from tests.training.recordings import record

ENV = "StubScaled-v0"


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "data.npz", **record(ENV, episodes=1))
    return tmp_path / "data.npz"


def test_the_replay_buffer_begins_with_it(file):
    model = make(env=ENV, data=file)
    assert (model.replay_buffer.count, model.num_timesteps) == (50, 0), "data does not count as steps"
    model.learn(40)
    assert model.replay_buffer.count == 90
    assert not states_equal(model, make(env=ENV).learn(40))


def test_it_learns_from_the_first_step_without_a_warm_up(file):
    model = make(env=ENV, data=str(file), learning_starts=0, n_steps=3)
    before = model.get_parameters()
    model.learn(1)
    assert not np.array_equal(
        before["critic"]["params"]["0"]["w"], model.get_parameters()["critic"]["params"]["0"]["w"]
    )


@pytest.mark.parametrize("share", [None, 0.5])
def test_it_goes_along_wherever_the_model_does(file, share):
    """Two calls of `learn`, a copy, another environment."""
    whole = make(env=ENV, data=file, data_share=share).learn(60)
    model = make(env=ENV, data=file, data_share=share).learn(45)
    twin = copy.deepcopy(model)
    assert states_equal(model.learn(15), whole)
    assert states_equal(twin.learn(15), whole)
    model.set_env(ENV)
    twin.set_env(ENV)
    assert model.replay_buffer.count == whole.replay_buffer.count
    assert states_equal(model.learn(20), twin.learn(20))
    plain = make(env=ENV).learn(60)
    assert not states_equal(plain, whole)


def test_a_file_of_a_model_holds_no_data(file, tmp_path):
    make(env=ENV, data=file, data_share=0.5).learn(40).save(tmp_path / "m")
    file.rename(tmp_path / "moved.npz")
    assert mepg.load(tmp_path / "m").predict(np.zeros(3))[0].shape == (2,)
    assert mepg.load(tmp_path / "m", env=ENV).replay_buffer.count == 0
    again = mepg.load(tmp_path / "m", env=ENV, data=tmp_path / "moved.npz")
    assert again.replay_buffer.count == 50
    again.learn(5)


def test_a_dict_of_which_the_policy_sees_a_part(tmp_path):
    np.savez(tmp_path / "data.npz", **record(Reach()))
    model = make(env=Reach(), data=tmp_path / "data.npz", actor_obs=("observation",), normalize_obs=True)
    assert model.replay_buffer.count == 60
    model.learn(40)


def test_discrete_actions(tmp_path):
    np.savez(tmp_path / "data.npz", **record("CartPole-v1", episodes=5))
    model = make(mepg.ME_DQN, env="CartPole-v1", data=tmp_path / "data.npz", data_share=0.25)
    model.learn(40)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": "none.npz"}, "neither a file or folder none.npz nor a Minari dataset"),
        ({"data": 3}, "data must be text, not 3"),
        ({"data": ""}, "data must be a path or an ID, not empty"),
        ({"data_share": 0.5}, "data-share is a share of --data: give that too"),
        ({"data_share": 2}, "data-share must be above 0 and below 1, not 2"),
    ],
)
def test_what_cannot_be(arguments, says):
    with pytest.raises(mepg.UsageError, match=says):
        make(**arguments)


def test_data_of_another_environment(file):
    with pytest.raises(mepg.UsageError, match="does not fit Pendulum-v1: "):
        make(env="Pendulum-v1", data=file)
