"""Q beside what followed: on an environment that pays 1 a step, whatever is done."""

import gymnasium
import jax
import numpy as np
import pytest

from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.run.inspection import (
    LEVELS,
    Player,
    coverage,
    discounted_returns,
    inspect_run,
    read_inspection,
    read_residual_variances,
    steps_until_negligible,
    write_inspection,
)
from mepg.storage.files import read_sealed, write_sealed
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.storage.policy import load_policy, save_policy
from mepg.training.config import Config
from tests.report.by_hand import alter


class Steady(gymnasium.Env):
    """Pays 1 a step; ends, or cuts the episode itself, after `steps`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, ends=None, cuts=None):
        self.ends, self.cuts = ends, cuts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.at += 1
        obs = np.array([np.sin(self.at), action[0] / 2], np.float32)
        return obs, 1.0, self.at == self.ends, self.at == self.cuts, {}


for name, kwargs, limit in (
    ("Limited", {}, 20),
    ("Ending", {"ends": 7}, 20),
    ("Cutting", {"cuts": 50}, None),
    ("Abrupt", {"cuts": 5}, None),
):
    if f"Steady{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Steady{name}-v0", entry_point=Steady, kwargs=kwargs, max_episode_steps=limit)


def untrained(path, algorithm="me-ddpg", env="SteadyLimited-v0", *settings, **more):
    """A run's folder with the policy that it began with."""
    config = Config.make(algorithm, ["hidden=8,8", "discount=0.9", *settings], env=env, steps=100, **more)
    folder, made = Folder(path), Env(env)
    folder.claim(config, made.spaces).close()
    save_policy(folder, Identity(config, made.spaces), config.build(made.sizes).init(jax.random.key(0)), 100)
    folder.finish(config, {})
    return folder


def test_returns_by_hand():
    """G_2 = 4; G_1 = 2 + 0.5 (4 + 0.3) = 4.15; G_0 = 1 + 0.5 (4.15 + 0.2); the first bonus is not Q's."""
    returns = discounted_returns(np.array([1.0, 2.0, 4.0]), np.array([9.0, 0.2, 0.3]), 0.5)
    np.testing.assert_allclose(returns, [1 + 0.5 * 4.35, 4.15, 4])
    assert steps_until_negligible(0.5) == 7  # 2^-7 is the first below 1/100
    assert steps_until_negligible(0.0) == 1
    assert steps_until_negligible(1.0) is None


def test_coverage_by_hand():
    q, std, truth = np.zeros(4), np.ones(4), np.array([0.1, 0.7, 1.0, 3.0])
    shares = dict(zip(LEVELS, coverage(q, std, truth), strict=True))
    assert (shares[0.1], shares[0.5], shares[0.6], shares[0.95]) == (0.25, 0.25, 0.5, 0.75)


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A run's folder, and what is found in it."""
    folder = untrained(tmp_path_factory.mktemp("limited") / "run")
    return folder, inspect_run(folder, episodes=2, seed=0)


def test_a_time_limit_is_played_past(limited):
    _, found = limited
    assert (found.episodes, found.steps, found.left_out) == (2, 40, 0)
    played = 20 + 44  # 0.9^44 is the first below 1/100
    np.testing.assert_allclose(found.first.truth, [10 * (1 - 0.9 ** (played - t)) for t in range(20)])
    assert found.bias == pytest.approx(np.mean(np.array(found.first.q) - found.first.truth), abs=0.2)
    assert found.error >= abs(found.bias)
    assert found.spread > 0
    assert found.noise.steps == []
    assert found.noise_ratio is None
    assert found.bound_bias is None


def test_an_end_is_an_end_and_a_cut_leaves_steps_out(tmp_path):
    ending = inspect_run(untrained(tmp_path / "ending", "me-ddpg", "SteadyEnding-v0"), episodes=1, seed=0)
    np.testing.assert_allclose(ending.first.truth, [10 * (1 - 0.9 ** (7 - t)) for t in range(7)])
    cutting = inspect_run(untrained(tmp_path / "cutting", "me-ddpg", "SteadyCutting-v0"), episodes=1, seed=0)
    assert (cutting.steps, cutting.left_out) == (50 - 44, 44)
    for env, setting in (("SteadyAbrupt-v0", "discount=0.9"), ("SteadyLimited-v0", "discount=1")):
        with pytest.raises(UsageError, match="never known"):
            inspect_run(untrained(tmp_path / env, "me-ddpg", env, setting), episodes=1, seed=0)


