"""The benchmark measures what it says; how fast anything is, no test asserts."""

import os
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.bench import measure
from mepg.bench.measure import Contender, column, in_turns
from mepg.envs.env import Env
from mepg.errors import RunFailure

CORE = [max(os.sched_getaffinity(0))]


SMALL = {"env": "AntBulletEnv-v0", "set": ["hidden=8,8", "batch_size=8"]}


def test_contenders_take_turns_on_their_own_cores():
    contenders = {name: Contender({"what": "updates", "algorithm": name, **SMALL}, CORE) for name in ("ddpg", "me-sac")}
    pids = [contender._process.pid for contender in contenders.values()]
    seen = []

    def watch(what, turn, _):
        seen.append((what, turn))
        if turn == 1:
            threads = [int(thread) for pid in pids for thread in os.listdir(f"/proc/{pid}/task")]
            assert all(os.sched_getaffinity(thread) == set(CORE) for thread in threads)

    answers = in_turns("test", contenders, 2, watch)
    assert seen == [("test: starting", 0), ("test", 0), ("test", 1)]
    for turns in answers.values():
        assert (column(turns, "seconds") > 0).all()
        assert (column(turns, "multiplications") > 0).all()
        assert turns[0]["megabytes"] > 50
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_updates_are_of_a_task_that_the_algorithm_can_use(monkeypatch):
    asked = []
    monkeypatch.setattr(measure, "Contender", lambda task, cores: asked.append((task["algorithm"], task["env"])))
    turn = {"seconds": 2.0, "multiplications": 1.0, "mflop": 3.0}
    monkeypatch.setattr(measure, "in_turns", lambda what, contenders, *_: {name: [turn] for name in contenders})
    updates = measure.measure_updates(measure.BEYOND, 1, lambda *_: None)
    assert list(updates) == ["me-sac", *measure.BEYOND]
    assert updates["dqn"]["ratio"] == 2.0
    assert all(Env(env).sizes.action_kind in algorithms()[name].actions for name, env in asked)


def test_an_update_with_discrete_actions():
    task = {"what": "updates", "algorithm": "me-qr-dqn", "env": "CartPole-v1", "set": ["hidden=8,8", "batch_size=8"]}
    (turn,) = in_turns("test", {"me-qr-dqn": Contender(task, CORE)}, 1, lambda *_: None)["me-qr-dqn"]
    assert min(turn["seconds"], turn["multiplications"], turn["mflop"]) > 0


def test_a_contender_that_fails_says_why():
    broken = Contender({"what": "updates", "algorithm": "ddpg", **SMALL, "set": ["hidden=8,8", "nonsense=1"]}, CORE)
    with pytest.raises(RunFailure, match="nonsense"):
        in_turns("test", {"ddpg": broken}, 1, lambda *_: None)
