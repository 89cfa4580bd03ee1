"""The paper's tables from runs: its value and ours, how many seeds, and what a fair reader would ask for besides.

Only finished runs are averaged. A table says which plan it is of, and whether that is the paper's.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from mepg.algos import algorithms, find
from mepg.core.arithmetic import ours
from mepg.core.settings import describe
from mepg.paper.experiments import EXPERIMENTS, PLANS, Plan, Row, Selection, job_of
from mepg.paper.stats import (
    REFERENCE,
    Estimate,
    Vector,
    five_best,
    interval,
    iqm,
    mean_and_std,
    normalise,
    probability_of_improvement,
)
from mepg.paper.tasks import PAPER_TASKS
from mepg.run.config import Config
from mepg.words import many

OURS = ("ME-SAC", "ME-DDPG")  # the paper's own algorithms
Unit = Literal["return", "minutes", "parameters"]
UNITS: dict[str, Unit] = {"return": "return", "seconds": "minutes", "parameters": "parameters"}
COLUMNS = (
    "table", "plan", "papers_plan", "row", "algorithm", "dropout_p", "env", "unit", "published", "published_std",
    "ours", "std", "difference", "final", "iqm", "low", "high", "found", "wanted", "unfinished",
)  # fmt: skip


class Measured(Protocol):
    """What a table needs of a run."""

    @property
    def config(self) -> Config: ...
    @property
    def means(self) -> Vector: ...
    @property
    def finished(self) -> bool: ...
    @property
    def train_seconds(self) -> float | None: ...


M = TypeVar("M", bound=Measured)


class Published(NamedTuple):
    """A number that the paper prints."""

    value: float
    std: float | None


class Cell(NamedTuple):
    """A row's outcome on one environment. What is not known is None."""

    env: str
    published: Published | None = None
    ours: float | None = None  # by the paper's metric
    std: float | None = None  # over runs, if there are several
    final: float | None = None  # the last evaluation's mean, over runs
    iqm: Estimate | None = None  # of normalised final returns, if there are reference scores and several runs
    found: int = 0  # finished runs
    wanted: int = 0
    unfinished: int = 0

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.published is None else self.ours - self.published.value

    @property
    def complete(self) -> bool:
        return self.found == self.wanted


class Line(NamedTuple):
    """A row of a table."""

    row: Row
    cells: tuple[Cell, ...]
    iqm: Estimate | None = None  # of normalised final returns, over the tasks that have reference scores
    iqm_tasks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.row.label


class Table(NamedTuple):
    """A table of the paper, or of somebody's own runs."""

    name: str
    title: str
    unit: Unit
    envs: tuple[str, ...]
    lines: tuple[Line, ...]
    plan: str | None = None  # None: no run is needed, or none of the paper's plans
    is_papers: bool = False  # the plan, and so whether values can be compared
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        return sum(cell.found for line in self.lines for cell in line.cells)

    @property
    def wanted(self) -> int:
        return sum(cell.wanted for line in self.lines for cell in line.cells)


def paper_table(selection: Selection, runs: Iterable[Measured]) -> Table:
    """The experiment's table from those runs that are its own."""
    experiment = selection.experiment
    by_config = {run.config: run for run in runs}
    lines = []
    for row in experiment.rows:
        if experiment.metric == "parameters":
            cells = [_count(row.algorithm, env) for env in experiment.envs]
            chosen: dict[str, list[Measured]] = {}
        else:
            wanted = {env: configs(selection, row, env) for env in experiment.envs}
            chosen = {env: [by_config[config] for config in wanted[env] if config in by_config] for env in wanted}
            unit = UNITS[experiment.metric]
            cells = [_cell(env, chosen[env], len(wanted[env]), unit) for env in experiment.envs]
        cells = [cell._replace(published=published(experiment.published, row, cell.env)) for cell in cells]
        estimate, tasks = _iqm(chosen) if experiment.metric == "return" else (None, ())
        lines.append(Line(row, tuple(cells), estimate, tasks))
    needs_runs = experiment.metric != "parameters"
    return Table(
        name=selection.name,
        title=experiment.title,
        unit=UNITS[experiment.metric],
        envs=experiment.envs,
        lines=tuple(lines),
        plan=selection.folder_name if needs_runs else None,
        is_papers=not needs_runs or is_papers(selection.plan),
        notes=_notes(selection, lines),
    )


