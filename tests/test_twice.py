"""A command said twice, and said again after it was interrupted: the second time ends as well as the first."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mepg.cli import main
from mepg.commands import commands
from tests.conftest import all_but_slow
from tests.run.processes import PATH, begun_with, wait_for

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
    "export": ["export", "run", "--numpy", "numpy", "--c", "policy.h", "--card", "card.md"],
    "film": ["eval", "run", "--episodes", "1", "--video", "film.gif"],
    "bench": ["bench", "me-ddpg", "--rounds", "1"],
    "tune": [*TUNE, "--space", "critic_lr=1e-4:1e-3:log"],
    "verify": ["verify", "run", "--steps", "40"],
}
ONLY_LOOK = ("list", "show", "params", "dry run", "reproduce", "bench", "verify")
WRITE = [name for name in COMMANDS if name not in ONLY_LOOK or name == "reproduce"]
SAVE = {name for name, command in commands().items() if getattr(command, "SAVES", False)}
COMPUTE = {name for name, command in commands().items() if getattr(command, "COMPUTES", False)}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([*TRAIN[:-1], str(folder)]) == 0
    return folder


# Notes at the end of a command whether JAX was started in it, and whether signals have a stack of their own there.
NOTES = """
import atexit, ctypes, json, os, pathlib, sys

class Stack(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))

def note():
    stack, computing = Stack(), sys.modules.get("mepg.jax_defaults")
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    started = computing is not None and computing.start_jax.cache_info().currsize == 1
    said = {"jax": started, "stack": not stack.flags & 2}
    pathlib.Path(os.environ["NOTES"]).write_text(json.dumps(said))

def noted_exit(status, leave=os._exit):
    note()
    leave(status)

if sys.orig_argv[1:3] == ["-m", "mepg"]:
    atexit.register(note)
    os._exit = noted_exit
"""


def mepg(*argv, **variables):
    env = {**os.environ, "PYTHONPATH": PATH, **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mepg", *argv], env=env, **pipes)


def test_every_command_is_here():
    lacking = commands().keys() - {argv[0] for argv in COMMANDS.values()}
    assert not lacking, f"add a line for each of these commands to COMMANDS, tests/test_twice.py: {sorted(lacking)}"
    unknown = {argv[0] for argv in COMMANDS.values()} - commands().keys()
    assert not unknown, f"COMMANDS in tests/test_twice.py has commands that are gone: {sorted(unknown)}"


@pytest.mark.parametrize("name", all_but_slow(COMMANDS, ["train", "eval", "export", "report", "tune"]))
def test_twice(run, name):
    """In processes of their own: what the first one imports, the second may miss. Once is enough where nothing is left.

    Whichever command computes with JAX starts with `signals_off_the_heap`.
    """
    if name != "train":
        Path("run").symlink_to(run)
    argv, notes = COMMANDS[name], Path("notes.json").absolute()
    for _ in range(1 if name in ONLY_LOOK else 2):
        process = mepg(*argv, "--json", **begun_with(NOTES, Path("site").absolute()), NOTES=str(notes))
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        json.loads(out)
        noted = json.loads(notes.read_text())
        assert noted["stack"] or not noted["jax"], "it starts JAX: say COMPUTES = True"
        if argv[0] in COMPUTE:
            assert noted == {"jax": True, "stack": True}
    if name == "tune":  # and by its full name, in what is written down
        assert "Pendulum-v1" in json.loads(out)["study"]


@pytest.mark.parametrize("name", all_but_slow(WRITE, ["plot", "export"]))
def test_three_at_the_same_time(run, name):
    """Each ends with its answer, and the files are whole."""
    if name != "train":
        shutil.copytree(run, "run")
    processes = [mepg(*COMMANDS[name], "--json") for _ in range(3)]
    ends = [(*process.communicate(timeout=300), process.returncode) for process in processes]
    refused = [err for _, err, status in ends if status]
    if name in SAVE:  # one works in the folder, and the others say so or come when it is finished
        assert all(err.count("\n") == 1 and " is in use: another " in err for err in refused), refused
    else:
        assert refused == []
    for out, _, status in ends:
        assert status or json.loads(out)
    assert not list(Path().rglob(".*writing*"))
    assert main([*COMMANDS[name], "--json"]) == 0


INTERRUPTED = [name for name in COMMANDS if name not in ("show", "reproduce")]


@pytest.mark.parametrize("number", all_but_slow([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
@pytest.mark.parametrize("name", all_but_slow(INTERRUPTED, [*SAVE, "export"]))
def test_again_after_it_was_interrupted(run, name, number, capsys):
    """Somewhere between its first import and its end: what is there then is whole, or not there."""
    if name != "train":
        Path("run").symlink_to(run)
    process = mepg(*COMMANDS[name])
    wait_for(lambda: "numpy" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert main([*COMMANDS[name], "--json"]) == 0
    json.loads(capsys.readouterr().out)
    assert not list(Path().glob(".*writing*")), "half a file"
