"""mepg list."""

import json

from mepg.algos import RECOMMENDED, algorithms
from mepg.cli import main
from mepg.paper.tasks import PAPER_TASKS


def test_list_of_runs(finished, tmp_path, capsys):
    early = tmp_path / "early"
    early.mkdir()
    (early / "run.json").write_bytes((finished / "run.json").read_bytes())
    assert main(["list", str(early), str(finished)]) == 0  # the same run, once only
    assert "unfinished" in (out := capsys.readouterr().out)
    assert f"left out: {finished} the same run as {early}" in out
    assert main(["list", str(finished), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["run"] == str(finished)
    assert (run["state"], run["seed"], type(run["return"])) == ("finished", 0, float)
    assert main(["list", "nowhere"]) == 2
    assert capsys.readouterr().err == "mepg: nowhere is not a folder\n"


def test_list_of_what_there_is(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in [*algorithms(), *PAPER_TASKS])
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["algorithms"]["me-sac-r"]["parent"] == "me-sac"
    for kind, choice in RECOMMENDED.items():
        assert listed["recommended"][kind] == choice._asdict()
        assert f"\n* {choice.algorithm} " in text
