"""Models in environments whose observations are a Dict: they take and give what the environment does."""

import copy
import io
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import mepg
from mepg.core.spec import Search
from mepg.errors import RunFailure, UsageError
from tests.api.models import make, states_equal
from tests.envs.own import Camera, Reach
from tests.envs.test_observations import ReachLikeStableBaselines, without

GOAL_ONLY = ["desired_goal", "observation"]


def some_observations(count=3):
    env = Reach()
    single = [env.reset(seed=seed)[0] for seed in range(count)]
    batch = gymnasium.vector.utils.create_empty_array(env.observation_space, count)
    return single, gymnasium.vector.utils.concatenate(env.observation_space, single, batch)


def assert_acts_alike(model, other):
    single, batch = some_observations()
    np.testing.assert_array_equal(
        model.predict(batch, deterministic=True)[0], other.predict(batch, deterministic=True)[0]
    )
    np.testing.assert_array_equal(
        model.predict(single[0], deterministic=True)[0], other.predict(single[0], deterministic=True)[0]
    )


@pytest.fixture(scope="module")
def model():
    return make(env="tests.envs.own:Reach-v0", normalize_obs=True).learn(80)


def test_predict_takes_what_the_environment_gives(model):
    single, batch = some_observations()
    actions, _ = model.predict(batch, deterministic=True)
    assert actions.shape == (3, 2)
    for obs, action in zip(single, actions, strict=True):
        one, _ = model.predict(obs, deterministic=True)
        assert one.shape == (2,)
        np.testing.assert_allclose(one, action, atol=1e-6)
    drawn, _ = model.predict(batch)
    assert drawn.shape == (3, 2)
    mean, _ = model.q_posterior(batch, actions)
    assert mean.shape == (3,)
    assert model.observation_space == Reach.observation_space


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without("gripper"), r"no observation\['gripper'\]"),
        (lambda _: np.zeros(19), r"float64\[19\] as observation, not a Dict"),
        (lambda obs: {**obs, "observation": np.zeros(4)}, r"observation\['observation'\] of shape \(4,\), not"),
        (lambda obs: {**obs, "desired_goal": [np.nan, 0]}, r"observation\['desired_goal'\] with nan at index 0"),
        (lambda obs: {**obs, "achieved_goal": np.zeros((5, 2))}, r"observation\['desired_goal'\] of shape"),
    ],
)
def test_predict_names_what_does_not_fit(model, spoil, says):
    with pytest.raises(UsageError, match=rf"Reach-v0 has observations achieved_goal\[2\], .*; this one has {says}"):
        model.predict(spoil(some_observations()[0][0]))


def test_its_environments_give_a_dict_of_arrays(model):
    twin = make(env="tests.envs.own:Reach-v0", n_envs=2)
    env = twin.get_env()
    env.seed(0)
    obs = env.reset()
    first = [Reach().reset(seed=seed)[0] for seed in (0, 1)]
    np.testing.assert_array_equal(obs["gripper"]["open"], [1, 1])
    assert obs["gripper"]["open"].dtype == np.int64
    np.testing.assert_allclose(obs["observation"], [each["observation"] for each in first], rtol=1e-6)
    for _ in range(20):
        obs, _, dones, infos = env.step(twin.predict(obs, deterministic=True)[0])
    assert dones.all()
    assert infos[0]["terminal_observation"]["gripper"]["open"] == 1 + 20 % 3
    assert env.observation_space.contains({**infos[0]["terminal_observation"]})
    assert obs["touched"][1].shape == (2, 2)


def test_callbacks_see_a_dict():
    seen = []
    model = mepg.ME_SAC("MultiInputPolicy", Reach(), seed=0)
    with pytest.warns(UserWarning, match="nothing has been learned yet"):
        model.learn(3, callback=lambda variables, _: seen.append(variables["new_obs"]))
    assert [int(obs["gripper"]["open"][0]) for obs in seen] == [2, 3, 1]


def test_saved_loaded_and_copied(model, tmp_path):
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    loaded = mepg.load(file)
    assert_acts_alike(model, loaded)
    assert list(loaded.observation_space) == list(model.observation_space)
    assert loaded.observation_space["gripper"]["open"] == gymnasium.spaces.Discrete(3, start=1)
    loaded.set_env(Reach())
    loaded.learn(10)
    twin = copy.deepcopy(model)
    assert states_equal(model, twin)
    with pytest.raises(UsageError, match=r"observations achieved_goal\[2\], .*, and StubPlain-v0 has of size 3"):
        mepg.load(_saved(model, tmp_path), env="StubPlain-v0")


