"""One Ctrl-C is enough, whatever code it comes into."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import all_but_slow
from tests.faults import swallower
from tests.run.processes import PATH, wait_for

TINY = ["--set", "warmup=1000", "--set", "hidden=8", "--set", "batch_size=8", "--log", "csv"]
TRAIN = ["train", "me-sac", "--env", swallower.ID, "--eval-episodes", "1", *TINY]
COMMANDS = {
    "train": [*TRAIN, "--steps", "100000", "--out", "new"],
    "eval": ["eval", "run", "--episodes", "1000", "--env", swallower.ID],
    "inspect": ["inspect", "run", "--episodes", "1000", "--env", swallower.ID],
    "verify": ["verify", "run", "--env", swallower.ID],
}
SAVED = "SIGINT: saved at step"


def mepg(argv, folder, **variables):
    env = {**os.environ, "PYTHONPATH": PATH, "AT_WORK": str(folder / "at-work"), **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mepg", *argv], cwd=folder, env=env, **pipes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    done = mepg([*TRAIN, "--steps", "1000", "--out", "run"], folder)
    assert done.wait(300) == 0, done.stderr.read()
    done.communicate()
    return folder / "run"


@pytest.mark.parametrize("way", all_but_slow(swallower.WAYS, ["suppresses everything", "__del__"]))
@pytest.mark.parametrize("name", all_but_slow(COMMANDS, ["train", "eval"]))
def test_it_is_not_lost(name, way, run, tmp_path):
    (tmp_path / "run").symlink_to(run)
    process = mepg(COMMANDS[name], tmp_path, SWALLOWS=way)
    assert wait_for((tmp_path / "at-work").exists, process)
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    if name == "train":
        assert (err, SAVED in out) == ("", True)
    else:
        assert err == "mepg: interrupted; what was saved is safe\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["train", "export"])
def test_a_compiler_ends_with_us(name, number, run, tmp_path):
    """And leaves nothing in the cache, or among the system's temporary files."""
    slow, said = tmp_path / "slow", tmp_path / "said"
    slow.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo slow 1.0\necho $$ > {said}\nsleep 1000\n')
    slow.chmod(0o755)
    (tmp_path / "run").symlink_to(run)
    variables = {"CXX": str(slow), "CC": str(slow), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "tmp").mkdir()
    argv = {"train": [*TRAIN, "--steps", "100", "--backend", "native", "--out", "new"]}
    argv["export"] = ["export", "run", "--c", "policy.h", "--env", swallower.ID]
    process = mepg(argv[name], tmp_path, TMPDIR=str(tmp_path / "tmp"), **variables)
    assert wait_for(lambda: said.exists() and said.read_text(), process), process.communicate()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "mepg: interrupted; what was saved is safe\n")
    group = int(said.read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(3_000):  # it has been killed, and is soon gone
            os.killpg(group, 0)
            time.sleep(0.01)
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "cache").rglob("build-*"))
