import sys

import gymnasium
import numpy as np
import pytest

from mepg.envs.env import Env
from mepg.errors import RunFailure, UsageError
from mepg.paper.tasks import PAPER_TASKS


@pytest.mark.parametrize("env_id", ["HopperBulletEnv-v0", "ReacherBulletEnv-v0", "Pendulum-v1"])
def test_a_seed_gives_the_same_episode_whatever_came_before(env_id):
    def episode(env, seed, steps):
        rng = np.random.default_rng(seed)
        rows = [env.reset(seed)]
        for _ in range(steps):
            outcome = env.step(rng.uniform(-1, 1, env.sizes.action).astype(np.float32))
            rows.append(outcome.obs)
            if outcome.done:
                break
        return np.concatenate(rows)

    fresh, used = Env(env_id), Env(env_id)
    episode(used, 1, 40)
    episode(used, 2, 7)
    np.testing.assert_array_equal(episode(fresh, 3, 100), episode(used, 3, 100))


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("StubMultiBinary-v0", "action space is a MultiBinary; a Box or a Discrete is needed"),
        ("StubTooMany-v0", "at most 2^24 are possible"),
        ("StubIntegerBox-v0", "of type int64; floats are needed: give it a Box of floats"),
        ("StubUnbounded-v0", "infinite action bounds; leave out gymnasium.wrappers.ClipAction, or give it finite ones"),
        ("StubTextObs-v0", "observation is a Text, which is not a fixed number of numbers: make it a Box"),
        ("StubEmptyObs-v0", "has empty observations: there is nothing to learn from"),
        ("HoperBulletEnv-v0", "did you mean 'HopperBulletEnv-v0'"),
        ("no_such_package:Env-v0", "neither in this folder nor installed"),
        ("json:Env-v0", "unknown environment"),
        ("", "Malformed environment ID"),
        ("a/b/c", "environment"),
        (":", "cannot be made"),
        ("tests.run.broken:Foo-v0", "RuntimeError: not today"),
    ],
)
def test_environments_that_cannot_be_used(env_id, says):
    with pytest.raises(UsageError) as error:
        Env(env_id)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_pybullet_missing(monkeypatch):
    for name in PAPER_TASKS:
        monkeypatch.delitem(gymnasium.registry, name, raising=False)
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(UsageError, match=r"pip install 'mepg\[bullet\]'"):
        Env("HopperBulletEnv-v0")


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("StubNanObs-v0", "observation with nan at index 1"),
        ("StubInfReward-v0", "reward of inf"),
        ("StubWrongShape-v0", "observation of shape (2,), not (3,)"),
        ("StubRaises-v0", "step raised RuntimeError: the simulator is gone"),
    ],
)
def test_faults_are_named(env_id, says):
    env = Env(env_id)
    env.reset(0)
    with pytest.raises(RunFailure) as error:
        for _ in range(40):
            env.step(np.zeros(2, np.float32))
    assert says in str(error.value)


def test_simulators_chatter_stays_out_of_stdout(capfd):
    Env("HopperBulletEnv-v0").close()
    assert capfd.readouterr() == ("", "")


def test_wrappers_that_scale_by_what_they_have_seen_are_known():
    wrap, plain = gymnasium.wrappers, gymnasium.make("Pendulum-v1")
    assert Env(plain).normalizing_wrappers == []
    assert Env(wrap.RecordEpisodeStatistics(wrap.TimeLimit(plain, 9))).normalizing_wrappers == []
    scaled = wrap.TimeLimit(wrap.NormalizeReward(wrap.NormalizeObservation(plain)), 9)
    assert Env(scaled).normalizing_wrappers == ["NormalizeObservation", "NormalizeReward"]
