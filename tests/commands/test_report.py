"""mepg report."""

import json
import shutil

from mepg.cli import main


def test_a_page_its_files_and_what_was_left_out(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "runs" / "whole")
    shutil.copytree(finished, tmp_path / "runs" / "damaged")
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    assert main(["report", "runs", "--out", "pages/mine.html", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["page"], data["runs"]) == ("pages/mine.html", 1)
    (problem,) = data["problems"]
    assert problem["path"] == "runs/damaged"
    assert (tmp_path / "pages" / "mine.html").exists()
    assert all((tmp_path / file).exists() for file in data["files"])
    assert main(["report", "runs", "--out", "pages/mine.html"]) == 0
    out = capsys.readouterr().out
    assert "left out: runs/damaged" in out
    assert "pages/mine.html: 1 run; tables and figures in mine-files" in out


def test_nothing_to_report(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    for argv in ([], ["nowhere"]):
        assert main(["report", *argv]) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert not (tmp_path / "report.html").exists()


def test_the_long_form_and_a_baseline(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "runs")
    assert main(["report", "runs", "--long", "out/long.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["long"] == "out/long.csv"
    text = (tmp_path / "out" / "long.csv").read_text()
    assert text.startswith(",exp_name,env_name,seed,metric,env_step,value\n0,")
    (tmp_path / "theirs.csv").write_text(text.replace("me-ddpg", "crossq"))
    assert main(["report", "runs", "--baseline", "theirs.csv"]) == 0
    assert "crossq" in (tmp_path / "report.html").read_text()
    assert "theirs.csv" in (tmp_path / "report.html").read_text()


def test_a_baseline_that_cannot_be_drawn(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "runs")
    head = "exp,env,seed,metric,step,value\n"
    for text, reason in (
        (head + "sac,dog_run,0,avg_return,0,far\n", "theirs.csv, line 2, column value: 'far' is not a finite number"),
        (head + "sac,dog_run,0,avg_return,0,1\n", "theirs.csv is about dog_run, and the runs are about StubScaled-v0"),
    ):
        (tmp_path / "theirs.csv").write_text(text)
        assert main(["report", "runs", "--baseline", "theirs.csv", "--long", "long.csv"]) == 2
        captured = capsys.readouterr()
        assert reason in captured.err
        assert captured.err.count("\n") == 1
        assert not (tmp_path / "report.html").exists()
        assert not (tmp_path / "long.csv").exists()
