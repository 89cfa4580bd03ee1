"""Carrying out many runs."""

import pytest

from mepg.errors import UsageError
from mepg.scheduler import schedule
from mepg.scheduler.schedule import claim, jobs_by_state, run_jobs
from mepg.storage.folder import Folder
from tests.conftest import SPACES
from tests.scheduler.runs import Looking, carry_out, job


def test_two_at_once_on_the_same_results(tmp_path):
    with claim(tmp_path), pytest.raises(UsageError, match="in use"):
        claim(tmp_path)
    claim(tmp_path).close()


class Pretended:
    """An engine whose runs end as they are told to: a list of exit statuses for each folder's name."""

    def __init__(self, ends, capacity=2):
        self.ends, self.most = {name: list(statuses) for name, statuses in ends.items()}, capacity
        self.launched, self.stopped = [], []

    def capacity(self):
        return self.most

    def launch(self, job, log):
        self.launched.append(job.folder.name)
        return PretendedRun(self, job.folder.name)


class PretendedRun:
    def __init__(self, engine, name):
        self.engine, self.name, self.told = engine, name, False

    def poll(self):
        if self.told:
            return 143
        statuses = self.engine.ends[self.name]
        return statuses.pop(0) if statuses else None

    def stop(self):
        self.told = True
        self.engine.stopped.append(self.name)


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(schedule, "POLL_INTERVAL", 0.0)


def test_who_is_killed_begins_again_but_not_for_ever(tmp_path, quickly):
    engine = Pretended({"a": [-9, None, 0], "b": [-9, 137, -9], "c": [1], "d": [0]}, capacity=1)
    jobs = [job(tmp_path / name) for name in "abcd"]
    looking = Looking()
    failures = carry_out(jobs, engine, tmp_path / "logs", looking, lambda: False)
    assert engine.launched == ["a", "a", "b", "b", "b", "c", "d"]
    assert [failure.job.folder.name for failure in failures] == ["b", "c"]
    assert failures[0].reason == "its process was killed 3 times, by signal 9, as the system does when memory runs out"
    assert failures[1].reason == "it ended with status 1"
    assert looking.seen[-1][1:] == (2, 2)


def test_the_next_job_is_asked_for_when_there_is_room(tmp_path, quickly):
    asked = []

    def jobs():
        for name in "abc":
            asked.append(name)
            yield job(tmp_path / name)

    running = []
    engine = Pretended({"a": [None, 0], "b": [None, 0], "c": [0]})
    watch = Looking()
    watch.show = lambda going_on, finished, failures: running.append((len(going_on), finished, list(asked)))
    assert carry_out(jobs(), engine, tmp_path / "logs", watch, lambda: False) == []
    assert running[0] == (2, 0, ["a", "b"])
    assert running[-1] == (0, 3, ["a", "b", "c"])


def test_what_becomes_unwanted_is_told_once_and_not_begun_again(tmp_path, quickly):
    engine, polls = Pretended({"a": [], "b": [None, None, None, 0]}), 0

    def unwanted(job):
        return job.folder.name == "a" and polls > 1

    jobs = [job(tmp_path / "a"), job(tmp_path / "b")]
    for status in run_jobs(jobs, engine, tmp_path / "logs", lambda: False, unwanted):
        polls += 1
        assert status.failures == []
    assert status.finished == 1
    assert (engine.launched, engine.stopped) == (["a", "b"], ["a"])


def test_what_there_is_of_many_runs(tmp_path):
    done, begun, other, new = (job(tmp_path / name) for name in ("done", "begun", "other", "new"))
    Folder(done.folder).claim(done.config, SPACES).close()
    Folder(done.folder).finish(done.config, {})
    Folder(begun.folder).claim(begun.config, SPACES).close()
    Folder(other.folder).claim(job(other.folder, seed=5).config, SPACES).close()
    states = jobs_by_state([done, begun, other, new])
    assert (states.finished, states.missing) == ([done], [begun, new])
    (unusable,) = states.unusable
    assert (unusable.job, unusable.log) == (other, None)
    assert "holds another run (seed=5 there, 0 here" in unusable.reason
