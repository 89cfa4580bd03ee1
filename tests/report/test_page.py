"""The page as text, and the files beside it."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.paper.experiments import jobs, select
from mepg.report.figures import make_curves, smooth
from mepg.report.page import write_report
from mepg.report.runs import collect
from mepg.run.folder import Folder
from mepg.run.inspection import LEVELS, Inspection, Noise, Trace, write_inspection

from .by_hand import make, write_run
from .conftest import HOPPER


class Tags(HTMLParser):
    """Every tag, and the text in and around them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="session")
def html(report):
    return report.page.read_text(encoding="utf-8")


def embedded(html):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1]
    assert not set("<>&") & set(text)
    return json.loads(text)


def test_what_was_read_is_said(report, html):
    assert report.runs == 12
    (problem,) = report.problems
    assert problem.path.name == "damaged"
    text = " ".join(Tags(html).text.split())
    assert "12 runs, 9 finished" in text
    assert "damaged run" in text


def test_the_plan_and_what_is_missing_are_marked(html):
    text = Tags(html).text
    assert "not the paper's plan: smoke" in text
    assert "300 steps instead of 1,000,000, 2 seeds instead of 5" in text
    assert "1 of 2 seeds" in text
    assert "8 of 72 runs" in text  # of Table 1: 4 of ME-SAC, and 2 each of SAC and TD3
    assert "the paper's plan</span>" not in html.replace("not the paper's plan", "")


def test_tables_of_the_paper_and_own_runs(html):
    text = Tags(html).text
    for title in ("Table 1: Returns", "Table 3: Run time", "Table 4: Parameters", "Table 10: Parameters"):
        assert title in text
    assert "paper 2,533 ± 106" in text
    assert "Other runs" in text
    own = html[html.index('id="own"') : html.index('id="reading"')]
    assert "<small>paper" not in own


def test_text_from_runs_is_never_markup(html):
    page = Tags(html)
    assert page.tags.count("script") == 2  # ours: the data and the program
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "document.title='owned'" in page.text  # shown as what it is
    assert any("owned" in panel["env"] for panels in embedded(html) for panel in panels)


def test_the_page_is_alone_in_the_world(html):
    links = [value for name, value in Tags(html).attributes if name in ("src", "href", "srcset", "action")]
    assert not [link for link in links if not link.startswith(("#", "report-files/"))]
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "@import" not in html
    assert "url(" not in html


def test_links_lead_to_files_that_are_there(report, html):
    links = {value for name, value in Tags(html).attributes if name == "href" and not value.startswith("#")}
    assert links == {f"report-files/{path.name}" for path in report.files}
    for path in report.files:
        assert path.stat().st_size > 0
        assert path.suffix in (".csv", ".md", ".png", ".svg")


def test_figures_are_pictures(report):
    kinds = {path.name: path.read_bytes()[:200] for path in report.files}
    assert kinds["figure2-smoke.png"].startswith(b"\x89PNG")
    assert b"<?xml" in kinds["figure2-smoke.svg"]
    assert "own-curves.svg" in kinds


def test_tables_beside_the_page(report):
    (path,) = [path for path in report.files if path.name == "table1-smoke.csv"]
    found = {(line["row"], line["env"]): line["found"] for line in csv.DictReader(path.read_text().splitlines())}
    assert (found["ME-SAC", HOPPER], found["SAC", HOPPER], found["TD3", HOPPER]) == ("2", "1", "1")


def test_nothing_half_written_is_left(report):
    assert not [path for path in report.page.parent.rglob("*") if path.name.startswith(".")]


def test_the_same_runs_give_the_same_page(report, html, tmp_path):
    folder = report.page.parent.parent / "results"
    again = write_report([folder], tmp_path / "report.html")
    assert again.page.read_text(encoding="utf-8") == html
    assert {path.name: path.read_bytes() for path in again.files} == {
        path.name: path.read_bytes() for path in report.files
    }


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


def test_where_a_page_cannot_be_written(tmp_path):
    write_run(tmp_path / "run", make())
    with pytest.raises(UsageError, match="is a folder"):
        write_report([tmp_path], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_report([tmp_path], tmp_path / "file" / "report.html")


def test_smoothing_by_hand():
    assert smooth(np.array([1.0, 3.0, 5.0, 7.0]), window=2).tolist() == [1, 2, 4, 6]
    assert smooth(np.arange(20.0))[-1] == np.arange(10, 20).mean()


def test_curves_of_runs_that_got_differently_far(tmp_path):
    write_run(tmp_path / "a", make(seed=0))
    write_run(tmp_path / "b", make(seed=1), finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    curves = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"])
    (curve,) = curves.panels[0].curves
    first, second = (run.means for run in runs)
    assert curve.runs == [2, 2, 1, 1]
    assert curve.mean[0] == pytest.approx((first[0] + second[0]) / 2)
    assert curve.half_std[0] == pytest.approx(abs(first[0] - second[0]) / 4)
    assert curve.mean[-1] == pytest.approx(first[-1]), "four evaluations are too few to be smoothed"


def inspection(**changes):
    trace = Trace([1.0, 2.0], [0.5, 0.5], [1.0, 3.0])
    found = Inspection(
        run="mine", algorithm="me-sac", env="Pendulum-v1", seed=0, step=10, episodes=1, steps=2, left_out=3, bias=-0.5,
        error=0.7, spread=0.5, coverage=[0.5] * len(LEVELS), first=trace, some=trace, noise=Noise([10], [2.0], [5.0]),
    )  # fmt: skip
    return found._replace(**changes)


def test_what_was_inspected_is_shown_and_what_is_damaged_is_named(tmp_path):
    for seed, changes in enumerate(({}, {"run": "<b>", "algorithm": "<img src=x>", "coverage": None}, {})):
        folder = write_run(tmp_path / f"run{seed}", make(seed=seed))
        write_inspection(Folder(folder), inspection(**changes))
    (tmp_path / "run2" / "inspect.json").write_text('{"format": 1, "bias": "<script>"}')
    report = write_report([tmp_path], tmp_path / "page.html")
    page = Tags(report.page.read_text(encoding="utf-8"))
    assert page.tags.count("img") == 2
    assert all(value.startswith("data:image/png;base64,") for name, value in page.attributes if name == "src")
    assert page.tags.count("script") == 2
    assert "2.5" in page.text  # two masks over one
    assert "3 left out as too near to a cut" in page.text
    (problem,) = report.problems
    assert "mepg inspect writes it anew" in problem.reason
    assert report.runs == 3
    assert {path.name for path in report.files} >= {"inside-1.png", "inside-2.png"}