class Improvement(NamedTuple):
    """How often a run of one row ends higher than a run of another."""

    better: str
    than: str
    probability: Estimate
    tasks: tuple[str, ...]


def improvements(selection: Selection, runs: Iterable[Measured], over: Sequence[str] = OURS) -> list[Improvement]:
    """Of the paper's own algorithms over each of the others, on tasks where both have several finished runs."""
    by_config = {run.config: run for run in runs if run.finished}
    final: dict[str, dict[str, list[float]]] = {}
    for row in selection.experiment.rows:
        ends = {
            env: [by_config[c].means[-1] for c in configs(selection, row, env) if c in by_config] for env in PAPER_TASKS
        }
        final[row.label] = {env: values for env, values in ends.items() if len(values) > 1}
    found = []
    for better in (label for label in over if label in final):
        for than in (label for label in final if label != better):
            tasks = tuple(env for env in final[better] if env in final[than])
            if tasks:
                ours, theirs = ({env: final[label][env] for env in tasks} for label in (better, than))
                found.append(Improvement(better, than, probability_of_improvement(ours, theirs), tasks))
    return found


def own_tables(runs: Sequence[Measured]) -> list[Table]:
    """Returns and run times of runs that are of none of the paper's plans: a row for all that differs."""
    if not runs:
        return []
    envs = tuple(sorted({run.config.env for run in runs}))
    rows, shared = group_variants(runs)
    tables = []
    titles: dict[Unit, str] = {"return": "Returns", "minutes": "Run time"}
    for unit, title in titles.items():
        lines = []
        for label, members in rows.items():
            chosen = {env: [run for run in members if run.config.env == env] for env in envs}
            cells = tuple(_cell(env, chosen[env], len(chosen[env]), unit) for env in envs)
            estimate, tasks = _iqm(chosen) if unit == "return" else (None, ())
            lines.append(Line(Row(label, members[0].config.algorithm), cells, estimate, tasks))
        name = {"return": "own-returns", "minutes": "own-runtime"}.get(unit, unit)
        tables.append(Table(name, title, unit, envs, tuple(lines), notes=(f"All with {shared}.",) if shared else ()))
    return tables


def configs(selection: Selection, row: Row, env: str) -> list[Config]:
    """The runs that one cell asks for, one a seed."""
    first = _first_config(selection._replace(seeds=selection.seeds[:1]), row)
    return [replace(first, env=env, seed=seed) for seed in selection.seeds]


def find_selections(runs: Sequence[Measured]) -> list[Selection]:
    """Every experiment, under every plan, that at least one of these runs belongs to.

    Wanted are the plan's seeds and whichever others there are.
    """
    seeds: dict[Config, set[int]] = {}
    for run in runs:
        seeds.setdefault(replace(run.config, seed=0), set()).add(run.config.seed)
    found = []
    for plan_name, plan in _plans(runs):
        for name, experiment in EXPERIMENTS.items():
            if experiment.metric == "parameters":
                continue
            whole = Selection(name, experiment, plan_name, plan, (0,))
            cells = (configs(whole, row, env)[0] for row in experiment.rows for env in experiment.envs)
            there = set().union(*(seeds.get(config, set()) for config in cells))
            if there:
                found.append(whole._replace(seeds=tuple(sorted(there | set(range(plan.seeds))))))
    return found


def is_papers(plan: Plan) -> bool:
    """Whether runs are as long, as often and as well evaluated as the paper's."""
    return plan == PLANS["paper"]


