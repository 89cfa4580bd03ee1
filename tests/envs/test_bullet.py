"""PyBullet's tasks in fewer calls: observations, rewards and ends are the package's, bit for bit."""

import gymnasium
import numpy as np
import pytest

from mepg.envs.bullet import Client
from mepg.envs.simulators import make, quiet
from mepg.paper.tasks import PAPER_TASKS

OTHERS = [
    "HumanoidBulletEnv-v0",
    "HumanoidFlagrunBulletEnv-v0",
]  # a robot of the same kind, and one that has its own way


def both(env_id, monkeypatch):
    with quiet(env_id):
        fewer = make(env_id)
        monkeypatch.setenv("MEPG_BULLET", "plain")
        plain = make(env_id)
    return fewer, plain


def assert_same(ours, theirs, step):
    assert ours[0].dtype == theirs[0].dtype
    assert ours[0].tobytes() == theirs[0].tobytes(), f"observation of step {step}"
    assert ours[1:4] == theirs[1:4], f"step {step}"
    assert [type(each) for each in ours[1:4]] == [type(each) for each in theirs[1:4]]


def compare(env_id, steps, monkeypatch):
    """Vigorous and gentle actions in turn, so that episodes are short and long; also in a new connection."""
    fewer, plain = both(env_id, monkeypatch)
    rng, ends = np.random.default_rng(0), 0
    with quiet(env_id):
        for seed in (5, None):
            assert fewer.reset(seed=seed)[0].tobytes() == plain.reset(seed=seed)[0].tobytes()
            for step in range(steps // 2):
                action = (
                    rng.uniform(-1.1, 1.1, plain.action_space.shape).astype(np.float32) * (0.2, 1.0)[step // 97 % 2]
                )
                ours, theirs = fewer.step(action.copy()), plain.step(action.copy())
                assert_same(ours, theirs, step)
                if theirs[2] or theirs[3]:
                    ends += 1
                    assert fewer.reset()[0].tobytes() == plain.reset()[0].tobytes(), f"reset after step {step}"
            assert isinstance(fewer.unwrapped._p, Client)
            assert not isinstance(plain.unwrapped._p, Client)
        fewer.close()
        plain.close()
    return ends


@pytest.mark.parametrize("env_id", [*PAPER_TASKS, *OTHERS])
def test_the_same_bits(env_id, monkeypatch):
    compare(env_id, 600, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", PAPER_TASKS)
def test_the_same_bits_for_long(env_id, monkeypatch):
    assert compare(env_id, 20_000, monkeypatch) > 10, "without ends of episodes this shows little"


def test_other_environments_are_left_alone():
    env = make("Pendulum-v1")
    assert "reset" not in vars(env.unwrapped)
    assert isinstance(env.unwrapped, gymnasium.Env)
