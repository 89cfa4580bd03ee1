"""Many runs on this machine: real processes, killed, stopped and failing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mepg.engine.jobs import Job
from mepg.engine.local import Local
from mepg.engine.schedule import carry_out, claim
from mepg.errors import UsageError
from mepg.run.config import Config
from tests.run.processes import assert_same_run

SMALL = ["hidden=16,16", "batch_size=16", "warmup=50"]


@pytest.fixture(autouse=True)
def _stubs_for_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))


def job(folder, env="HopperBulletEnv-v0", steps=1200, seed=0, algorithm="me-ddpg"):
    config = Config.make(algorithm, SMALL, env=env, steps=steps, eval_every=200, eval_episodes=1, seed=seed)
    return Job(config, folder)


class Looking:
    """Remembers what it saw, and acts once all runs that go on have got somewhere."""

    def __init__(self, act=lambda going_on: None):
        self.act, self.seen, self.acted = act, [], False

    def show(self, going_on, finished, failures):
        self.seen.append((len(going_on), finished, len(failures)))
        saved = [any((job.folder / "checkpoints").glob("*.json")) for job in going_on]
        if not self.acted and saved and all(saved):
            self.act(going_on)
            self.acted = True


def workers():
    out = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "mepg.engine.worker"], capture_output=True, text=True)
    return [int(pid) for pid in out.stdout.split()]


def test_killed_failing_and_stopped_runs(tmp_path):
    """One process is killed with -9 and goes on from its checkpoint; one run fails and stops no other."""
    fine, other = job(tmp_path / "a", seed=0), job(tmp_path / "b", seed=1)
    broken = job(tmp_path / "broken", env="tests.run.stubs:StubNanObs-v0")
    killed = []

    def kill_one(going_on):
        killed.append(workers()[0])
        os.kill(killed[0], signal.SIGKILL)

    looking = Looking(kill_one)
    failures = carry_out([broken, fine, other], Local(2), tmp_path / "logs", looking, lambda: False)
    assert killed
    assert [failure.job for failure in failures] == [broken]
    assert "step 30" in failures[0].reason
    assert "nan" in failures[0].reason
    assert failures[0].log.read_text().strip().endswith(failures[0].reason)
    assert max(going_on for going_on, _, _ in looking.seen) == 2
    assert fine.finished()
    assert other.finished()

    # Stopped in the middle, as Ctrl-C does, and carried out again: what is finished is left alone.
    again = job(tmp_path / "again", seed=0)
    stop = []
    assert (
        carry_out([again], Local(1), tmp_path / "logs", Looking(lambda _: stop.append(True)), lambda: bool(stop)) == []
    )
    assert not again.finished()
    assert carry_out([again], Local(1), tmp_path / "logs", Looking(), lambda: False) == []
    assert "resumed at step" in (tmp_path / "logs" / "again.log").read_text()
    assert_same_run(tmp_path / "a", tmp_path / "again")


def test_workers_end_when_nobody_is_left_to_watch(tmp_path):
    """The one who started them is killed with -9: they save and end, and the folder is free again."""
    code = (
        "from pathlib import Path; from tests.engine.test_local import *; path = Path(sys.argv[1])\n"
        "carry_out([job(path / 'a', steps=100_000)], Local(1), path, Looking(), lambda: False)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    while not list((tmp_path / "a" / "checkpoints").glob("*.json")):
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    before = time.monotonic()
    while True:
        try:
            with claim(tmp_path / "a"):  # the run's own lock
                break
        except UsageError:
            assert time.monotonic() - before < 30, "the worker goes on unseen"
            time.sleep(0.1)


def test_two_at_once_on_the_same_results(tmp_path):
    with claim(tmp_path), pytest.raises(UsageError, match="in use"):
        claim(tmp_path)
    claim(tmp_path).close()


def test_a_folder_with_another_run_is_refused(tmp_path):
    from mepg.run.folder import Folder

    Folder(tmp_path / "a").claim(job(tmp_path / "a", seed=5).config).close()
    with pytest.raises(UsageError, match="another run"):
        job(tmp_path / "a").finished()


def test_workers_are_bounded_by_the_cores():
    with pytest.raises(UsageError, match="workers"):
        Local(10_000)
    assert Local().capacity() == len(os.sched_getaffinity(0))
