"""The paper's part of a report: its tables and figures, where runs of its experiments are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, groupby
from pathlib import Path

from mepg.errors import UsageError
from mepg.paper.experiments import ALL_TASKS, BEYOND, Selection, select
from mepg.paper.tables import divided_by_best, find_selections, improvements, paper_table, runs_of, title_of
from mepg.report.cost import find_benchmark, in_words, with_hours
from mepg.report.figures import make_curves
from mepg.report.long import Series, beside, read_long, to_long
from mepg.report.page import (
    CurvesBlock,
    Page,
    PlanProgress,
    Report,
    Section,
    TableBlock,
    own_sections,
    write_file,
    write_page,
)
from mepg.report.runs import Run, collect
from mepg.training.config import Config

TABLES = {
    "Returns": ("table1", "table6"),
    "Ablations": ("table2", "table8", "table9"),
    "The dropout rate p": ("table11", "table12"),
    "Run time": ("table3", "table7"),
    "Parameters": ("table4", "table10"),
    "Beyond the paper": BEYOND,
}
CURVES_NOTE = (
    "Mean over seeds and half a standard deviation, each a moving average over a twentieth of the evaluations, ten at "
    "most: with the 200 evaluations of the paper's runs, that is how the paper draws them. "
    "Dashed where some seeds have not got so far. Point at a curve for its values; a name switches its curve off and "
    "on."
)
PROGRESS_NOTE = "{}. Such values are not the paper's, and not to be read as a success or a failure to reproduce it."
OWN_NOTE = "These belong to no plan of the paper, so nothing of the paper stands beside them."


def write_report(
    paths: Sequence[Path],
    out: Path,
    experiments: Collection[str] = (),
    *,
    long: Path | None = None,
    baselines: Sequence[Path] = (),
) -> Report:
    """A page about all runs in these folders: see `report/page.py`.

    The paper's own tables are there where runs of its experiments are. Of those that need none, which count
    parameters, also those of the `experiments`. A page with nothing on it is refused: one that says more may be there.
    `long` is where the runs' curves are written in the form of `report/long.py`, and `baselines` are files of that
    form, drawn beside the runs.
    """
    series = {path: read_long(path) for path in baselines}
    benchmark = find_benchmark(paths)
    found, problems = collect(paths)
    runs = with_hours(found, benchmark)
    selections = find_selections(runs)
    papers = any(selection.name not in BEYOND for selection in selections)
    counted = [name for name in TABLES["Parameters"] if papers or name in experiments]
    if not runs and not counted:
        where = "; ".join(f"{problem.path} {problem.reason}" for problem in problems[:3])
        raise UsageError(f"there is no run to report: {where}{'; ...' * (len(problems) > 3)}")
    blocks = _table_blocks(selections, runs, counted)
    tables = [
        Section(title.lower().replace(" ", "-"), title, there)
        for title, names in TABLES.items()
        if (there := [block for name in names for block in blocks if block.table.name == name])
    ]
    others = [one for path, several in series.items() for one in _require_some_beside(path, several, runs)]
    if long is not None:
        write_file(long, to_long(runs))
    page = Page(runs, problems, hours_note=in_words(runs, benchmark))
    if not selections:
        return write_page(page._replace(first=own_sections(runs, baselines=others), then=tables), out)
    curves = _curves_blocks(selections, runs, others)
    taken = set().union(*(selection.all_configs() for selection in selections))
    own = own_sections([run for run in runs if run.config.on_any_backend not in taken], "Other runs", OWN_NOTE, others)
    sections = [Section("curves", "Learning curves", curves, CURVES_NOTE)] if curves else []
    return write_page(page._replace(then=[*sections, *tables, *own], plans=_progress(selections, runs)), out)


def _require_some_beside(path: Path, series: Sequence[Series], runs: Sequence[Run]) -> Sequence[Series]:
    """The series, if at least one of them is about an environment of the runs."""
    if not beside(series, {run.env for run in runs}):
        theirs, ours = ({one.env for one in several} for several in (series, runs))
        raise UsageError(f"{path} is about {_some(theirs)}, and the runs are about {_some(ours)}: nothing to compare")
    return series


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _by_plan(selections: Iterable[Selection]) -> list[list[Selection]]:
    return [list(group) for _, group in groupby(selections, key=lambda selection: selection.folder_name)]


def _progress(selections: Sequence[Selection], runs: Sequence[Run]) -> list[PlanProgress]:
    finished = {run.config.on_any_backend for run in runs if run.finished}
    found = []
    for group in _by_plan(selections):
        plan = group[0].plan
        wanted = {title_of(selection): selection.all_configs() for selection in group}
        counts = [(title, len(configs & finished), len(configs)) for title, configs in wanted.items()]
        note = "" if plan.is_papers else PROGRESS_NOTE.format(plan.difference)
        found.append(PlanProgress(group[0].folder_name, plan.is_papers, note, counts))
    return found


def _table_blocks(selections: Sequence[Selection], runs: Sequence[Run], counted: Sequence[str]) -> list[TableBlock]:
    """Folded are tables with one row of runs or none, and those whose runs stand in one above."""
    there = {run.config.on_any_backend for run in runs}
    shown: dict[tuple[str, str], set[Config]] = {}  # by section and plan
    blocks = []
    for selection in selections:
        if selection.experiment.shown_as != "table":
            continue
        table = paper_table(selection, runs)
        section = next(title for title, names in TABLES.items() if table.name in names)
        before, here = shown.setdefault((section, selection.folder_name), set()), selection.all_configs() & there
        rows = sum(any(cell.found for cell in line.cells) for line in table.lines)
        block = TableBlock(table, f"{table.name}-{table.plan}", open=rows > 1 and not here <= before)
        before |= here
        if section in ("Returns", "Ablations"):
            block = block._replace(improvements=improvements(selection, runs))
        elif section == "The dropout rate p":
            maps = {"Ours": divided_by_best(table), "The paper": divided_by_best(table, of_paper=True)}
            block = block._replace(heat_title="Divided by the best over p (Section 5.4)", heat_maps=maps)
        blocks.append(block)
    counts = [paper_table(select(name, "paper"), ()) for name in counted]
    return blocks + [TableBlock(table, table.name, open=table.name == "table10") for table in counts]


def _curves_blocks(
    selections: Sequence[Selection], runs: Sequence[Run], baselines: Sequence[Series]
) -> list[CurvesBlock]:
    """The paper's figures, except those that would repeat one above, and each family beyond it; then all other rows."""
    blocks = []
    for group in _by_plan(selections):
        shown: set[Config] = set()
        others: dict[str, list[Run]] = {}
        for selection in sorted(group, key=lambda selection: selection.experiment.shown_as != "curves"):
            rows = {label: list(chain(*there.values())) for label, there in runs_of(selection, runs).items()}
            new = {label: {run.config for run in members} - shown for label, members in rows.items()}
            figure = selection.experiment.shown_as == "curves" and any(new.values())
            if figure or selection.name in BEYOND:
                shown |= set().union(*new.values())
                blocks.append(_curves_block(selection, selection.name, title_of(selection), rows, baselines))
            elif selection.experiment.shown_as == "table":
                for label in (label for label in rows if new[label]):
                    others.setdefault(label, []).extend(run for run in rows[label] if run not in others[label])
        whole = group[0]._replace(experiment=group[0].experiment._replace(rows=(), envs=ALL_TASKS))
        blocks.append(_curves_block(whole, "others", "Other rows of the tables", others, baselines))
    return [block for block in blocks if block.curves.panels]


def _curves_block(
    selection: Selection, name: str, title: str, rows: dict[str, list[Run]], baselines: Sequence[Series]
) -> CurvesBlock:
    experiment, plan = selection.experiment, selection.plan
    graded = any(row.dropout_p is not None for row in experiment.rows)
    file_name = f"{name}-{selection.folder_name}"
    curves = make_curves(file_name, title, rows, envs=experiment.envs, graded=graded, baselines=baselines)
    note = "" if plan.is_papers else f"{plan.difference}."
    unfold = len(curves.legend) > 1 or name == "figure2"
    return CurvesBlock(curves, unfold, selection.folder_name, plan.is_papers, note)
