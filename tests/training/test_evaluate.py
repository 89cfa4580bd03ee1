"""Whole episodes, without exploration."""

import numpy as np
import pytest

from mepg.envs.env import Env
from mepg.errors import RunFailure
from mepg.training import evaluate
from mepg.training.evaluate import play
from tests.run.stubs import CountingEnv
from tests.run.test_ownership import Scribbles


def test_an_evaluated_policy_keeps_its_action():
    action = np.array([0.5], np.float32)
    totals = {play(lambda obs: action, Env(Scribbles()), seed=0).return_ for _ in range(3)}
    assert len(totals) == 1
    assert action[0] == 0.5


def test_an_episode_is_added_up_and_seen_from_its_first_step_on():
    env, seen = CountingEnv(5), []
    episode = play(lambda obs: obs * 0 + 0.25, env, 7, lambda: seen.append(env.at))
    assert episode == (5.0, 5)
    assert (env.seeds, env.taken) == ([7], [0.25] * 5)
    assert seen == [0, 1, 2, 3, 4], "before each step, and not after the last"


def test_what_does_not_end_is_given_up_unless_a_limit_is_known(monkeypatch):
    monkeypatch.setattr(evaluate, "MAX_EPISODE_STEPS", 20)
    with pytest.raises(RunFailure, match="after 20 steps of an evaluation episode: it has not ended, and Counting-v0"):
        play(lambda obs: obs * 0, CountingEnv(), 0)
    limited = CountingEnv(60)
    limited.time_limit = 60
    assert play(lambda obs: obs * 0, limited, 0).length == 60
