"""`model.get_env()` has Stable-Baselines3's VecEnv interface, whatever was given. The real one: make test-sb3."""

import sys
from abc import ABC
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import mepg
from tests.api.models import make
from tests.conftest import leaves_equal
from tests.envs import test_vector
from tests.envs.own import Adjustable


class Marked(gymnasium.Wrapper):
    """A wrapper to be found."""


gymnasium.register("StubAdjustable-v0", entry_point=Adjustable)

GIVEN = {
    "an id": lambda: ("StubAdjustable-v0", {"n_envs": 2}),
    "an environment": lambda: (Marked(Adjustable()), {}),
    "a vector": lambda: (SyncVectorEnv([lambda: Marked(Adjustable())] * 2), {}),
    "a vector that resets by itself": lambda: (
        SyncVectorEnv([Adjustable] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        {},
    ),
    "processes": lambda: (AsyncVectorEnv([Adjustable] * 2, context="spawn"), {}),
}


@pytest.fixture(params=GIVEN)
def model(request):
    env, arguments = GIVEN[request.param]()
    model = make(env=env, **arguments)
    yield model
    model.get_env().close()


def test_the_loop_that_everyone_writes(model):
    env = model.get_env()
    obs = env.reset()
    count = env.num_envs
    assert count == model.n_envs
    assert env.observation_space == model.observation_space
    assert env.action_space == model.action_space
    episodes = 0
    for step in range(1, 121):
        assert obs.shape == (count, 3)
        action, _ = model.predict(obs, deterministic=True)
        obs, rewards, dones, infos = env.step(action)
        assert rewards.shape == dones.shape == (count,)
        assert rewards.dtype == np.float32
        assert list(dones) == [step % 50 == 0] * count, "the next episode has begun by itself"
        for place in np.flatnonzero(dones):
            episodes += 1
            assert infos[place]["TimeLimit.truncated"]
            assert not np.array_equal(infos[place]["terminal_observation"], obs[place])
    assert episodes == 2 * count
    assert isinstance(infos, list)


def test_a_step_may_be_taken_in_two(model):
    env = model.get_env()
    env.reset()
    actions = np.zeros((env.num_envs, 2), np.float32)
    env.step_async(actions)
    obs, *_ = env.step_wait()
    assert obs.shape == (env.num_envs, 3)
    with pytest.raises(mepg.UsageError, match="step_async comes first"):
        env.step_wait()
    with pytest.raises(mepg.UsageError, match="have shape"):
        env.step(np.zeros(2))


def test_a_seed_is_for_the_next_reset(model):
    env = model.get_env()
    seeds = env.seed(7)
    assert seeds == [7 + place for place in range(env.num_envs)]
    first = env.reset()
    other = env.reset()
    env.seed(7)
    np.testing.assert_array_equal(env.reset(), first)
    assert not np.array_equal(first, other)
    assert len(env.seed()) == env.num_envs


def test_what_is_inside_can_be_asked_and_changed(model):
    env = model.get_env()
    count = env.num_envs
    assert env.get_attr("difficulty") == [1] * count
    env.set_attr("difficulty", 3)
    assert env.env_method("harder", 2, twice=True) == [7] * count
    env.set_attr("difficulty", 5, indices=[0])
    assert env.get_attr("difficulty") == [5, *[7] * (count - 1)]
    assert env.get_attr("difficulty", indices=0) == [5]
    assert env.has_attr("difficulty")
    assert env.unwrapped is env


def test_wrappers_are_seen():
    for given, wrapped in ("an id", False), ("an environment", True), ("a vector", True):
        env, arguments = GIVEN[given]()
        view = make(env=env, **arguments).get_env()
        assert view.env_is_wrapped(Marked) == [wrapped] * view.num_envs
    assert not view.has_attr("no_such_attribute")


def test_pictures():
    model = make(env=SyncVectorEnv([lambda: Adjustable("rgb_array")] * 2))
    env = model.get_env()
    assert [image.shape for image in env.get_images()] == [(4, 6, 3)] * 2
    assert env.render().shape == (4, 12, 3)
    with pytest.warns(UserWarning, match="render_mode is 'rgb_array'"):
        assert env.render("human") is None
    with pytest.warns(UserWarning, match="render_mode is None"):
        assert make().get_env().render() is None


def test_to_look_at_the_environment_changes_nothing():
    model, other = make(env=Adjustable()), make(env=Adjustable())
    model.learn(45)
    assert model.get_env().num_envs == 1
    assert model.get_env().get_attr("difficulty") == [1]
    assert leaves_equal(model.learn(25)._learner.state, other.learn(70)._learner.state)


@pytest.mark.filterwarnings("ignore:nothing has been learned")
@pytest.mark.parametrize("given", ["an environment", "a vector that resets by itself", "like Stable-Baselines3"])
def test_who_plays_in_it_does_not_come_into_what_is_learned(given):
    """An episode that was left is not gone on with: no transition leads from one into another."""
    if given == "like Stable-Baselines3":
        env, arguments = test_vector.LikeStableBaselines(), {}
    else:
        env, arguments = GIVEN[given]()
    model = make(env=env, **arguments)
    count = model.n_envs
    model.learn(12 * count)
    view = model.get_env()
    obs = view.reset()
    for _ in range(3):
        obs, *_ = view.step(model.predict(obs)[0])
    model.learn(12 * count)
    size = model._learner.spaces.sizes.obs
    rows = model.replay_buffer.read(0, 24 * count).reshape(24, count, -1)
    for place in range(count):
        before, after = rows[11, place], rows[12, place]
        assert not np.array_equal(before[-size:], after[:size])
        if given == "like Stable-Baselines3":  # (episode, step)
            np.testing.assert_array_equal(rows[:, place, -size], rows[:, place, 0])
            np.testing.assert_array_equal(rows[:, place, -1], rows[:, place, 1] + 1)


def test_a_users_own_vec_env_is_given_back():
    env = test_vector.LikeStableBaselines()
    assert make(env=env).get_env() is env


def test_another_model_can_learn_in_it(tmp_path):
    model = make().learn(40)
    model.save(tmp_path / "model")
    again = mepg.ME_SAC.load(tmp_path / "model", env=model.get_env())
    again.learn(20)
    model.learn(20)


def test_actions_stay_the_users(model):
    env = model.get_env()
    env.reset()
    actions = np.zeros((env.num_envs, 2), np.float32)
    env.step(actions)
    assert not actions.any()
    assert actions.flags.writeable


def test_where_stable_baselines_is_loaded_ours_is_one_of_its_own(monkeypatch):
    class VecEnv(ABC):  # noqa: B024
        pass

    env = make().get_env()
    assert not isinstance(env, VecEnv)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env.base_vec_env", SimpleNamespace(VecEnv=VecEnv))
    assert isinstance(make().get_env(), VecEnv)


def test_nothing_of_it_is_imported():
    make().get_env().reset()
    assert "torch" not in sys.modules


class Around:
    """Like Stable-Baselines3's VecEnvWrapper, around another."""

    def __init__(self, venv):
        self.venv = venv

    def __getattr__(self, name):
        return getattr(self.venv, name)


@pytest.mark.parametrize("wrap", [lambda env: env, Around])
def test_its_own_environments_may_be_given_back(wrap):
    """`set_env(get_env())`, bare or wrapped: the steps that `learn` takes are not the user's, and end no episode."""
    model = make(env="StubAdjustable-v0", n_envs=2).learn(40)
    model.set_env(wrap(model.get_env()))
    lengths = []
    model.learn(
        220, callback=lambda said, _: lengths.extend(i["episode"]["l"] for i in said["infos"] if "episode" in i)
    )
    assert lengths == [50] * 4


def test_only_numbers_are_actions(model):
    env = model.get_env()
    env.reset()
    shape = (env.num_envs, 2)
    for actions, says in {
        "text": (np.full(shape, "1"), "an action is 2 numbers, not a ndarray of <U1"),
        "a word": ("left", "an action is 2 numbers, not a str"),
        "complex": (np.zeros(shape, complex), "not a ndarray of complex128"),
        "nan": (np.full(shape, np.nan), r"the action holds nan at index \(0, 0\)"),
        "none": (None, "have shape|holds nan"),
    }.values():
        with pytest.raises(mepg.UsageError, match=says):
            env.step(actions)
    for seed in (-1, 1.5, "x"):
        with pytest.raises(mepg.UsageError, match="seed must be a whole number"):
            env.seed(seed)


def test_only_whole_numbers_choose():
    env = make(mepg.DQN, env="CartPole-v1").get_env()
    env.reset()
    with pytest.raises(mepg.UsageError, match=r"the action holds 0\.7, which is not a whole number"):
        env.step([0.7])
    env.step([1.0])
