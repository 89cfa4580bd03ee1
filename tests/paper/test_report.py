"""The paper's part of a page, and when there is none."""

import re
from pathlib import Path

import pytest

from mepg.errors import UsageError
from mepg.paper.experiments import jobs, select
from mepg.paper.report import write_report
from tests.report.by_hand import Tags, make, write_run

HOPPER = "HopperBulletEnv-v0"


def test_nothing_is_not_written_over_something(tmp_path):
    (tmp_path / "out.html").write_text("last month's")
    with pytest.raises(UsageError, match=f"no run to report: {tmp_path} holds no run; nowhere is not a folder"):
        write_report([tmp_path, Path("nowhere")], tmp_path / "out.html", ["table1"])
    assert (tmp_path / "out.html").read_text() == "last month's"
    assert not (tmp_path / "out-files").exists()


def test_parameters_need_no_runs(tmp_path):
    report = write_report([tmp_path], tmp_path / "out.html", ["table10"])
    assert report.runs == 0
    assert [problem.reason for problem in report.problems] == ["holds no run"]
    text = Tags(report.page.read_text()).text
    assert "Table 10: Parameters" in text
    assert "Table 4" not in text
    assert (tmp_path / "out-files" / "table10.csv").exists()


def test_a_report_of_ones_own_runs_begins_with_them(tmp_path):
    write_run(tmp_path / "runs" / "mine", make())
    page = write_report([tmp_path / "runs"], tmp_path / "out.html").page.read_text()
    assert page.index('<section id="own">') < page.index('<section id="overview">')
    text = Tags(page).text
    assert "1 run, 1 finished." in text
    assert "Table 4" not in text
    assert "what the paper" not in text


def test_heat_maps_are_divided_by_the_best(tmp_path):
    selection = select("table12", "smoke", envs=[HOPPER], seeds=[0])
    for i, job in enumerate(jobs(selection, tmp_path / "runs")):
        write_run(job.folder, job.config, level=2000.0 - 100 * i)
    report = write_report([tmp_path / "runs"], tmp_path / "report.html")
    html = report.page.read_text()
    (ours, papers) = re.findall(r'<table class="heat">.*?</table>', html, re.DOTALL)[-2:]
    assert max(map(float, re.findall(r">(\d\.\d\d)<", ours))) == 1
    assert len(re.findall(r">(\d\.\d\d)<", ours)) == 12
    assert len(re.findall(r">(\d\.\d\d)<", papers)) == 96
    assert "table12-smoke-heat-map.svg" in {path.name for path in report.files}
