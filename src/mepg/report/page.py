"""One page about any number of runs: it needs no network, and beside it lie its tables and figures as files.

What comes from runs is text to be escaped, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jinja2
from markupsafe import Markup

import mepg
from mepg.errors import UsageError
from mepg.paper.experiments import EXPERIMENTS, PLANS, Selection, select
from mepg.paper.tables import (
    Cell,
    Improvement,
    Table,
    configs,
    divided_by_best,
    find_selections,
    group_variants,
    improvements,
    is_papers,
    own_tables,
    paper_table,
    printed_name,
    short_name,
    show,
    show_with_std,
    to_csv,
    to_markdown,
)
from mepg.report.figures import Curves, draw_curves, draw_heat_map, make_curves
from mepg.report.inside import draw_inspections, noise_ratio
from mepg.report.runs import Problem, Run, collect
from mepg.run.config import Config
from mepg.run.files import not_writable, write_whole
from mepg.run.folder import Folder
from mepg.run.inspection import LEVELS, Inspection, read_inspection
from mepg.words import many

SECTIONS = {
    "Returns": ("table1", "table6"),
    "Ablations": ("table2", "table8", "table9"),
    "The dropout rate p": ("table11", "table12"),
    "Run time": ("table3", "table7"),
    "Parameters": ("table4", "table10"),
}


class Report(NamedTuple):
    """What was written, and from what."""

    page: Path
    files: list[Path]  # beside the page: tables and figures
    runs: int
    problems: list[Problem]


class HeatMap(NamedTuple):
    """Returns over p, divided by the best of each environment."""

    title: str
    envs: tuple[str, ...]
    rows: dict[str, dict[str, float | None]]


class TableView(NamedTuple):
    """A table on the page."""

    table: Table
    file_name: str  # without its ending
    heat_maps: list[HeatMap]
    open: bool  # or folded, where there is little to see
    improvements: Sequence[Improvement] = ()


class CurvesView(NamedTuple):
    """A figure on the page."""

    curves: Curves
    plan: Plan | None
    open: bool


class InsideView(NamedTuple):
    """What `mepg inspect` found in a run."""

    run: str
    found: Inspection
    covered: dict[float, float]  # by the band's level
    noise_ratio: float | None
    picture: str  # base64


class Plan(NamedTuple):
    """How a plan stands to the paper's."""

    name: str
    is_papers: bool
    words: str
    progress: list[tuple[str, int, int]]  # experiment, runs found, runs wanted


def write_report(paths: Sequence[Path], out: Path, experiments: Iterable[str] = ()) -> Report:
    """The page at `out`, and its tables and figures in a folder beside it.

    The paper's own tables are there where runs of its experiments are. Of those that need none, which count
    parameters, also those of the `experiments`. A page with nothing on it is refused: one that says more may be there.
    """
    runs, problems = collect(paths)
    selections = find_selections(runs)
    counted = SECTIONS["Parameters"] if selections else set(SECTIONS["Parameters"]) & set(experiments)
    if not runs and not counted:
        where = "; ".join(f"{problem.path} {problem.reason}" for problem in problems[:3])
        raise UsageError(f"there is no run to report: {where}{'; ...' * (len(problems) > 3)}")
    plans = {name: _plan(name, group, runs) for name, group in _by_plan(selections).items()}
    taken = _configs(selections)
    own = [run for run in runs if run.config not in taken]

    views = _table_views(selections, runs, sorted(counted))
    own_views = [TableView(table, table.name, [], True) for table in own_tables(own)]
    curves = _paper_curves(selections, plans, runs)
    own_curves = _own_curves(own)
    inside, unreadable = _inside_views(runs)
    problems += unreadable

    files: dict[str, bytes] = {}
    for view in [*views, *own_views]:
        files[f"{view.file_name}.csv"] = to_csv(view.table).encode("utf-8", "replace")
        files[f"{view.file_name}.md"] = to_markdown(view.table).encode("utf-8", "replace")
        for heat_map in view.heat_maps[:1]:  # ours
            for kind, picture in draw_heat_map(view.table.title, heat_map.envs, heat_map.rows).items():
                files[f"{view.file_name}-heat-map.{kind}"] = picture
    for curve_view in [*curves, *own_curves]:
        for kind, picture in draw_curves(curve_view.curves).items():
            files[f"{curve_view.curves.name}.{kind}"] = picture
    for number, inside_view in enumerate(inside, start=1):
        files[f"inside-{number}.png"] = base64.b64decode(inside_view.picture)

    folder = out.with_name(f"{out.stem}-files")
    html = _render(
        files_link=quote(folder.name),
        overview=_overview(runs, problems),
        plans=list(plans.values()),
        curves=curves,
        sections={
            title: [view for name in names for view in views if view.table.name == name]
            for title, names in SECTIONS.items()
        },
        own_curves=own_curves,
        own_tables=own_views,
        inside=inside,
        problems=[(_text(problem.path), problem.reason) for problem in problems],
        unfinished=[
            (_text(run.path), f"{run.steps[-1]:,}" if len(run.steps) else "0", many(run.config.steps, "step"))
            for run in runs
            if not run.finished
        ],
        data=_embedded([*curves, *own_curves]),
    )
    written = _write(out, folder, html.encode("utf-8", "replace"), files)
    return Report(out, written, len(runs), problems)


