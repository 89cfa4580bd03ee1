"""The race: who runs, when a task is solved, and what is kept. How fast anything is, no test asserts."""

import json
import threading

import pytest

from mepg.bench import race
from mepg.bench.contestants import CONTESTANTS, TASKS
from mepg.bench.peers import Peer
from mepg.bench.race import LIMIT, Evaluation, Heat, choose, read_results, run, solved_after
from mepg.errors import RunFailure, UsageError

PENDULUM = "Pendulum-v1"
HEATS = [Heat("me-sac", PENDULUM, 0), Heat("sb3-sac-zoo", PENDULUM, 0), Heat("sac", PENDULUM, 0)]


def test_first_one_seed_of_everything():
    heats = choose((), None, None)
    assert len(set(heats)) == len(heats) == len(CONTESTANTS) * len(TASKS) * 3
    assert [heat.seed for heat in heats] == sorted(heat.seed for heat in heats)
    assert choose(["sac"], [PENDULUM], [2, 0]) == [Heat("sac", PENDULUM, 2), Heat("sac", PENDULUM, 0)]
    with pytest.raises(UsageError, match="unknown contestant 'me-sacc'; did you mean 'me-sac'"):
        choose(["me-sacc"], None, None)
    with pytest.raises(UsageError, match="unknown task of the race 'Hopper-v4'; did you mean 'Hopper-v5'"):
        choose((), ["Hopper-v4"], None)


def test_the_mean_of_three_evaluations_in_a_row_counts():
    task = TASKS[PENDULUM]

    def after(*returns, seconds=10):
        return solved_after([Evaluation(i, seconds * i, value) for i, value in enumerate(returns, start=1)], task)

    assert after(-100, -100) is None
    assert after(-100, -100, -100) == 30
    assert after(-1000, -300, -200, -100, 0) == 40
    assert after(-1000, -100, -1000, -100, -100, -401) is None
    assert after(-1000, -100, -100, -400) == 40, "the mean, not each of them"
    assert after(-100, -100, -100, seconds=LIMIT / 3) == LIMIT
    assert after(-100, -100, -100, seconds=LIMIT) is None, "after the limit it is too late"


class Pretended:
    """A contender that solves Pendulum with its fourth evaluation."""

    running, most, made = 0, 0, []
    lock = threading.Lock()

    def __init__(self, task, cores, peer=None, cache=""):
        assert (peer is None) == ("library" not in task)
        assert len(cores) == 1
        assert cache
        with self.lock:
            Pretended.running += 1
            Pretended.most = max(Pretended.most, Pretended.running)
            Pretended.made.append(task)
        self.answers = [
            {"ready": True},
            *({"step": 500 * i, "core_seconds": 9.0 * i, "mean_return": -250.0} for i in (1, 2, 3)),
        ]
        self.answers.append({"step": 2000, "core_seconds": 36.0, "mean_return": -50.0, "megabytes": 1.0})
        self.pinned = False

    def pin(self):
        self.pinned = True

    def start_turn(self):
        assert self.pinned

    def answer(self):
        return self.answers.pop(0)

    def close(self):
        with self.lock:
            Pretended.running -= 1


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(race, "Contender", Pretended)
    monkeypatch.setattr("mepg.system.cores", lambda: [0, 1, 2])
    Pretended.running, Pretended.most, Pretended.made = 0, 0, []
    return Pretended


PEERS = {"sb3": Peer("sb3", "python", {"torch": "2.13.0"})}


def test_heats_are_run_two_at_a_time_and_kept(pretended, tmp_path):
    watched = []
    results, failures = run(HEATS, tmp_path, PEERS, lambda heat, so_far: watched.append((heat, len(so_far))))
    assert (failures, pretended.running) == ({}, 0)
    assert pretended.most <= 2
    assert set(results) == set(HEATS)
    assert results[HEATS[0]][-1] == Evaluation(2000, 36.0, -50.0)
    assert {(HEATS[0], 0), (HEATS[0], 3)} <= set(watched)
    assert read_results(tmp_path, HEATS) == (results, {})
    kept = json.loads(HEATS[1].file(tmp_path).read_text())
    assert (kept["solved_after"], kept["versions"]) == (36.0, {"torch": "2.13.0"})
    assert kept["rules"]["arguments"] == {"learning_rate": 1e-3}
    assert kept["rules"]["threshold"] == -200


def test_one_that_fails_does_not_stop_the_others(pretended, monkeypatch, tmp_path):
    def answer(self):
        if self.work["algorithm"] == "me-sac":
            raise RunFailure("step 3: the policy's action became nan")
        return self.answers.pop(0)

    def init(self, task, *rest):
        self.work = task
        original(self, task, *rest)

    original = Pretended.__init__
    monkeypatch.setattr(Pretended, "__init__", init)
    monkeypatch.setattr(Pretended, "answer", answer)
    results, failures = run(HEATS, tmp_path, PEERS, lambda *_: None)
    assert set(results) == set(HEATS[1:])
    assert failures == {HEATS[0]: "me-sac on Pendulum-v1, seed 0: step 3: the policy's action became nan"}
    assert not HEATS[0].file(tmp_path).exists(), "it is run again"


def test_the_limit_ends_it_and_so_does_the_end_of_its_settings(pretended, monkeypatch, tmp_path):
    endless = [{"step": i, "core_seconds": LIMIT / 2 * i, "mean_return": -900.0} for i in range(1, 9)]
    for answers, count in (([{"ready": True}, *endless], 3), ([{"ready": True}, endless[0], {"ended": True}], 1)):
        monkeypatch.setattr(Pretended, "answer", lambda self, answers=list(answers): answers.pop(0))
        results, _ = run(HEATS[:1], tmp_path, {}, lambda *_: None)
        assert len(results[HEATS[0]]) == count
        assert json.loads(HEATS[0].file(tmp_path).read_text())["solved_after"] is None


def test_a_damaged_file_is_named_and_one_of_other_rules_too(pretended, monkeypatch, tmp_path):
    run(HEATS, tmp_path, PEERS, lambda *_: None)
    damaged, other, whole = HEATS
    path = damaged.file(tmp_path)
    path.write_text(path.read_text().replace("36.0", "3.6"))
    monkeypatch.setitem(CONTESTANTS, "sb3-sac-zoo", CONTESTANTS["sb3-sac"])
    results, problems = read_results(tmp_path, HEATS)
    assert set(results) == {whole}
    assert "does not match its checksum" in problems[damaged]
    assert "other rules" in problems[other]
    assert all("\n" not in problem and "delete it" in problem for problem in problems.values())


def test_ours_learns_and_is_evaluated_without_counting_that(monkeypatch):
    from mepg.bench import worker
    from mepg.training import loop

    ticks = iter(range(1000))
    monkeypatch.setattr(loop.time, "process_time", lambda: float(next(ticks)))  # one second for each evaluation
    monkeypatch.setattr(worker.os, "times", lambda: (40.0, 5.0, 3.0, 2.0, 99.0))
    settings = ["hidden=8,8", "batch_size=8", "warmup=10"]
    task = {"measurement": "race", "algorithm": "me-sac", "env": PENDULUM, "set": settings, "threads": 1}
    measure = worker.race({**task, "seed": 1, "steps": 20, "episodes": 2})
    first, second = measure(), measure()
    assert (first["step"], second["step"]) == (20, 40)
    assert (first["core_seconds"], second["core_seconds"]) == (49.0, 48.0)
    assert first["mean_return"] != second["mean_return"] < 0
