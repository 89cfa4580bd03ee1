"""The paper's part of a page, and when there is none."""

import csv
import json
import re
from pathlib import Path

import pytest

from mepg.errors import UsageError
from mepg.paper.experiments import jobs, select
from mepg.paper.others import METHODS
from mepg.paper.report import write_report
from mepg.paper.tables import paper_table
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


def test_tables_1_and_2_at_another_length_beside_the_papers(tmp_path):
    """Made-up runs of 200,000 steps: length, both measures, intervals and probabilities, on the page and in files."""
    for table, only in (("table1", ["me-sac", "sac"]), ("table2", ["me-sac", "me-sac-du"])):
        selection = select(table, "desk", only=only, envs=[HOPPER, "AntBulletEnv-v0"], steps=200_000)
        for job in jobs(selection, tmp_path / "runs"):
            if not job.folder.exists():
                level = {"me-sac": 2000.0, "sac": 500.0}.get(job.config.algorithm, 1000.0)
                write_run(job.folder, job.config, level=level)
    report = write_report([tmp_path / "runs"], tmp_path / "report.html")
    text = " ".join(Tags(report.page.read_text()).text.split())
    assert text.count("ours after 200,000 steps, the paper's after 1,000,000") >= 2
    assert "ME-SAC over SAC1.001.00 to 1.002" in text
    assert "ME-SAC over ME-SAC-DU1.001.00 to 1.002" in text
    for name, other in (("table1", "SAC"), ("table2", "ME-SAC-DU")):
        content = (tmp_path / "report-files" / f"{name}-desk-200000.csv").read_text()
        lines = {(line["row"], line["env"], line["unit"]): line for line in csv.DictReader(content.splitlines())}
        cell = lines["ME-SAC", HOPPER, "return"]
        assert (cell["steps"], cell["published_steps"], cell["found"], cell["wanted"]) == (
            "200000",
            "1000000",
            "3",
            "3",
        )
        numbers = ("published", "ours", "std", "final", "final_std", "iqm", "low", "high")
        assert all(float(cell[number]) for number in numbers)
        assert float(cell["low"]) <= float(cell["iqm"]) <= float(cell["high"])
        assert lines[f"ME-SAC over {other}", "Ant+Hopper", "probability"]["ours"] == "1"
        assert lines["ME-SAC", "Ant+Hopper", "iqm"]["iqm"]
        markdown = (tmp_path / "report-files" / f"{name}-desk-200000.md").read_text()
        assert "| ours after 200,000 steps, the paper's after 1,000,000 | Ant |" in markdown
        assert f"| ME-SAC over {other} | 1.00 [1.00, 1.00] | 2 |" in markdown
        assert re.search(r"last [\d,]+ ± \d+", markdown)


def test_a_table_of_the_papers_own_length_says_nothing_of_lengths():
    assert paper_table(select("table1", "paper"), ()).scale == ""
    assert paper_table(select("table4"), ()).scale == ""


def test_beyond_the_paper_nothing_of_the_paper_stands_there(tmp_path):
    """Nor is a run missed of an algorithm that cannot use a task's actions."""
    for name, row, env in (("any-dqn", "me-dqn", "CartPole-v1"), ("any-crossq", "me-crossq-do", HOPPER)):
        for job in jobs(select(name, "smoke", only=[row], envs=[env], seeds=[0]), tmp_path / "runs"):
            write_run(job.folder, job.config)
    report = write_report([tmp_path / "runs"], tmp_path / "report.html")
    text = " ".join(Tags(report.page.read_text()).text.split())
    beyond = text[text.rindex("Beyond the paper") :]
    assert "2 of 24 runs" in beyond, "me-dqn with one mask and with one side only"
    assert "1 of 30 runs" in beyond, "me-crossq-do"
    assert "None of this is in the paper. Runs have 300 steps, with warmup=100" in beyond
    assert "the paper's after" not in beyond
    assert "Table 10" not in text
    (cell,) = re.findall(r"ME-CROSSQ-DO(.*?)CROSSQ", beyond)
    assert cell.count("no run") == 2, "on HalfCheetah and Walker2D"


def test_mujoco_stands_beside_published_curves(tmp_path):
    """Thin, at the same number of steps, over steps and over core-hours; and what they are is said."""
    rows = [f"{step},100,{step / 100}" for step in range(5_000, 300_001, 5_000)]
    for job in jobs(select("mujoco", "desk", only=["sac", "me-sac"], envs=["Hopper-v5"]), tmp_path / "runs"):
        write_run(job.folder, job.config, rows=rows)
    report = write_report([tmp_path / "runs"], tmp_path / "report.html")
    files = {path.name for path in report.files}
    assert {f"mujoco-desk{hours}.{kind}" for hours in ("", "-hours") for kind in ("png", "svg")} <= files
    html = report.page.read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    (panel,) = json.loads(data)[0]
    assert {curve["label"]: curve["thin"] for curve in panel["curves"]} == {
        "SAC": False, "ME-SAC": False, **dict.fromkeys((f"{name}, v4" for name in METHODS), True)
    }  # fmt: skip
    assert {max(curve["steps"]) for curve in panel["curves"]} == {300_000}
    assert all(curve["hours"] for curve in panel["curves"])
    text = " ".join(Tags(html).text.split())
    assert "v4 is not v5: our SAC on v5 beside their SAC on v4 shows how far they can be compared." in text
    assert "Their core-hours are an estimate" in text
    assert "ME-SAC over SAC" in text
    content = (tmp_path / "report-files" / "mujoco-desk.csv").read_text()
    lines = {(line["row"], line["env"]): line for line in csv.DictReader(content.splitlines())}
    theirs = lines["SimbaV2 UTD2, v4", "Hopper-v5"]
    assert float(theirs["final"]) > 0
    assert (theirs["ours"], theirs["wanted"]) == ("", "0")
