"""Legal actions from Python, with the names of sb3-contrib's MaskablePPO."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import mepg
from tests.api.models import TINY, states_equal
from tests.envs.games import Corridor, InfoNoughts, LegalNoughts, Noughts

GIVEN = {
    "an id": lambda: ("LegalNoughts-v0", {"n_envs": 2}),
    "in its info": lambda: (InfoNoughts(), {}),
    "a vector": lambda: (SyncVectorEnv([LegalNoughts] * 2), {}),
}


@pytest.fixture(scope="module", params=GIVEN)
def model(request):
    env, arguments = GIVEN[request.param]()
    return mepg.ME_DQN("MlpPolicy", env, **TINY, **arguments).learn(60)


def test_the_loop_that_everyone_writes(model):
    """As in sb3-contrib's evaluate_policy: `get_action_masks(env)` asks for `env_method("action_masks")`."""
    env = model.get_env()
    obs, games = env.reset(), 0
    assert env.has_attr("action_masks")
    for _ in range(40):
        assert obs.shape == (env.num_envs, 9)
        action_masks = np.stack(env.env_method("action_masks"))
        assert action_masks.dtype == bool
        np.testing.assert_array_equal(action_masks, obs == 0)
        np.testing.assert_array_equal(env.env_method("action_masks", indices=0), action_masks[:1])
        action, _ = model.predict(obs, deterministic=True, action_masks=action_masks)
        assert action_masks[np.arange(env.num_envs), action - 1].all()
        obs, _, dones, infos = env.step(action)
        games += dones.sum()
        for info in np.array(infos)[dones]:
            assert info["terminal_observation"].shape == (9,)
    assert games > 3


def test_who_says_nothing_has_no_such_attribute():
    model = mepg.ME_DQN("MlpPolicy", "Noughts-v0", **TINY)
    assert not model.get_env().has_attr("action_masks")
    with pytest.raises(mepg.UsageError, match="did not say which actions are legal when this model learned: leave out"):
        model.predict(np.zeros(9), action_masks=np.ones(9))


@pytest.fixture(scope="module")
def alone():
    return mepg.ME_SACDiscrete("MlpPolicy", LegalNoughts(), **TINY).learn(60)


@pytest.mark.parametrize("deterministic", [True, False])
def test_one_or_several(alone, deterministic):
    boards = np.zeros((30, 9))
    legal = np.eye(9, dtype=bool)[np.arange(30) % 9]
    actions, state = alone.predict(boards, "mine", None, deterministic, legal)
    assert state == "mine"
    np.testing.assert_array_equal(actions, 1 + np.arange(30) % 9)
    for one in (legal[4], legal[4].tolist(), legal[4:5], legal[4].astype(np.int8)):
        action, _ = alone.predict(boards[0], deterministic=deterministic, action_masks=one)
        assert (action, np.shape(action)) == (5, ())


@pytest.mark.parametrize(
    ("action_masks", "says"),
    [
        (np.ones(8), r"predict was given float64\[8\] as action_masks, not true or false for 9 actions"),
        (np.ones((2, 9)), r"predict was given float64\[2, 9\] as action_masks"),
        ("all", "predict was given a str as action_masks"),
        ([1, [1, 2]], "predict was given a list as action_masks"),
        (np.full(9, 0.3), "predict was given action_masks with 0.3 at index 0, not true or false"),
        (np.zeros(9), "predict was given action_masks by which no action is legal"),
    ],
)
def test_what_they_cannot_be(alone, action_masks, says):
    with pytest.raises(mepg.UsageError, match=says):
        alone.predict(np.zeros(9), action_masks=action_masks)


def test_without_them_there_is_a_warning(alone):
    with pytest.warns(
        UserWarning, match="predict without action_masks may choose an action that is not legal"
    ) as warned:
        action, _ = alone.predict(np.zeros(9))
    assert warned[0].filename == __file__
    assert 1 <= action <= 9
    mean, std = alone.q_posterior(np.zeros(9), np.arange(1, 10))  # of any action, legal or not
    assert mean.shape == std.shape == (9,)


def test_callbacks_see_what_the_environment_gives():
    seen = []
    mepg.ME_DQN("MlpPolicy", InfoNoughts(), **TINY).learn(40, lambda variables, _: seen.append(variables) or True)
    assert seen[-1]["new_obs"].shape == (1, 9)
    assert "action_mask" in seen[-1]["infos"][0]


def test_saved_loaded_copied_and_gone_on_with(tmp_path):
    model = mepg.ME_DQN("MlpPolicy", "InfoNoughts-v0", **TINY).learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "memory")
    loaded = mepg.load(tmp_path / "model")
    board, legal = np.zeros(9), np.arange(9) == 3
    assert loaded.predict(board, deterministic=True, action_masks=legal)[0] == 4
    twin = copy.deepcopy(model)
    assert states_equal(twin.learn(20), model.learn(20))
    for env in (LegalNoughts(), "InfoNoughts-v0"):  # said in another way, it means the same
        again = mepg.load(tmp_path / "model", env=env)
        again.load_replay_buffer(tmp_path / "memory")
        assert again.replay_buffer.width == 2 * 18 + 3
        again.learn(20)
    with pytest.raises(mepg.UsageError, match="some of its actions said to be legal, and Noughts has none"):
        loaded.set_env(Noughts())


def test_stepping_its_environments_is_left_to_the_user():
    """Their own actions are not looked at: the environment says what an illegal one means."""
    model = mepg.ME_DQN("MlpPolicy", InfoNoughts(), **TINY).learn(40)
    env = model.get_env()
    obs = env.reset()
    env.step(1 + (obs == 0).argmin(axis=1)) if not (obs == 0).all() else env.step([1])
    model.learn(40)


def test_a_dict_of_observations_and_a_part_for_the_policy():
    class Told(gymnasium.ObservationWrapper):
        observation_space = gymnasium.spaces.Dict(
            {"place": Corridor.observation_space, "noise": gymnasium.spaces.Box(-1, 1, (2,))}
        )

        def observation(self, place):
            return {"place": place, "noise": np.zeros(2, np.float32)}

    model = mepg.ME_SACDiscrete("MlpPolicy", Told(Corridor("info")), actor_obs=("place",), normalize_obs=True, **TINY)
    model.learn(100)
    assert model.env.get_attr("illegal") == [0]
    for place in range(5):
        legal = [place > 0, False, place < 4] if place in (0, 4) else [True, False, False]
        action, _ = model.predict({"place": place}, action_masks=legal)
        assert legal[action]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_same_return_after_fewer_steps(seed, native):
    """Than where an illegal move loses the game, which has to be learned."""

    def steps_to_half(env):
        """Steps until a hundred games in a row end with 0.5 on average."""
        returns = [0.0]

        def go_on(variables, _):
            returns[-1] += variables["rewards"][0]
            if variables["dones"][0]:
                returns.append(0.0)
            return len(returns) <= 100 or np.mean(returns[-101:-1]) < 0.5

        network = {"net_arch": [64, 64]}
        model = mepg.ME_DQN(env=env, learning_rate=1e-3, batch_size=64, policy_kwargs=network, seed=seed)
        return model.learn(20_000, callback=go_on).num_timesteps

    assert steps_to_half(LegalNoughts()) < steps_to_half(Noughts())