def _write(out: Path, folder: Path, html: bytes, files: dict[str, bytes]) -> list[Path]:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; the report needs a file's name, such as report.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
        write_whole(out, html)  # last: a page never speaks of files that are not there
    except OSError as error:
        raise not_writable(out.parent, error) from None
    return [folder / name for name in files]


def _table_views(selections: Sequence[Selection], runs: Sequence[Run], counted: Sequence[str]) -> list[TableView]:
    """Folded are tables with one row of runs or none, and those whose runs stand in one above."""
    there = {run.config for run in runs}
    shown: dict[tuple[str, str], set[Config]] = {}  # by section and plan
    views = []
    for selection in selections:
        if selection.experiment.published is None:
            continue
        table = paper_table(selection, runs)
        section = next(title for title, names in SECTIONS.items() if table.name in names)
        before, here = shown.setdefault((section, selection.folder_name), set()), _configs([selection]) & there
        rows = sum(any(cell.found for cell in line.cells) for line in table.lines)
        better = improvements(selection, runs) if section == "Returns" else []
        unfold = rows > 1 and not here <= before
        views.append(TableView(table, f"{table.name}-{table.plan}", _heat_maps(table), unfold, better))
        before |= here
    counts = [paper_table(select(name, "paper"), ()) for name in counted]
    return views + [TableView(table, table.name, [], table.name == "table10") for table in counts]


def _heat_maps(table: Table) -> list[HeatMap]:
    if table.name not in SECTIONS["The dropout rate p"]:
        return []
    paper = divided_by_best(table, of_paper=True)
    return [HeatMap("Ours", table.envs, divided_by_best(table)), HeatMap("The paper", table.envs, paper)]


def _by_plan(selections: Sequence[Selection]) -> dict[str, list[Selection]]:
    groups: dict[str, list[Selection]] = {}
    for selection in selections:
        groups.setdefault(selection.folder_name, []).append(selection)
    return groups


def _plan(name: str, selections: Sequence[Selection], runs: Sequence[Run]) -> Plan:
    plan, paper = selections[0].plan, PLANS["paper"]
    words = "as long as the paper's runs"
    if not is_papers(plan):
        words = f"{many(plan.steps, 'step')} instead of {paper.steps:,}, "
        words += f"{many(plan.seeds, 'seed')} instead of {paper.seeds}"
        words += f", with {', '.join(plan.settings)}" if plan.settings else ""
    finished = {run.config for run in runs if run.finished}
    progress = []
    for selection in selections:
        wanted = _configs([selection])
        progress.append(
            (f"{printed_name(selection.name)}: {selection.experiment.title}", len(wanted & finished), len(wanted))
        )
    return Plan(name, is_papers(plan), words, progress)


def _configs(selections: Iterable[Selection]) -> set[Config]:
    return {
        config
        for selection in selections
        for row in selection.experiment.rows
        for env in selection.experiment.envs
        for config in configs(selection, row, env)
    }


def _paper_curves(selections: Sequence[Selection], plans: dict[str, Plan], runs: Sequence[Run]) -> list[CurvesView]:
    """The paper's figures, except those that would repeat one above; then the rows that are in none of them."""
    by_config = {run.config: run for run in runs}
    views: list[CurvesView] = []
    for folder_name, group in _by_plan(selections).items():
        shown: set[Config] = set()
        figures = [selection for selection in group if selection.experiment.shown_as == "curves"]
        tables = [selection for selection in group if selection.experiment.shown_as == "table"]
        for selection in figures:
            rows = _rows(selection, by_config)
            if not _members(rows) <= shown:
                shown |= _members(rows)
                views.append(_curves_view(selection, selection.experiment.title, rows, plans[folder_name]))
        rest: dict[str, list[Run]] = {}
        for selection in tables:
            for label, members in _rows(selection, by_config).items():
                if not _members({label: members}) <= shown:
                    rest.setdefault(label, []).extend(run for run in members if run not in rest.get(label, []))
        if rest:
            other = tables[0]._replace(name="others", experiment=EXPERIMENTS["table6"])
            views.append(_curves_view(other, "Other rows of the paper's tables", rest, plans[folder_name]))
    return [view for view in views if view.curves.panels]