def group_variants(runs: Iterable[M]) -> tuple[dict[str, list[M]], str]:
    """Runs that differ in nothing but environment and seed, by what sets them apart; and what all have in common."""
    groups: dict[Config, list[M]] = {}
    for run in runs:
        groups.setdefault(replace(run.config, env="", seed=0), []).append(run)
    parts = {variant: _differences(variant) for variant in groups}
    shared = [part for part in next(iter(parts.values()), []) if all(part in other for other in parts.values())]
    if len(groups) < 2:
        shared = []
    labels = {
        variant: ", ".join([variant.algorithm, *(part for part in found if part not in shared)])
        for variant, found in parts.items()
    }
    ordered = sorted(groups, key=lambda variant: labels[variant])
    members = {labels[v]: sorted(groups[v], key=lambda run: (run.config.env, run.config.seed)) for v in ordered}
    return members, ", ".join(shared)


def divided_by_best(table: Table, *, of_paper: bool = False) -> dict[str, dict[str, float | None]]:
    """Section 5.4: for each environment and row, the return over the largest of all rows."""
    values: dict[str, dict[str, float | None]] = {line.label: {} for line in table.lines}
    for column, env in enumerate(table.envs):
        of_rows: dict[str, float | None] = {}
        for line in table.lines:
            cell = line.cells[column]
            printed = None if cell.published is None else cell.published.value
            of_rows[line.label] = printed if of_paper else cell.ours
        best = max((value for value in of_rows.values() if value is not None), default=0.0)
        for label, value in of_rows.items():
            # A share of a best return that is not positive would mean nothing.
            values[label][env] = None if value is None or best <= 0 else value / best
    return values


def published(table: str | None, row: Row, env: str) -> Published | None:
    """What the paper prints in this table for this row: D14 keeps two rows of DDPG, each where it stands."""
    label, rate = (row.label, "") if row.dropout_p is None else (row.algorithm.upper(), str(float(row.dropout_p)))
    return _published().get((table or "", label, rate, env))


def short_name(env: str) -> str:
    """`Hopper` for the paper's tasks; others keep their name."""
    if env not in PAPER_TASKS:
        return env
    name = env.removesuffix("BulletEnv-v0").replace("InvertedPendulumSwingup", "Swingup")
    return name.replace("InvertedDoublePendulum", "DoublePendulum")


def printed_name(table: str) -> str:
    """`Table 1` for table1."""
    return table.capitalize().replace("Table", "Table ").replace("Figure", "Figure ")


def show(value: float | None, unit: Unit, *, signed: bool = False, like: float | None = None) -> str:
    """A number as the paper prints it, with as many digits as `like` would have; parameters in thousands."""
    if value is None:
        return ""
    size = abs(value if like is None else like)
    whole = {"return": 100, "minutes": 10, "parameters": 0}[unit]
    digits = 0 if size >= whole else 2 if unit == "minutes" and size < 1 else 1
    text = f"{value / 1000 if unit == 'parameters' else value:{'+' if signed else ''},.{digits}f}"
    return text if float(text.replace(",", "")) else f"{0:.{digits}f}"


def show_with_std(value: float | None, std: float | None, unit: Unit) -> str:
    """2,382 ± 188"""
    return show(value, unit) + ("" if std is None else f" ± {show(std, unit, like=value)}")


