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
