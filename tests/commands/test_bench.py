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
        (["--race", "sbx-sacc"], "unknown contestant 'sbx-sacc'; did you mean 'sbx-sac'?"),
        (["--race", "--envs", "Pendulum"], "unknown task of the race 'Pendulum'; did you mean 'Pendulum-v1'?"),
        (["--race", "--seeds", "x"], "'x' is not a list of seeds"),
        (["--race", "--seeds", "99999999999"], "seed must be in [0, 4294967295], not 99999999999"),
        (["--race", "--against", "torch"], "unknown library 'torch'"),
        # What would have no effect.
        (["--race", "--rounds", "3"], "--rounds would have no effect: a race has none"),
        (["--seeds", "0"], "--seeds would have no effect: only a race has them: add --race"),
        (["--envs", "Pendulum-v1"], "--envs would have no effect: only a race"),
        (["me-sac", "--envs", "Pendulum-v1"], "--envs would have no effect: the updates of single algorithms"),
        (["me-sac", "--against", "sb3"], "--against would have no effect"),
        (["me-sac", "--out", "here"], "--out would have no effect"),
    ],
)
def test_bad_input_is_one_line(argv, says, capsys, tmp_path):
    try:
        status = main(["bench", *argv])
    except SystemExit as ended:  # argparse's
        status = ended.code
    assert status == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_some_algorithms_only(monkeypatch, capsys, tmp_path):
    asked = []

    def measured(self, names):
        asked.append((list(names), self._rounds))
        self._progress("updates", 0, self._rounds)
        row = {"mflop": 1.0, "milliseconds": 2.0, "multiplications_milliseconds": 1.0, "ratio": 2.0}
        return {name: {**row, "ratio_of_minima": 2.0, "relative_to_me_sac": 1.0} for name in names}

    monkeypatch.setattr(measure.Benchmark, "updates_of", measured)
    assert main(["bench", "ddpg", "me-sac", "--rounds", "3", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out).keys() == {"ddpg", "me-sac"}
    assert asked == [(["ddpg", "me-sac"], 3)]
    assert "updates" in captured.err, "where there is no terminal, a line for each thing that is measured"
    assert not list(tmp_path.iterdir()), "only the whole of it leaves files"


RACE = ["bench", "--race", "me-sac", "sb3-sac", "--envs", "Pendulum-v1", "--seeds", "0-1"]


@pytest.fixture
def raced(monkeypatch):
    """The heats that were run, which write what they would."""
    from mepg.bench import race

    heats = []

    def run(wanted, folder, peers, watch):
        for heat in wanted:
            heats.append(heat)
            evaluations = [race.Evaluation(500 * i, 20.0 * i, -150.0) for i in (1, 2, 3)]
            watch(heat, evaluations)
            race._write(folder, heat, evaluations, None)
        return {}, {}

    monkeypatch.setattr(race, "run", run)
    return heats


def test_a_race_runs_what_is_missing_and_names_what_is_not_installed(raced, capsys, tmp_path):
    assert main(RACE) == 0
    captured = capsys.readouterr()
    assert [(heat.contestant, heat.seed) for heat in raced] == [("me-sac", 0), ("me-sac", 1)]
    assert "| me-sac | 1.0 (1.0 to 1.0) |" in captured.out
    assert "sb3 is not installed, and was left out: add --against sb3" in captured.out
    assert "2 of 2: me-sac on Pendulum-v1, seed 1" in captured.err
    folder = tmp_path / "results" / "race"
    assert {path.name for path in folder.iterdir() if path.is_file()} == {".lock", "race.md", "race.png", "race.svg"}
    assert main([*RACE, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(raced) == 2, "who is done is not run again"
    assert [heat["core_seconds"] for heat in data["heats"]] == [60.0, 60.0]
    assert data["not_installed"] == ["sb3"]


def test_a_damaged_heat_is_named_and_not_run_over(raced, capsys, tmp_path):
    assert main(RACE) == 0
    (tmp_path / "results" / "race" / "Pendulum-v1" / "me-sac_seed0.json").write_text("{")
    capsys.readouterr()
    assert main(RACE) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "cannot be used" in line]
    assert "me-sac_seed0.json" in line
    assert len(raced) == 2
