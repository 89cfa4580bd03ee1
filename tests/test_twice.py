"""A command said twice, and said again after it was interrupted: the second time ends as well as the first."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mepg.cli import main
from tests.run.processes import ROOT, wait_for

TINY = ["--set", "warmup=20", "--set", "hidden=8,8", "--set", "batch_size=8", "--eval-episodes", "1"]
TRAIN = ["train", "me-sac", "--env", "Pendulum", "--steps", "40", "--log", "csv", *TINY, "--out", "run"]
ONE = ["--plan", "smoke", "--only", "me-ddpg", "--envs", "HopperBulletEnv-v0", "--seeds", "0"]
TUNE = ["tune", "me-sac", "--env", "Pendulum", "--trials", "1", "--seeds", "1", "--steps", "40", *TINY]
COMMANDS = {
    "train": TRAIN,
    "eval": ["eval", "run", "--episodes", "1"],
    "inspect": ["inspect", "run", "--episodes", "1"],
    "list": ["list", "run"],
    "show": ["show", "me-sac"],
    "params": ["params", "--env", "HopperBulletEnv"],
    "dry run": ["reproduce", "table1", *ONE, "--dry-run"],
    "reproduce": ["reproduce", "table10"],
    "plot": ["plot", "run"],
    "report": ["report", "run"],
    "export": ["export", "run", "--numpy", "numpy", "--card", "card.md"],
    "tune": [*TUNE, "--space", "critic_lr=1e-4:1e-3:log"],
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([*TRAIN[:-1], str(folder)]) == 0
    return folder


def mepg(*argv):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mepg", *argv], env=env, **pipes)


@pytest.mark.parametrize("name", COMMANDS)
def test_twice(run, name):
    """In processes of their own: what the first one imports, the second may miss."""
    if name != "train":
        Path("run").symlink_to(run)
    argv = COMMANDS[name]
    for _ in range(2):
        process = mepg(*argv, "--json")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        json.loads(out)
    if name == "tune":  # and by its full name, in what is written down
        assert "Pendulum-v1" in json.loads(out)["study"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("show", "reproduce")])
def test_again_after_it_was_interrupted(run, name, number):
    """Somewhere between its first import and its end: what is there then is whole, or not there."""
    if name != "train":
        Path("run").symlink_to(run)
    process = mepg(*COMMANDS[name])
    wait_for(lambda: "numpy" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(number)
    process.communicate(timeout=300)
    again = mepg(*COMMANDS[name], "--json")
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    json.loads(out)
    assert not list(Path().glob(".*writing*")), "half a file"
