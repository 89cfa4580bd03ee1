"""Workers of an experiment: killed, stopped, out of memory, or told to stop; the others go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mepg.scheduler import local
from mepg.scheduler.local import Local
from mepg.scheduler.schedule import MAX_ATTEMPTS
from tests.run.processes import PATH, assert_same_run, newest, start, wait_for
from tests.scheduler.runs import Looking, carry_out, job, workers

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _stubs_for_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATH)
        assert carry_out([job(folder / "run")], Local(1), folder / "logs", Looking(), lambda: False) == []
    return folder / "run"


def began(log):
    """How often a run was begun or gone on with after a checkpoint, by what it printed."""
    return log.read_text().count("resumed at step")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], ids=lambda number: number.name)
def test_once(number, undisturbed, tmp_path, monkeypatch):
    """A worker that is killed, stopped or told to stop from outside is begun again, and ends with the same bits."""
    monkeypatch.setattr(local, "IDLE_TIMEOUT", 4.0)
    wanted, other = job(tmp_path / "a"), job(tmp_path / "b", seed=1)
    looking = Looking(lambda _: os.kill(workers()[0], number))
    assert carry_out([wanted, other], Local(2), tmp_path / "logs", looking, lambda: False) == []
    assert looking.acted
    assert wanted.finished()
    assert other.finished()
    logs = [tmp_path / "logs" / f"{name}.log" for name in "ab"]
    assert sum(began(log) for log in logs) == 1
    stuck = "mepg: killed: stopped or stuck, no processor time for 4 s"
    assert any(stuck in log.read_text() for log in logs) == (number == signal.SIGSTOP)
    assert_same_run(undisturbed, tmp_path / "a")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            "Killed",
            f"its process was killed {MAX_ATTEMPTS} times, by signal 9, as the system does when memory runs out",
        ),
        ("Stopped", "its last line: killed: stopped or stuck, no processor time for 4 s"),
        ("LimitedMemory", "LimitedMemory-v0's step raised MemoryError: Unable to allocate"),
    ],
)
def test_again_and_again(env, says, tmp_path, monkeypatch):
    """It is tried a bounded number of times, and then named with the reason; the other is carried out."""
    monkeypatch.setattr(local, "IDLE_TIMEOUT", 4.0)
    bad, fine = job(tmp_path / "bad", env=f"tests.faults.stubs:{env}-v0"), job(tmp_path / "fine", steps=300)
    failures = carry_out([bad, fine], Local(2), tmp_path / "logs", Looking(), lambda: False)
    assert [failure.job for failure in failures] == [bad]
    assert says in failures[0].reason
    assert "\n" not in failures[0].reason
    assert fine.finished()
    killed = env != "LimitedMemory"
    assert failures[0].log.read_text().count("Traceback") == 0
    assert failures[0].reason.startswith("its process was killed 3 times") == killed


@pytest.fixture
def memory_group(tmp_path):
    """A control group of 600 MB, as batch systems make them."""
    for root, most in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"mepg-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / most).write_text(str(600 * 2**20))
        except OSError:
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group for memory can be made here")


def test_the_system_kills_a_worker_that_takes_too_much_memory(memory_group, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMORY_GROUP", str(memory_group))
    bad, fine = job(tmp_path / "bad", env="tests.faults.stubs:LimitedGroup-v0"), job(tmp_path / "fine", steps=300)
    failures = carry_out([bad, fine], Local(2), tmp_path / "logs", Looking(), lambda: False)
    assert [failure.job for failure in failures] == [bad]
    assert "killed 3 times, by signal 9, as the system does when memory runs out" in failures[0].reason
    assert fine.finished()


# mepg reproduce

ONE = ["table1", "--plan", "smoke", "--only", "me-ddpg", "--envs", "HopperBulletEnv-v0", "--seeds", "0"]
RUN = "smoke-1500/me-ddpg_HopperBulletEnv-v0_seed0"


def reproduce(results):
    return [sys.executable, "-m", "mepg", "reproduce", *ONE, "--steps", "1500", "--results", str(results)]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    results = tmp_path_factory.mktemp("reproduced")
    subprocess.run(reproduce(results), check=True, capture_output=True)
    return results / RUN


def worker_of(process):
    out = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "mepg.scheduler.worker"], capture_output=True, text=True
    )
    return [int(pid) for pid in out.stdout.split()]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("once", signal.SIGTERM),
        ("twice", signal.SIGTERM),
        ("twice", signal.SIGINT),
        ("stopped worker", signal.SIGTERM),
    ],
)
def test_reproduce_is_told_to_stop(number, how, reproduced, tmp_path):
    """Its worker saves and ends, or ends at once; neither is left behind, and the same command goes on."""
    process = start(reproduce(tmp_path))
    wait_for(lambda: newest(tmp_path / RUN), process, pause=0.05)
    (worker,) = worker_of(process)
    if how != "once":
        os.kill(worker, signal.SIGSTOP)  # so that it cannot be quicker than the second signal
    process.send_signal(number)
    if how == "twice":
        time.sleep(0.05)
        process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    if how == "twice":
        assert err == "mepg: interrupted; what was saved is safe\n"
    else:
        assert f"{number.name}: saved; the same command continues from there" in out
        assert err == ""
    if how == "twice":
        os.kill(worker, signal.SIGCONT)
    deadline = time.monotonic() + 60
    while not gone(worker):
        assert time.monotonic() < deadline, "the worker goes on unseen"
        time.sleep(0.1)
    subprocess.run(reproduce(tmp_path), check=True, capture_output=True)
    assert_same_run(reproduced, tmp_path / RUN)


def test_two_reproductions_of_one_thing(reproduced, tmp_path):
    """The second is refused. If someone deletes the lock it is not, but its runs are, and the first is unharmed."""
    first = start(reproduce(tmp_path))
    wait_for(lambda: newest(tmp_path / RUN), first, pause=0.05)
    first.send_signal(signal.SIGSTOP)  # or it might be finished before the second has begun
    second = subprocess.run(reproduce(tmp_path), capture_output=True, text=True)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert second.stderr == f"mepg: {tmp_path / 'smoke-1500'} is in use: another mepg process is working there\n"
    for lock in ("smoke-1500/.lock", f"{RUN}/.lock"):
        (tmp_path / lock).unlink()
    third = subprocess.run(reproduce(tmp_path), capture_output=True, text=True)
    assert third.returncode in (0, 1)  # 0: the first had just finished
    assert third.returncode == 0 or "is in use: another process is training there" in third.stdout
    _, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert_same_run(reproduced, tmp_path / RUN)