def to_csv(table: Table) -> str:
    """One line for each cell, and one for each row's interquartile mean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in table.lines:
        rate = "" if line.row.dropout_p is None else line.row.dropout_p
        plan = ["" if table.plan is None else table.plan, str(table.is_papers).lower()]
        head = [table.name, *plan, _plain(line.label), line.row.algorithm, rate]
        for cell in line.cells:
            paper = ["", ""] if cell.published is None else [_digits(cell.published.value), _digits(cell.published.std)]
            ours = [_digits(value) for value in (cell.ours, cell.std, cell.difference, cell.final)]
            counts = [cell.found, cell.wanted, cell.unfinished]
            middle = [""] * 3 if cell.iqm is None else [_digits(number) for number in cell.iqm]
            writer.writerow([*head, _plain(cell.env), table.unit, *paper, *ours, *middle, *counts])
        if line.iqm is not None:
            tasks = "+".join(map(short_name, line.iqm_tasks))
            writer.writerow([*head, tasks, "iqm", *[""] * 6, *map(_digits, line.iqm), "", "", ""])
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """The table for a README: ours, the paper's in brackets, the difference, and seeds where some are missing."""
    with_iqm = any(line.iqm is not None for line in table.lines)
    heading = (
        f"**{printed_name(table.name)}: {table.title}**" if table.plan or table.is_papers else f"**{table.title}**"
    )
    lines = [heading, ""]
    if table.plan is not None:
        lines += [f"Plan: {table.plan}" + ("." if table.is_papers else ", which is not the paper's."), ""]
    names = [_escaped(short_name(env)) for env in table.envs] + (["IQM"] if with_iqm else [])
    lines.append("| | " + " | ".join(names) + " |")
    lines.append("| --- |" + " ---: |" * len(names))
    for line in table.lines:
        cells = [_markdown_cell(cell, table.unit) for cell in line.cells]
        if with_iqm:
            cells.append("" if line.iqm is None else show_estimate(line.iqm))
        lines.append("| " + " | ".join([_escaped(line.label), *cells]) + " |")
    lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def show_estimate(estimate: Estimate) -> str:
    """A number and its interval."""
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _markdown_cell(cell: Cell, unit: Unit) -> str:
    parts = [] if cell.ours is None else [show_with_std(cell.ours, cell.std, unit)]
    if cell.published is not None:
        parts.append(f"(paper {show_with_std(*cell.published, unit)})")
        if cell.difference is not None:
            parts.append(show(cell.difference, unit, signed=True, like=cell.published.value))
    if not cell.complete:
        parts.append(f"{cell.found}/{many(cell.wanted, 'seed')}")
    return " ".join(parts)


def _cell(env: str, runs: Sequence[Measured], wanted: int, unit: Unit) -> Cell:
    finished = [run for run in runs if run.finished]
    cell = Cell(env, found=len(finished), wanted=wanted, unfinished=len(runs) - len(finished))
    if not finished:
        return cell
    if unit == "minutes":
        times = [run.train_seconds / 60 for run in finished if run.train_seconds is not None]
        values = np.array(times)
    else:
        values = np.array([five_best(run.means) for run in finished])
    ours, std = mean_and_std(values)
    several = len(values) > 1
    final = float(np.mean([run.means[-1] for run in finished])) if unit == "return" else None
    middle, _ = _iqm({env: runs}) if unit == "return" else (None, ())
    return cell._replace(ours=ours, std=std if several else None, final=final, iqm=middle)


@cache
def _count(algorithm_name: str, env: str) -> Cell:
    algorithm = algorithms()[algorithm_name]
    exact = ours(algorithm.count_parameters)(algorithm.spec, PAPER_TASKS[env]).as_paper
    return Cell(env, ours=float(round(exact / 1000) * 1000))  # the paper prints thousands


def _iqm(runs: Mapping[str, Sequence[Measured]]) -> tuple[Estimate | None, tuple[str, ...]]:
    """Over final returns: choosing the best evaluations first would favour noise (D17)."""
    scores = {
        env: [float(normalise(run.means[-1], env)) for run in members if run.finished]
        for env, members in runs.items()
        if env in REFERENCE and sum(run.finished for run in members) > 1  # one run has no interval
    }
    if not scores:
        return None, ()
    return Estimate(iqm(scores), *interval(scores)), tuple(scores)