def _rows(selection: Selection, by_config: dict[Config, Run]) -> dict[str, list[Run]]:
    return {
        row.label: [
            by_config[config]
            for env in selection.experiment.envs
            for config in configs(selection, row, env)
            if config in by_config
        ]
        for row in selection.experiment.rows
    }


def _members(rows: dict[str, list[Run]]) -> set[Config]:
    return {run.config for runs in rows.values() for run in runs}


def _curves_view(selection: Selection, title: str, rows: dict[str, list[Run]], plan: Plan) -> CurvesView:
    graded = any(row.dropout_p is not None for row in selection.experiment.rows)
    name = f"{selection.name}-{selection.folder_name}"
    if selection.name in EXPERIMENTS:
        title = f"{printed_name(selection.name)}: {title}"
    curves = make_curves(name, title, rows, envs=selection.experiment.envs, graded=graded)
    return CurvesView(curves, plan, len(curves.legend) > 1 or selection.name == "figure2")


def curves_of(runs: Sequence[Run]) -> Curves:
    """The learning curves of any runs: one for each variant and environment, over its seeds."""
    rows, _ = group_variants(runs)
    return make_curves("own-curves", "Learning curves", rows, envs=sorted({run.config.env for run in runs}))


def _own_curves(runs: Sequence[Run]) -> list[CurvesView]:
    curves = curves_of(runs)
    return [CurvesView(curves, None, True)] if curves.panels else []


def _inside_views(runs: Sequence[Run]) -> tuple[list[InsideView], list[Problem]]:
    """Drawn anew from the numbers in each run's inspect.json, for the runs that have one."""
    views, problems = [], []
    for run in runs:
        try:
            found = read_inspection(Folder(run.path))
        except UsageError as error:
            problems.append(Problem(run.path, str(error)))
            continue
        if found is not None:
            covered = dict(zip(LEVELS, found.coverage or (), strict=False))
            picture = base64.b64encode(draw_inspections([found])).decode()
            views.append(InsideView(_text(run.path), found, covered, noise_ratio(found), picture))
    return views, problems


def _overview(runs: Sequence[Run], problems: Sequence[Problem]) -> dict[str, Any]:
    versions: dict[str, Counter[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, Counter())[version] += 1
    hours = sum(run.seconds or 0 for run in runs) / 3600
    return {
        "runs": len(runs),
        "finished": sum(run.finished for run in runs),
        "unfinished": sum(not run.finished for run in runs),
        "problems": len(problems),
        "algorithms": len({run.config.algorithm for run in runs}),
        "envs": len({run.config.env for run in runs}),
        "hours": f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}",
        "versions": {
            name: ", ".join(
                version if len(seen) == 1 else f"{version} ({many(count, 'run')})" for version, count in seen.items()
            )
            for name, seen in versions.items()
        },
    }


def _embedded(views: Sequence[CurvesView]) -> Markup:
    """The curves for the script. Without `<`, nothing in there can end the element that it is in."""
    data = [
        [
            {
                "env": short_name(panel.env),
                "curves": [
                    {
                        "label": curve.label,
                        "colour": curve.colour,
                        "steps": curve.steps,
                        "mean": [float(f"{value:.6g}") for value in curve.mean],
                        "half": [float(f"{value:.4g}") for value in curve.half_std],
                        "runs": curve.runs,
                    }
                    for curve in panel.curves
                ],
            }
            for panel in view.curves.panels
        ]
        for view in views
    ]
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _render(**content: Any) -> str:
    loader = jinja2.PackageLoader("mepg.report", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "version": mepg.__version__,
        "many": many,
        "printed_name": printed_name,
        "short_name": short_name,
        "show": show,
        "show_with_std": show_with_std,
        "difference": _difference,
        "tint": _tint,
    }
    script = _own_file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        style=Markup(_own_file("page.css")), script=Markup(script), script_digest=digest, **content
    )


def _own_file(name: str) -> str:
    return resources.files("mepg.report").joinpath("templates", name).read_text(encoding="utf-8")


def _difference(cell: Cell, table: Table) -> str:
    if cell.difference is None or cell.published is None:
        return ""
    if table.unit == "parameters" and cell.difference == 0:
        return "same"
    return show(cell.difference, table.unit, signed=True, like=cell.published.value)


def _tint(share: float) -> str:
    """How strong a heat map's cell is: most values are near 1, and differences there should be seen."""
    return f"{max(0.0, min(1.0, (share - 0.3) / 0.7)) ** 1.5:.2f}"


def _text(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
