"""Many runs on this machine: real processes, killed, stopped and failing."""

import os
import signal

import pytest

from mepg.errors import UsageError
from mepg.scheduler.local import Local
from tests.run.processes import assert_same_run
from tests.scheduler.runs import Looking, carry_out, job, workers


@pytest.mark.faults
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


def test_workers_are_bounded_by_the_cores():
    with pytest.raises(UsageError, match="workers"):
        Local(10_000)
    assert Local().capacity() == len(os.sched_getaffinity(0))