def _notes(selection: Selection, lines: Sequence[Line]) -> tuple[str, ...]:
    experiment, plan = selection.experiment, selection.plan
    notes = []
    if experiment.metric == "return":
        notes.append(
            "Ours: the five best evaluations of a run, averaged, then mean and standard deviation over runs (D17)."
        )
        if experiment.published is not None and any(line.label == "DDPG" for line in lines):
            notes.append("DDPG: the paper prints one set of returns in Table 1 and another in Tables 2, 6 and 8 (D14).")
        if any(line.iqm is not None for line in lines):
            notes.append(
                "IQM: interquartile mean of final returns on the scale of the reference scores, over those tasks that "
                "have such scores and at least two runs, with a 95 % interval of a bootstrap over runs."
            )
    elif experiment.metric == "seconds":
        notes.append(
            "Minutes of training a run, without evaluation. They depend on the machine: compare one row with another, "
            "not ours with the paper's."
        )
    else:
        notes.append("Thousands, target networks included, as the paper counts: Gaussians without log-std (D11).")
    if experiment.metric != "parameters" and not is_papers(plan):
        paper = PLANS["paper"]
        notes.append(
            f"Not the paper's plan: {many(plan.steps, 'step')} instead of {paper.steps:,}, "
            f"{many(plan.seeds, 'seed')} instead of {paper.seeds}"
            f"{', and ' + ', '.join(plan.settings) if plan.settings else ''}. "
            "The differences say how far, not how well."
        )
    return tuple(notes)


def _plans(runs: Sequence[Measured]) -> list[tuple[str, Plan]]:
    """The paper's plans, whole or shortened, that runs of these lengths may belong to."""
    lengths = {(run.config.steps, run.config.eval_every, run.config.eval_episodes) for run in runs}
    whole = [(name, plan) for name, plan in PLANS.items() if (plan.steps, *plan[2:4]) in lengths]
    found = sorted(whole, key=lambda item: -item[1].steps)
    for name in ("desk", "smoke"):  # cut to the same length, the paper's plan asks for the same runs as the desk's
        plan = PLANS[name]
        for steps, *evaluation in sorted(lengths, reverse=True):
            cut = plan._replace(steps=steps, eval_every=min(plan.eval_every, steps))
            known = any(cut._replace(seeds=0) == other._replace(seeds=0) for _, other in found)
            if not known and [cut.eval_every, cut.eval_episodes] == evaluation:
                found.append((name, cut))
    return found


def _differences(config: Config) -> list[str]:
    """What differs from the algorithm as it is listed, and how long the run is."""
    usual, spec = describe(find(config.algorithm).spec), describe(config.spec)
    changed = [f"{name}={text}" for name, text in spec.items() if usual.get(name) != text]
    defaults = {field.name: field.default for field in fields(Config)}
    values = {
        name: getattr(config, name) for name in ("eval_every", "eval_episodes", "envs", "normalize_obs", "threads")
    }
    changed += [f"{name.replace('_', '-')}={value}" for name, value in values.items() if value != defaults[name]]
    return [*changed, many(config.steps, "step")]


@cache
def _first_config(selection: Selection, row: Row) -> Config:
    return job_of(selection, row, selection.experiment.envs[0], selection.seeds[0], Path()).config


@cache
def _published() -> dict[tuple[str, str, str, str], Published]:
    text = resources.files("mepg.paper").joinpath("published", "results.csv").read_text(encoding="utf-8")
    return {
        (cell["table"], cell["algorithm"], cell["dropout_p"], cell["env"]): Published(
            float(cell["value"]), float(cell["std"]) if cell["std"] else None
        )
        for cell in csv.DictReader(text.splitlines())
    }


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _plain(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _escaped(text: str) -> str:
    """Text that is neither Markdown nor HTML."""
    return html.escape(" ".join(text.split())).replace("|", "&#124;").replace("`", "&#96;").replace("[", "&#91;")
