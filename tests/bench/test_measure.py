"""The benchmark measures what it says; how fast anything is, no test asserts."""

import json
import os
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.bench import measure, show
from mepg.bench.measure import Contender, column, in_turns
from mepg.bench.peers import Peer
from mepg.envs.env import Env
from mepg.errors import RunFailure

CORE = [max(os.sched_getaffinity(0))]


SMALL = {"env": "AntBulletEnv-v0", "set": ["hidden=8,8", "batch_size=8"]}


def test_contenders_take_turns_on_their_own_cores():
    contenders = {
        name: Contender({"measurement": "updates", "algorithm": name, **SMALL}, CORE) for name in ("ddpg", "me-sac")
    }
    pids = [contender._process.pid for contender in contenders.values()]
    seen = []

    def watch(title, turn, _):
        seen.append((title, turn))
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
    monkeypatch.setattr(measure, "Contender", lambda task, cores, peer: asked.append((task["algorithm"], task["env"])))
    turn = {"seconds": 2.0, "multiplications": 1.0, "mflop": 3.0}
    monkeypatch.setattr(measure, "in_turns", lambda title, contenders, *_: {name: [turn] for name in contenders})
    updates = measure.Benchmark(1, (), lambda *_: None).updates_of(measure.OTHERS)
    assert list(updates) == ["me-sac", *measure.OTHERS]
    assert updates["dqn"]["ratio"] == 2.0
    assert all(Env(env).sizes.action_kind in algorithms()[name].actions for name, env in asked)


def test_an_update_with_discrete_actions():
    task = {
        "measurement": "updates",
        "algorithm": "me-qr-dqn",
        "env": "CartPole-v1",
        "set": ["hidden=8,8", "batch_size=8"],
    }
    (turn,) = in_turns("test", {"me-qr-dqn": Contender(task, CORE)}, 1, lambda *_: None)["me-qr-dqn"]
    assert min(turn["seconds"], turn["multiplications"], turn["mflop"]) > 0


def test_a_contender_that_fails_says_why():
    broken = Contender(
        {"measurement": "updates", "algorithm": "ddpg", **SMALL, "set": ["hidden=8,8", "nonsense=1"]}, CORE
    )
    with pytest.raises(RunFailure, match="nonsense"):
        in_turns("test", {"ddpg": broken}, 1, lambda *_: None)


class Pretended:
    """A contender that answers at once."""

    def __init__(self, task, cores, peer=None, cache=""):
        assert (peer is None) == ("library" not in task)

    def wait_until_ready(self):
        pass

    def start_turn(self):
        pass

    def answer(self):
        quantities = ("seconds", "multiplications", "environment", "processor", "native", "native_alone", "mflop")
        return dict.fromkeys((*quantities, "evaluation", "evaluation_steps", "megabytes", "resident"), 2.0)

    def close(self):
        pass


def test_all_that_is_published_is_measured_and_shown(monkeypatch):
    """Two cores and every other library, as when docs/bench.json was made."""
    monkeypatch.setattr(measure, "Contender", Pretended)
    monkeypatch.setattr(measure, "find_compiler", lambda: None)
    monkeypatch.setattr("mepg.system.cores", lambda: [0, 1])
    peers = [Peer(name, Path("python"), {}) for name in ("sb3", "sbx", "rltools")]
    results = measure.Benchmark(2, peers, lambda *_: None).results()
    published = json.loads((Path(__file__).parents[2] / "docs" / "bench.json").read_text())
    assert list(results) == list(published)
    for name in set(results) - {"about"}:
        assert list(results[name]) == list(published[name]), name
    assert list(results["loops"][measure.HOPPER]) == list(published["loops"][measure.HOPPER])
    assert "not measured" not in show.to_markdown(results)
    assert show.summary(results)["two runs of me-ddpg on two cores, steps/s (the paper's GPU: 397)"] == "1.00"
