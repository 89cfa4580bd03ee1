"""The paper's part of a report: those of its tables and figures for which there are runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, groupby
from pathlib import Path

from mepg.errors import UsageError
from mepg.paper.experiments import ALL_TASKS, NOT_IN_PAPER, Selection, select
from mepg.paper.others import CAPTION, HOURS_CAPTION, published_curves, sources
from mepg.paper.tables import divided_by_best, find_selections, improvements, paper_table, runs_of, title_of
from mepg.report.figures import make_curves
from mepg.report.long_format import PublishedCurve, on_environments, read_long_format, to_long_format
from mepg.report.page import (
    CurvesBlock,
    Page,
    PlanProgress,
    Report,
    Section,
    TableBlock,
    variant_sections,
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
    "Beyond the paper": NOT_IN_PAPER,
}
CURVES_NOTE = (
    "Mean over seeds and half a standard deviation, each a moving average over a twentieth of the evaluations, ten at "
    "most: with the 200 evaluations of the paper's runs, that is how the paper draws them. "
    "Dashed where some seeds have not got so far. Point at a curve for its values; a name switches its curve off and "
    "on."
)
PROGRESS_NOTE = "{}. Such values are not the paper's, and not to be read as a success or a failure to reproduce it."
OTHERS_NOTE = "These belong to no plan of the paper, so nothing of the paper stands beside them."


def write_report(
    paths: Sequence[Path],
    out: Path,
    experiments: Collection[str] = (),
    *,
    long: Path | None = None,
    baselines: Sequence[Path] = (),
) -> Report:
    """A page about all runs in these folders: see `report/page.py`.

    It has those tables of the paper for which there are runs, and then its counts of parameters too, which need none;
    without runs, the counts among `experiments`. A page with nothing on it would replace an older one: it is refused.
    `long` is where the runs' curves are written in long format (see `report/long_format.py`), and `baselines` are files
    in that format, drawn beside the runs.
    """
    published = {path: read_long_format(path) for path in baselines}
    runs, problems = collect(paths)
    selections = find_selections(runs)
    of_paper = any(selection.name not in NOT_IN_PAPER for selection in selections)
    counted = [name for name in TABLES["Parameters"] if of_paper or name in experiments]
    if not runs and not counted:
        where = "; ".join(f"{problem.path} {problem.reason}" for problem in problems[:3])
        raise UsageError(f"there is no run to report: {where}{'; ...' * (len(problems) > 3)}")
    blocks = _table_blocks(selections, runs, counted)
    tables = [
        Section(title.lower().replace(" ", "-"), title, of_section)
        for title, names in TABLES.items()
        if (of_section := [block for name in names for block in blocks if block.table.name == name])
    ]
    others = [curve for path, curves in published.items() for curve in _require_comparable(path, curves, runs)]
    if long is not None:
        write_file(long, to_long_format(runs))
    curves = _curves_blocks(selections, runs, others)
    planned = set().union(*(selection.all_configs() for selection in selections))
    unplanned = [run for run in runs if run.config.on_any_backend not in planned]
    title, note = ("Other runs", OTHERS_NOTE) if selections else ("Runs", "")
    sections = [Section("curves", "Learning curves", curves, CURVES_NOTE)] if curves else []
    sections += [*tables, *variant_sections(unplanned, title, note, others)]
    return write_page(Page(runs, problems, sections, _progress(selections, runs)), out)


def _require_comparable(path: Path, curves: Sequence[PublishedCurve], runs: Sequence[Run]) -> Sequence[PublishedCurve]:
    """The curves, if at least one of them is on an environment of the runs."""
    theirs, ours = {curve.env for curve in curves}, {run.env for run in runs}
    if not on_environments(curves, ours):
        raise UsageError(
            f"{path} is about {_first_three(theirs)}, and the runs are about {_first_three(ours)}: nothing to compare"
        )
    return curves


def _first_three(names: Collection[str]) -> str:
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
    """Tables with runs in one row or none are folded, and those whose runs are all in a table above."""
    configs = {run.config.on_any_backend for run in runs}
    shown: dict[tuple[str, str], set[Config]] = {}  # by section and plan
    blocks = []
    for selection in selections:
        if selection.experiment.shown_as != "table":
            continue
        table = paper_table(selection, runs)
        section = next(title for title, names in TABLES.items() if table.name in names)
        above, own = shown.setdefault((section, selection.folder_name), set()), selection.all_configs() & configs
        filled = sum(any(cell.found for cell in row.cells) for row in table.rows)
        block = TableBlock(table, f"{table.name}-{table.plan}", open=filled > 1 and not own <= above)
        above |= own
        if section in ("Returns", "Ablations") or selection.experiment.beside:
            block = block._replace(improvements=improvements(selection, runs))
        elif section == "The dropout rate p":
            maps = {"Ours": divided_by_best(table), "The paper": divided_by_best(table, of_paper=True)}
            block = block._replace(heat_title="Divided by the best over p (Section 5.4)", heat_maps=maps)
        blocks.append(block)
    counts = [paper_table(select(name, "paper"), ()) for name in counted]
    return blocks + [TableBlock(table, table.name, open=table.name == "table10") for table in counts]


def _curves_blocks(
    selections: Sequence[Selection], runs: Sequence[Run], baselines: Sequence[PublishedCurve]
) -> list[CurvesBlock]:
    """The paper's figures, except those that would repeat one above; each family that it does not have; other rows."""
    blocks = []
    for group in _by_plan(selections):
        shown: set[Config] = set()
        others: dict[str, list[Run]] = {}
        for selection in sorted(group, key=lambda selection: selection.experiment.shown_as != "curves"):
            rows = {label: list(chain(*by_env.values())) for label, by_env in runs_of(selection, runs).items()}
            new = {label: {run.config for run in members} - shown for label, members in rows.items()}
            figure = selection.experiment.shown_as == "curves" and any(new.values())
            if figure or selection.name in NOT_IN_PAPER:
                shown |= set().union(*new.values())
                blocks.append(_curves_block(selection, selection.name, title_of(selection), rows, baselines))
            elif selection.experiment.shown_as == "table":
                for label in (label for label in rows if new[label]):
                    others.setdefault(label, []).extend(run for run in rows[label] if run not in others[label])
        whole = group[0]._replace(experiment=group[0].experiment._replace(rows=(), envs=ALL_TASKS))
        blocks.append(_curves_block(whole, "others", "Other rows of the tables", others, baselines))
    return [block for block in blocks if block.curves.panels]


def _curves_block(
    selection: Selection, name: str, title: str, rows: dict[str, list[Run]], baselines: Sequence[PublishedCurve]
) -> CurvesBlock:
    experiment, plan = selection.experiment, selection.plan
    graded = any(row.dropout_p is not None for row in experiment.rows)
    file_name = f"{name}-{selection.folder_name}"
    if experiment.beside:
        baselines = [*published_curves(experiment.beside, plan.steps), *baselines]
    curves = make_curves(file_name, title, rows, envs=experiment.envs, graded=graded, baselines=baselines)
    if experiment.beside and any(curve.thin for panel in curves.panels.values() for curve in panel):
        caption = CAPTION.format(sources(experiment.beside))
        curves = curves._replace(caption=caption, hours_caption=HOURS_CAPTION)
    note = "" if plan.is_papers else f"{plan.difference}."
    unfold = len(curves.legend) > 1 or name == "figure2"
    return CurvesBlock(curves, unfold, selection.folder_name, plan.is_papers, note)
