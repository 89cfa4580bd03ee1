"""The page as text, and the files beside it."""

import csv
import json
import re

import pytest

from mepg.errors import UsageError
from mepg.paper.report import write_report
from mepg.run.inspection import write_inspection
from mepg.storage.folder import Folder

from .by_hand import Tags, make, make_inspection, write_run
from .conftest import HOPPER


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
    assert "Not drawn over core-hours: 6 runs without a complete record of processor time." in text


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


def test_where_a_page_cannot_be_written(tmp_path):
    write_run(tmp_path / "run", make())
    with pytest.raises(UsageError, match="is a folder"):
        write_report([tmp_path], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_report([tmp_path], tmp_path / "file" / "report.html")


def test_what_was_inspected_is_shown_and_what_is_damaged_is_named(tmp_path):
    strange = {"run": "<b>", "algorithm": "<img src=x>", "coverage": None}
    for number, changes in enumerate(({}, strange, {})):
        folder = write_run(tmp_path / f"run{number}", make(settings=[f"hidden={number + 1},8"]))
        write_inspection(Folder(folder), make_inspection(**changes))
    (tmp_path / "run2" / "inspect.json").write_text('{"format": 1, "bias": "<script>"}')
    report = write_report([tmp_path], tmp_path / "page.html")
    page = Tags(report.page.read_text(encoding="utf-8"))
    assert page.tags.count("img") == 2
    assert all(value.startswith("data:image/png;base64,") for name, value in page.attributes if name == "src")
    assert page.tags.count("script") == 2
    assert "2.5" in page.text  # two masks over one
    assert "3 left out as too near to a cut" in page.text
    (problem,) = report.problems
    assert "mepg inspect writes it again" in problem.reason
    assert report.runs == 3
    assert {path.name for path in report.files} >= {"inside-1.png", "inside-2.png"}


def test_of_several_seeds_all_are_counted_and_one_is_drawn(tmp_path):
    for seed in range(3):
        folder = write_run(tmp_path / f"run{seed}", make(seed=seed))
        write_inspection(Folder(folder), make_inspection(run=f"number-{seed}"))
    report = write_report([tmp_path], tmp_path / "page.html")
    page = Tags(report.page.read_text(encoding="utf-8"))
    assert page.tags.count("img") == 1
    assert all(f"number-{seed}" in page.text for seed in range(3))
    assert [path.name for path in report.files if path.name.startswith("inside")] == ["inside-1.png"]