def test_soft_critics_are_compared_with_soft_returns(tmp_path):
    folder = untrained(tmp_path / "run", "me-sac", "SteadyLimited-v0", "temperature.initial=0.5", normalize_obs=True)
    player = Player(folder, Env("SteadyLimited-v0", time_limit=False))
    trace, _ = player.play(0, 0)
    _, actions, rewards, bonuses, _ = player._episode(0, 0, 64)
    assert len(set(actions[:, 0])) > 60, "drawn"
    assert np.abs(bonuses).max() > 0.1
    np.testing.assert_allclose(trace.truth, discounted_returns(rewards, bonuses, 0.9)[:20])
    assert np.abs(np.array(trace.truth) - discounted_returns(rewards, 0 * bonuses, 0.9)[:20]).max() > 0.1
    again, _ = player.play(0, 0)
    assert again == trace


@pytest.mark.parametrize("algorithm", ["sunrise", "ace", "sac", "ddpg"])
def test_the_others_can_be_inspected_too(algorithm, tmp_path):
    found = inspect_run(untrained(tmp_path / "run", algorithm), episodes=1, seed=0)
    assert (found.coverage is None) == (algorithm in ("ace", "ddpg"))


def test_the_lower_bound_of_a_run_that_learns_from_it(tmp_path):
    found = inspect_run(untrained(tmp_path / "run", "me-sac+lcb"), episodes=1, seed=0)
    q, std, truth = map(np.array, found.first)
    assert found.beta == 0.25
    figures = found.figures()
    np.testing.assert_allclose(figures["mean_q"], q.mean())
    np.testing.assert_allclose(figures["followed"], truth.mean())
    np.testing.assert_allclose(figures["bound_bias"], (q - 0.25 * std - truth).mean())


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    folder = untrained(tmp_path / "run")
    found = inspect_run(folder, episodes=1, seed=0)
    write_inspection(folder, found)
    data = read_sealed(folder.inspection_file)
    write_sealed(folder.inspection_file, {n: value for n, value in data.items() if n not in ("followed", "beta")})
    back = read_inspection(folder)
    assert (back.followed, back.mean_q, back.bias) == (None, None, found.bias)


def test_file_and_back_and_what_is_not_one(limited):
    folder, found = limited
    assert read_inspection(folder) is None
    folder.metrics_file.write_text(
        "time/total_timesteps,train/noise_one_mask,train/noise_two_masks\n1000,,\n2000,0.5,1.5\n3000,x,1\n4000,1,4\n50"
    )
    folder.finish(folder.config(), {})
    policy = load_policy(folder, Env("SteadyLimited-v0").spaces)
    found = found._replace(noise=read_residual_variances(folder, policy))
    folder.metrics_file.write_text(folder.metrics_file.read_text().replace("0.5", "0.6"))
    with pytest.raises(UsageError, match=r"metrics\.csv does not match its checksum"):
        read_residual_variances(folder, policy)
    assert found.noise == ([2000, 4000], [0.5, 1], [1.5, 4])
    assert found.noise_ratio == 4
    write_inspection(folder, found)
    content, back = folder.inspection_file.read_bytes(), read_inspection(folder)
    assert back == found._replace(first=back.first, some=back.some)
    for drawn, exact in zip(back.first + back.some, found.first + found.some, strict=True):
        assert drawn == [float(f"{number:.4g}") for number in exact]
    write_inspection(folder, back)
    assert folder.inspection_file.read_bytes() == content
    for change in (
        {"format": 99},
        {"bias": "<b>"},
        {"coverage": [0.5]},
        {"first": {"q": [], "std": [], "truth": []}},
        {"some": {"q": [1.0], "std": [], "truth": [1.0]}},
        {"more": 1},
        {"config": "0" * 64},
    ):
        folder.inspection_file.write_bytes(content)
        alter(folder.inspection_file, **change)
        with pytest.raises(UsageError, match="mepg inspect writes it again"):
            read_inspection(folder)
    for text in ("", "[]", '{"format": 1}'):
        folder.inspection_file.write_text(text)
        with pytest.raises(UsageError, match="is damaged"):
            read_inspection(folder)
