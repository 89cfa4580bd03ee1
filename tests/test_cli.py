"""Usage errors of the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mepg.cli import main
from tests.run.processes import begun_with


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["train", "me-sac"], "--env"),
        (["train", "me-sac", "--env", "X", "--steps", "many"], "'many' is not a whole number"),
        (["train", "me-sac", "--env", "X", "--steps", "1.5"], "'1.5' is not a whole number"),
        (["train", "me-sac", "--env", "X", "--steps", "1e400"], "'1e400' is not a whole number"),
        (["train", "me-sac", "--env", "X", "--out", ""], "a name is needed"),
        ([], "COMMAND"),
        (["fly"], "unknown command 'fly'"),
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
    ],
)
def test_usage_errors_of_the_parser_are_one_line_and_exit_with_2(argv, says, capsys):
    with pytest.raises(SystemExit) as status:
        main(argv)
    assert status.value.code == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_command_line_is_read_without_jax():
    code = "import sys; from mepg.cli import build_parser; build_parser(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


WINDOWS = "import sys; sys.platform = 'win32'"
NEEDS = "needs Linux or macOS; on Windows, use the Windows Subsystem for Linux: wsl --install"


@pytest.mark.parametrize("program", [["mepg"], ["-m", "mepg"], ["-m", "mepg.cli"], ["mepg", "train", "me-sac"]])
def test_on_windows_the_program_says_in_one_line_what_it_needs(program, tmp_path):
    environment = os.environ | begun_with(WINDOWS, tmp_path / "windows")
    script = [str(Path(sys.executable).with_name("mepg"))] if program[0] == "mepg" else []
    argv = [sys.executable, *script, *(program[1:] if script else program)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"mepg: {NEEDS}\n")


def test_on_windows_the_package_is_not_imported(tmp_path):
    environment = os.environ | begun_with(WINDOWS, tmp_path / "windows")
    done = subprocess.run([sys.executable, "-c", "import mepg"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: mepg {NEEDS}"
