"""Standard output carries the answer and nothing else; and whatever becomes of it, the work goes on."""

import errno
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import all_but_slow
from tests.run.processes import PATH

TINY = ["--set", "warmup=20", "--set", "hidden=8,8", "--set", "batch_size=8", "--eval-episodes", "1", "--log", "csv"]
NOISY = "tests.run.noisy:Noisy"
TRAIN = ["train", "me-sac", "--env", NOISY, "--steps", "40", "--eval-every", "20", *TINY]
TUNE = ["tune", "me-sac", "--env", NOISY, "--trials", "1", "--seeds", "1", "--steps", "40", *TINY[:-2]]
MEPG = [sys.executable, "-m", "mepg"]


def shell(command, cwd, **variables):
    """A command line with redirections, in which "$@" is mepg with its arguments."""
    env = {**os.environ, "PYTHONPATH": PATH, **variables}

    def call(*argv):
        return subprocess.run(
            ["bash", "-c", command, "bash", *MEPG, *argv],
            cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    done = shell('"$@"', folder)(*TRAIN, "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] is True
    assert done.stdout.count("\n") == 1
    assert "noise: imported" in done.stderr
    return folder / "run"


def commands(run):
    """Every command that ends within seconds, with what it says where its output can be read."""
    return {
        "train": [*TRAIN, "--out", str(run)],
        "eval": ["eval", str(run), "--episodes", "1", "--env", NOISY],
        "inspect": ["inspect", str(run), "--episodes", "1", "--env", NOISY],
        "export": ["export", str(run), "--numpy", "numpy", "--card", "card.md", "--env", NOISY],
        "params": ["params", "--env", NOISY],
        "list": ["list", str(run)],
        "show": ["show", "me-sac"],
        "plot": ["plot", str(run)],
        "report": ["report", str(run)],
        "reproduce": ["reproduce", "table10"],
        "tune": [*TUNE, "--space", "critic_lr=1e-4:1e-3:log"],
        "help": ["--help"],
    }


NAMES = list(commands("run"))
# All answers are printed in one place: one command that computes, one that does not, and argparse stand for the others.
MANY = all_but_slow(NAMES, ["eval", "list", "help"])


# What each command prints where nobody makes noise: tests/test_twice.py.
@pytest.mark.parametrize("name", all_but_slow(NAMES[:-1], ["eval", "tune"]))
def test_json_is_all_that_is_on_standard_output(run, name, tmp_path):
    done = shell('"$@"', tmp_path)(*commands(run)[name], "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("name", MANY)
def test_closed_streams(run, name, tmp_path):
    done = shell('"$@" <&- >&- 2>&-', tmp_path)(*commands(run)[name])
    assert done.returncode == 0
    assert not list(tmp_path.glob("core*"))


@pytest.mark.parametrize("name", MANY)
def test_a_full_disk_behind_standard_output(run, name, tmp_path):
    done = shell('"$@" >/dev/full', tmp_path)(*commands(run)[name])
    assert done.returncode == 1
    assert done.stderr == f"mepg: standard output cannot be written: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("name", MANY)
def test_a_reader_that_goes_away(run, name, tmp_path):
    done = shell('"$@" | head -1 >/dev/null; exit ${PIPESTATUS[0]}', tmp_path)(*commands(run)[name])
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr


@pytest.mark.parametrize(
    ("redirection", "status"),
    [("| head -1", 0), (">/dev/full 2>/dev/full", 1)]
    + [pytest.param(each, 0, marks=pytest.mark.slow) for each in ("2>&1 | true", ">&- 2>&-")],
)
def test_a_run_goes_on_to_its_end_whatever_becomes_of_its_output(redirection, status, tmp_path):
    done = shell(f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}', tmp_path)(*TRAIN, "--out", "run")
    assert done.returncode == status
    assert done.stderr == "" or "Traceback" not in done.stderr
    assert (tmp_path / "run" / "result.json").exists()
    assert (tmp_path / "run" / "curve.png").exists()


NO_UTF8 = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "variables", all_but_slow([{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, NO_UTF8], [NO_UTF8])
)
def test_letters_that_the_terminal_lacks(run, variables, tmp_path):
    (tmp_path / "été").mkdir()
    (tmp_path / "été" / "run").symlink_to(run)
    for argv in (["list", "été"], ["plot", "été", "--out", "été/ç.png"], ["list", "nowhere-é"], ["eval", "nowhere-é"]):
        done = shell('"$@"', tmp_path, **variables)(*argv)
        assert done.returncode == (2 if "nowhere-é" in argv else 0), done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "été" / "ç.png").exists()
