"""mepg eval."""

import json

import pytest

from mepg.cli import main


def test_eval(finished, capsys):
    assert main(["eval", str(finished), "--episodes", "3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["returns"]) == 3
    assert data["lengths"] == [50, 50, 50]
    assert main(["eval", str(finished), "--episodes", "3"]) == 0
    assert f"mean return {data['mean_reward']:,.2f}" in capsys.readouterr().out


def test_eval_of_a_damaged_policy(finished, tmp_path, capsys):
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "run.json").write_bytes((finished / "run.json").read_bytes())
    (folder / "policy.safetensors").write_bytes((finished / "policy.safetensors").read_bytes()[:-100])
    assert main(["eval", str(folder)]) == 2
    assert "damaged policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [(["nowhere"], "nowhere does not exist"), ([".", "--episodes", "0"], "episodes must be in [1, 10^9]")],
)
def test_bad_input_is_one_line(argv, says, capsys):
    assert main(["eval", *argv]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
