"""A setting of a run is one line in one file, and a command is one file: everything else finds them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mepg
from tests.commands.runs import TINY, train

SETTING = '    patience: int = option(3, "naps between two episodes", bound=COUNT)\n'
COMMAND = '''"""the length of a name"""

from mepg.commands import Answer


def add_arguments(parser):
    parser.add_argument("name")


def answer(arguments):
    arguments.say("counting")
    return Answer({"length": len(arguments.name)}, f"{arguments.name} has {len(arguments.name)} letters")
'''
TRAIN = ["train", "td3", "--env", "Pendulum-v1", "--steps", "30", "--log", "csv", *TINY]


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The package with one line and one file more; gives a function that runs Python with it."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(Path(mepg.__file__).parent, folder / "mepg", ignore=shutil.ignore_patterns("__pycache__"))
    config = folder / "mepg" / "training" / "config.py"
    before, threads, after = config.read_text().partition("    threads: int =")
    config.write_text(before + SETTING + threads + after)
    (folder / "mepg" / "commands" / "letters.py").write_text(COMMAND)

    def run(*argv, cwd=folder):
        env = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
        done = subprocess.run([sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def several(*commands, cwd):
        """In one process."""
        code = f"import sys; from mepg.cli import main; sys.exit(any([main(each) for each in {commands!r}]))"
        return run("-c", code, cwd=cwd)

    run.several = several
    assert run("-c", "import mepg; print(mepg.__file__)").strip() == str(folder / "mepg" / "__init__.py")
    return run


@pytest.mark.parametrize("command", ["train", "tune"])
def test_the_setting_is_a_flag(changed, command):
    assert "--patience N naps between two episodes (3)" in " ".join(changed("-m", "mepg", command, "--help").split())


def test_the_setting_is_part_of_a_run(changed, tmp_path):
    (tmp_path / "mine.json").write_text('{"algorithm": "td3", "env": "Pendulum-v1", "patience": 5}')
    changed.several(
        [*TRAIN, "--patience", "4", "--out", "run", "--json"],
        ["export", "run", "--card", "card.md"],
        [*TRAIN[:1], "--config", "mine.json", *TRAIN[4:], "--out", "other"],
        ["report", ".", "--out", "page.html"],
        cwd=tmp_path,
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["patience"] == 4
    card = (tmp_path / "card.md").read_text()
    assert "| naps between two episodes (`--patience`) | 4 |" in card
    assert " --patience 4" in card
    assert json.loads((tmp_path / "other" / "run.json").read_text())["config"]["patience"] == 5
    assert "patience=4" in (tmp_path / "page.html").read_text()


def test_the_setting_is_an_argument_in_python(changed):
    code = (
        "import inspect, mepg\n"
        "print(inspect.signature(mepg.ME_SAC).parameters['patience'])\n"
        "model = mepg.ME_SAC('MlpPolicy', 'Pendulum-v1', patience=5)\n"
        "print(model._learner.config.patience, model._learner.config.threads)\n"
        "try:\n"
        "    mepg.ME_SAC('MlpPolicy', 'Pendulum-v1', patience=0)\n"
        "except mepg.UsageError as error:\n"
        "    print(error)\n"
    )
    said = changed("-c", code).splitlines()
    assert said == ["patience: int = 3", "5 1", "patience must be in [1, 10^9], not 0"]


def test_runs_from_before_the_setting_are_the_same_runs(changed, tmp_path):
    """A default goes without saying, in a config and in a fingerprint."""
    folder = tmp_path / "before"
    assert train(*TRAIN[1:], "--out", str(folder)) == 0
    look = [["list", str(folder), "--json"], ["eval", str(folder), "--episodes", "1"], [*TRAIN, "--out", str(folder)]]
    out = changed.several(*look, cwd=tmp_path)
    (run,) = json.loads(out.partition("\n")[0])["runs"]
    assert run["state"] == "finished"
    assert "Already finished" in out


def test_the_command(changed):
    assert "letters the length of a name" in " ".join(changed("-m", "mepg", "--help").split())
    assert changed("-m", "mepg", "letters", "mask") == "counting\nmask has 4 letters\n"
    assert json.loads(changed("-m", "mepg", "letters", "mask", "--json")) == {"length": 4}
