"""Signals that reach every process of a group, as Ctrl-C does in a terminal, and SIGTERM from a cluster's scheduler."""

import os
import signal

import pytest

from tests.conftest import all_but_slow
from tests.faults import spawner
from tests.run.processes import assert_same_run, command, finish, start, wait_for


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
