"""Legal actions: what environments say about them, in either way and in every kind of vector, and what is refused."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from mepg.core.types import Sizes
from mepg.envs.env import Env
from mepg.envs.spaces import Spaces
from mepg.envs.vector import make_envs
from mepg.errors import RunFailure
from tests.envs.games import Corridor, InfoNoughts, LegalNoughts, Noughts

GAMES = {"action_masks": LegalNoughts, "info": InfoNoughts}


def legal_of(row):
    return np.flatnonzero(row[9:])


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_a_row_has_the_legal_actions_behind_the_observation(game):
    env = Env(game())
    assert env.sizes == env.spaces.sizes == Sizes(9, 9, "discrete", n_legal=9)
    assert env.sizes.obs_width == 18
    row, rng = env.reset(0), np.random.default_rng(0)
    for _ in range(200):
        np.testing.assert_array_equal(row[9:], row[:9] == 0)
        result = env.step(env.spaces.random(rng, row).astype(np.float32))
        row = result.obs
        if result.done:
            assert result.terminated
            np.testing.assert_array_equal(row[9:], 1)  # nothing is chosen there
            row = env.reset(None)
    assert env.original.illegal == 0


def test_who_says_nothing_has_rows_as_before():
    env = Env(Noughts())
    assert env.sizes.n_legal == 0
    assert env.reset(0).shape == (9,)
    assert "legal_actions" not in env.spaces.to_json()


def test_random_actions_are_uniform_among_the_legal():
    spaces = Env(LegalNoughts()).spaces
    row = np.array([0.0] * 9 + [0, 1, 0, 0, 1, 0, 0, 0, 1], np.float32)
    rng = np.random.default_rng(0)
    drawn = np.array([spaces.random(rng, row)[0] for _ in range(3_000)])
    assert set(drawn) == {1, 4, 8}
    assert np.bincount(drawn)[[1, 4, 8]] == pytest.approx(1_000, rel=0.1)
    assert spaces.any_action(row) == [1]


def test_spaces_keep_it_in_their_file():
    spaces = Env(LegalNoughts()).spaces
    again = Spaces.from_json("LegalNoughts", spaces.to_json())
    assert again.sizes == spaces.sizes
    assert again.difference(spaces) is None
    plain = Env(Noughts()).spaces
    assert plain.difference(spaces) == "none of its actions said to be legal, and LegalNoughts has some"
    assert spaces.difference(plain) == "some of its actions said to be legal, and Noughts has none"
    for wrong in ({**spaces.to_json(), "legal_actions": 1}, {**spaces.to_json(), "legal_actions": None}):
        with pytest.raises(ValueError, match="legal actions are not"):
            Spaces.from_json("x", wrong)


def test_an_illegal_action_does_not_reach_the_environment():
    env = Env(Corridor())
    row = env.reset(0)
    while row[5:].all():
        row = env.reset(None)
    wrong = row[5:].argmin()
    with pytest.raises(RunFailure, match=f"the policy chose action {wrong}, which is not legal in this state"):
        env.step(np.array([wrong], np.float32))
    assert (env.original.illegal, env.original.at) == (0, 0)


def one_at(step, value, otherwise=None):
    """What is said: at one step `value`, else `otherwise`, or if that is None the truth."""

    def say(place, at):
        if at == step:
            return value
        return [place > 0, True, place < 4] if otherwise is None else otherwise[0]

    return say


@pytest.mark.parametrize("by", ["action_masks", "info"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([True, True], r"returned bool\[2\] as .*, not true or false for 3 actions"),
        ([[True, True, True]], r"returned bool\[1, 3\] as .*, not true or false for 3 actions"),
        ("yes", r"returned a str as .*, not true or false for 3 actions"),
        ([0.5, 1, 1], r"returned .* with 0\.5 at index 0, not true or false"),
        ([1, np.nan, 1], r"returned .* with nan at index 1, not true or false"),
        ([0, 0, 0], "says by .* that no action is legal, and its episode goes on: terminate it, or allow an action"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(by, value, says):
    env = Env(Corridor(by, one_at(4, value)))
    env.reset(0)
    for _ in range(3):
        env.step(np.ones(1, np.float32))
    label = r"action_masks\(\)" if by == "action_masks" else r"info\['action_mask'\]"
    with pytest.raises(RunFailure, match=says) as failure:
        env.step(np.ones(1, np.float32))
    assert "\n" not in str(failure.value)
    assert str(failure.value).startswith("Corridor ")
    failure.match(label)


def test_a_first_reset_without_a_legal_action_is_refused():
    with pytest.raises(RunFailure, match=r"^first reset: Corridor says by action_masks\(\) that no action is legal"):
        Env(Corridor(said=one_at(0, [0, 0, 0])))


def test_what_is_said_only_sometimes_is_refused():
    gone = Env(Corridor("info", one_at(2, None)))
    gone.reset(0)
    gone.step(np.ones(1, np.float32))
    with pytest.raises(RunFailure, match=r"returned no info\['action_mask'\], and one at its first reset: give one"):
        gone.step(np.ones(1, np.float32))
    late = Env(Corridor("info", lambda place, at: [1, 1, 1] if at == 2 else None))
    assert late.sizes.n_legal == 0
    late.reset(0)
    late.step(np.ones(1, np.float32))
    with pytest.raises(RunFailure, match=r"returned info\['action_mask'\], and none at its first reset: give one"):
        late.step(np.ones(1, np.float32))


def test_what_the_method_raises_is_said():
    def broken(place, at):
        if at:
            raise ValueError("which board?")
        return [1, 1, 1]

    env = Env(Corridor(said=broken))
    env.reset(0)
    with pytest.raises(RunFailure, match=r"Corridor's action_masks raised ValueError: which board\?"):
        env.step(np.ones(1, np.float32))


def test_a_wrapper_may_say_it():
    class Knows(gymnasium.Wrapper):
        def action_masks(self):
            return self.unwrapped.true()

    env = Env(gymnasium.wrappers.TimeLimit(Knows(Corridor("info", lambda place, at: None)), 5))
    row = env.reset(0)
    np.testing.assert_array_equal(row[5:], env.original.unwrapped.true())


class LikeStableBaselines:
    """What its VecEnv is like, from the outside; the real one is in test_stable_baselines.py."""

    num_envs, observation_space, action_space = 3, Noughts.observation_space, Noughts.action_space

    def __init__(self, make):
        self.envs = [make() for _ in range(3)]

    def seed(self, seed):
        self._seeds = [seed + index for index in range(3)]

    def reset(self):
        obs, self.reset_infos = map(
            list, zip(*(env.reset(seed=seed) for env, seed in zip(self.envs, self._seeds, strict=True)), strict=True)
        )
        return np.stack(obs)

    def step(self, actions):
        rows = []
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, reward, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                info = {**info, "terminal_observation": obs.copy(), "TimeLimit.truncated": truncated and not terminated}
                obs, self.reset_infos[index] = env.reset()
            rows.append((obs.copy(), reward, terminated or truncated, info))
        obs, rewards, dones, infos = zip(*rows, strict=True)
        return np.stack(obs), np.array(rewards), np.array(dones), list(infos)

    def has_attr(self, name):
        return all(hasattr(env, name) for env in self.envs)

    def env_method(self, name):
        return [getattr(env, name)() for env in self.envs]

    step_async = step_wait = close = lambda self: None


MODES = {mode.name: partial(SyncVectorEnv, autoreset_mode=mode) for mode in AutoresetMode}
VECTORS = {
    **{name: lambda game, make=make: make([game] * 3) for name, make in MODES.items()},
    "a list": lambda game: gymnasium.wrappers.vector.DictInfoToList(SyncVectorEnv([game] * 3)),
    "processes": lambda game: AsyncVectorEnv([game] * 3, context="spawn"),
    "like Stable-Baselines3": LikeStableBaselines,
}


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
@pytest.mark.parametrize("kind", VECTORS)
def test_in_a_vector_each_environment_says_it(kind, game):
    envs = make_envs(VECTORS[kind](game))
    assert envs.sizes.n_legal == 9
    rng, ends = np.random.default_rng(0), 0
    rows = np.stack([envs.begin(index, index) for index in range(3)])
    for _ in range(40):
        np.testing.assert_array_equal(rows[:, 9:], rows[:, :9] == 0)
        for index in range(3):
            np.testing.assert_array_equal(envs.legal(index), rows[index, 9:])
        actions = np.stack([envs.spaces.random(rng, row) for row in rows]).astype(np.float32)
        results = envs.step(actions)
        for index, result in enumerate(results):
            ends += result.done
            rows[index] = envs.begin(index, None) if result.done else result.obs
    assert ends > 20
    full = next(iter(np.flatnonzero(rows[0, 9:] == 0)))
    with pytest.raises(RunFailure, match="is not legal in this state"):
        envs.step(np.array([[full], *([legal_of(row)[0]] for row in rows[1:])], np.float32))
    envs.close()


@pytest.mark.parametrize("by", ["action_masks", "info"])
@pytest.mark.parametrize("kind", ["DISABLED", "NEXT_STEP", "SAME_STEP"])
def test_at_a_time_limit_what_is_legal_matters_still(kind, by):
    """Who resets itself before it can be asked says nothing: then any action may be legal."""
    envs = make_envs(MODES[kind]([partial(Corridor, by)] * 2))
    rows = np.stack([envs.begin(index, index) for index in range(2)])
    for _ in range(12):
        results = envs.step(np.ones((2, 1), np.float32))
    rows = np.stack([result.obs for result in results])
    assert all(result.done and not result.terminated for result in results)
    place = rows[:, :5].argmax(axis=1)
    true = np.stack([place > 0, place >= 0, place < 4], axis=1)
    np.testing.assert_array_equal(rows[:, 5:], 1 if (kind, by) == ("SAME_STEP", "action_masks") else true)
