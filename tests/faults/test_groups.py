"""Signals that reach every process of a group, as Ctrl-C does in a terminal, and SIGTERM from a cluster's scheduler."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import all_but_slow
from tests.faults import spawner
from tests.run.processes import assert_gone, assert_same_run, command, finish, start, wait_for


def train(method, out):
    return command(
        "me-sac", f"tests.faults.spawner:{method}-v0", out, steps=1000, extra=["--envs", "2", "--log", "csv"]
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(train("program", folder))
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", all_but_slow(spawner.METHODS, ["spawn"]))
def test_the_processes_of_an_environment_may_end_first(method, number, whole, tmp_path):
    folder, at_work = tmp_path / "run", tmp_path / "at-work"
    process = start(train(method, folder), group=True, AT_WORK=str(at_work))
    assert wait_for(at_work.exists, process), process.communicate()
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "mepg: " not in err  # the other processes print their own tracebacks
    survives = method == "fork" and number == signal.SIGINT  # see signals.py
    step = spawner.SLOW * 2 - 2 * (not survives)
    assert f"{number.name}: saved at step {step} of 1,000" in out
    finish(train(method, folder))
    assert_same_run(folder, whole)


RACE = ["--race", "sac", "me-sac", "--envs", "Pendulum-v1", "--seeds", "0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("what", "count"), [(["ddpg", "td3"], 3), pytest.param(RACE, 2, marks=pytest.mark.faults)])
def test_what_bench_has_started_ends_with_it(what, count, number, tmp_path, monkeypatch):
    """Its workers: me-sac is always measured too, and a race has two heats at a time, from threads of its own."""
    monkeypatch.chdir(tmp_path)
    process = start([sys.executable, "-m", "mepg", "bench", *what], TMPDIR=str(tmp_path))
    tasks = Path(f"/proc/{process.pid}/task")

    def children():
        return [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

    assert wait_for(lambda: len(children()) == count, process), process.communicate()
    workers = children()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert_gone(workers)
    assert number == signal.SIGKILL or not list(tmp_path.glob("mepg-*")), "what is temporary"
