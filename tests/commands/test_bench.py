"""mepg bench: what it is asked, and where its answer goes. What it measures is in tests/bench."""

import json

import pytest

from mepg.bench import measure
from mepg.cli import main


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["me-sacc"], "did you mean 'me-sac'?"),
        (["me-sac", "--rounds", "0"], "rounds must be in [1, 10^9], not 0"),
        (["--against", "torch"], "unknown library 'torch'"),
    ],
)
def test_bad_input_is_one_line(argv, says, capsys, tmp_path):
    assert main(["bench", *argv]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_some_algorithms_only(monkeypatch, capsys, tmp_path):
    asked = []

    def measured(names, rounds, watch):
        asked.append((list(names), rounds))
        watch("updates", 0, rounds)
        row = {"mflop": 1.0, "milliseconds": 2.0, "multiplications_milliseconds": 1.0, "ratio": 2.0}
        return {name: {**row, "ratio_of_minima": 2.0, "relative_to_me_sac": 1.0} for name in names}

    monkeypatch.setattr(measure, "measure_updates", measured)
    assert main(["bench", "ddpg", "me-sac", "--rounds", "3", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out).keys() == {"ddpg", "me-sac"}
    assert asked == [(["ddpg", "me-sac"], 3)]
    assert "updates" in captured.err, "where there is no terminal, a line for each thing that is measured"
    assert not list(tmp_path.iterdir()), "only the whole of it leaves files"
