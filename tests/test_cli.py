"""Usage errors of the command line."""

import subprocess
import sys

import pytest

from mepg.cli import main


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