def _saved(model, folder):
    model.save(folder / "model")
    return folder / "model"


@pytest.mark.parametrize("env", [lambda: SyncVectorEnv([Reach] * 2), ReachLikeStableBaselines])
def test_learning_in_vectors(env):
    model = make(env=env())
    model.learn(30 * model.n_envs)
    for leaf in model.get_parameters()["actor"]["params"]["0"].values():
        assert np.isfinite(leaf).all()


def test_an_image_is_said_to_be_plain_numbers():
    with pytest.warns(UserWarning, match="plain numbers here, without convolution"):
        make(env=Camera())


def test_a_broken_observation_stops_learning_and_nothing_is_lost():
    model = make(env=Reach(spoil=without("gripper", "force"), at=45))
    with pytest.raises(RunFailure, match=r"^step 45: Reach returned no observation\['gripper'\]\['force'\]$"):
        model.learn(60)
    assert model.num_timesteps == 44
    assert len(model.replay_buffer) == 44


# The critics see more


@pytest.fixture(scope="module")
def narrow():
    return make(env=Reach(), actor_obs=GOAL_ONLY).learn(80)


def test_the_policy_needs_only_what_it_sees(narrow):
    single, batch = some_observations()
    for obs in (single[0], batch):
        few = {name: obs[name] for name in GOAL_ONLY}
        other = {name: value for name, value in obs.items() if name not in GOAL_ONLY} | few
        other["achieved_goal"] = 1 + np.asarray(other["achieved_goal"])
        for each in (few, other):
            np.testing.assert_array_equal(
                narrow.predict(each, deterministic=True)[0], narrow.predict(obs, deterministic=True)[0]
            )
        assert narrow.predict(few)[0].shape == narrow.predict(obs)[0].shape
    with pytest.raises(UsageError, match=r"no observation\['observation'\]"):
        narrow.predict({"desired_goal": single[0]["desired_goal"]})
    few = {name: single[0][name] for name in GOAL_ONLY}
    with pytest.raises(UsageError, match=r"no observation\['achieved_goal'\]"):
        narrow.q_posterior(few, np.zeros(2))
    weights = narrow.get_parameters()
    assert weights["actor"]["params"]["0"]["w"].shape == (6, 8)
    assert weights["critic"]["params"]["0"]["w"].shape == (1, 19 + 2, 8)


def test_where_exploration_asks_the_critics_it_needs_all(narrow):
    spec = replace(narrow.spec, search=Search())
    model = mepg.ME_SAC("MlpPolicy", Reach(), spec=spec, actor_obs=GOAL_ONLY, seed=0)
    few = {name: some_observations()[0][0][name] for name in GOAL_ONLY}
    model.predict(few, deterministic=True)
    with pytest.raises(UsageError, match=r"no observation\['achieved_goal'\]"):
        model.predict(few)


def test_what_the_policy_sees_is_saved_with_it(narrow):
    file = io.BytesIO()
    narrow.save(file)
    file.seek(0)
    loaded = mepg.load(file)
    assert_acts_alike(narrow, loaded)
    few = {name: some_observations()[0][0][name] for name in GOAL_ONLY}
    np.testing.assert_array_equal(
        narrow.predict(few, deterministic=True)[0], loaded.predict(few, deterministic=True)[0]
    )
    file.seek(0)
    with pytest.raises(UsageError, match=r"holds other networks than were asked for .*actor_obs"):
        mepg.load(file, actor_obs=["desired_goal"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"actor_obs": ["goal"]}, "no 'goal'; they have achieved_goal, desired_goal, gripper.force, gripper.open"),
        ({"actor_obs": ("goal",), "env": "StubPlain-v0"}, "names entries of a Dict, and StubPlain-v0's observations"),
        ({"actor_obs": "goal"}, "actor_obs must be a list of names, not 'goal'"),
        ({"actor_obs": []}, "actor-obs must be one name or more"),
        ({"actor_obs": [3]}, "actor-obs must be one name or more"),
    ],
)
def test_what_is_refused(arguments, says):
    with pytest.raises(UsageError, match=says):
        make(**{"env": Reach(), **arguments})
