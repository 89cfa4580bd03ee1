"""Tables of runs: as data, for a spreadsheet and for a README.

Only finished runs are averaged.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from mepg.algos import find
from mepg.report.runs import Run
from mepg.report.statistics import REFERENCE, Estimate, bootstrap, interquartile_mean, normalise
from mepg.settings import describe
from mepg.training.config import Config
from mepg.words import many

Unit = Literal["return", "minutes", "parameters"]
COLUMNS = (
    "table", "plan", "papers_plan", "row", "algorithm", "dropout_p", "env", "unit", "published", "published_std",
    "ours", "std", "difference", "final", "final_std", "iqm", "low", "high", "found", "wanted", "unfinished",
    "steps", "published_steps",
)  # fmt: skip


class Published(NamedTuple):
    """A number that a paper prints."""

    value: float
    std: float | None


class Cell(NamedTuple):
    """A row's outcome on one environment. What is not known is None."""

    env: str
    published: Published | None = None
    ours: float | None = None  # of returns, the mean over runs of their five best evaluations
    std: float | None = None  # over runs, if there are several
    final: float | None = None  # the last evaluation's mean, over runs
    final_std: float | None = None  # over runs, if there are several
    iqm: Estimate | None = None  # of normalised final returns, if there are reference scores and several runs
    found: int = 0  # finished runs
    wanted: int = 0
    unfinished: int = 0

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.published is None else self.ours - self.published.value


class Improvement(NamedTuple):
    """How often a run of one row ends higher than a run of another."""

    better: str
    than: str
    probability: Estimate
    tasks: tuple[str, ...]


class TableRow(NamedTuple):
    """A row of a table: an algorithm, or a variant of one."""

    label: str
    algorithm: str
    cells: tuple[Cell, ...]
    iqm: Estimate | None = None  # of normalised final returns, over the tasks that have reference scores
    iqm_tasks: tuple[str, ...] = ()
    dropout_p: float | None = None  # in tables over p


class Table(NamedTuple):
    """Rows of runs, or of counts, on the same environments."""

    name: str
    title: str
    unit: Unit
    envs: tuple[str, ...]
    rows: tuple[TableRow, ...]
    plan: str | None = None  # None: no run is needed, or none was planned
    is_papers: bool = False  # the plan, and so whether values can be compared
    notes: tuple[str, ...] = ()
    steps: int | None = None  # of our runs, in a table of a paper's
    published_steps: int | None = None  # of the paper's runs

    @property
    def scale(self) -> str:
        """For the head of a table that compares runs of different lengths; empty if they are equally long."""
        if self.steps is None or self.published_steps is None or self.steps == self.published_steps:
            return ""
        return f"ours after {many(self.steps, 'step')}, the paper's after {self.published_steps:,}"

    @property
    def found(self) -> int:
        return sum(cell.found for row in self.rows for cell in row.cells)

    @property
    def wanted(self) -> int:
        return sum(cell.wanted for row in self.rows for cell in row.cells)


def make_row(label: str, algorithm: str, unit: Unit, runs: Mapping[str, Sequence[Run]]) -> TableRow:
    """A row from each environment's runs. As many are wanted as there are."""
    cells = tuple(_cell(env, members, unit) for env, members in runs.items())
    return TableRow(label, algorithm, cells, *(_iqm(runs) if unit == "return" else ()))


def variant_tables(runs: Sequence[Run]) -> list[Table]:
    """Returns and run times of any runs: a row for each variant."""
    if not runs:
        return []
    envs = tuple(sorted({run.env for run in runs}))
    variants, shared = group_variants(runs)

    def row(label: str, unit: Unit) -> TableRow:
        by_env = {env: [run for run in variants[label] if run.env == env] for env in envs}
        return make_row(label, variants[label][0].config.algorithm, unit, by_env)

    def table(name: str, title: str, unit: Unit) -> Table:
        notes = (f"All with {shared}.",) if shared else ()
        return Table(name, title, unit, envs, tuple(row(label, unit) for label in variants), notes=notes)

    return [table("own-returns", "Returns", "return"), table("own-runtime", "Run time", "minutes")]


def group_variants(runs: Iterable[Run]) -> tuple[dict[str, list[Run]], str]:
    """Runs that differ only in environment and seed, by their distinguishing settings; and the settings all share."""
    groups: dict[Config, list[Run]] = {}
    for run in runs:
        groups.setdefault(replace(run.config, env="", seed=0), []).append(run)
    parts = {variant: _differences(variant) for variant in groups}
    first, *others = parts.values() or [[]]
    shared = [part for part in first if others and all(part in other for other in others)]

    def label(variant: Config) -> str:
        return ", ".join([variant.algorithm, *(part for part in parts[variant] if part not in shared)])

    members = {label(v): sorted(groups[v], key=lambda run: (run.config.env, run.config.seed)) for v in groups}
    return dict(sorted(members.items())), ", ".join(shared)


def short_name(env: str) -> str:
    """`Hopper` for PyBullet's tasks; others keep their name."""
    name, suffix, rest = env.rpartition("BulletEnv-v0")
    short = name.replace("InvertedPendulumSwingup", "Swingup").replace("InvertedDoublePendulum", "DoublePendulum")
    return short if suffix and not rest else env


def show(value: float | None, unit: Unit, *, signed: bool = False, like: float | None = None) -> str:
    """A number with as many digits as `like` has; parameters in thousands."""
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


def show_difference(cell: Cell, unit: Unit) -> str:
    """Ours less what is printed, if both are known."""
    if cell.difference is None or cell.published is None:
        return ""
    if unit == "parameters" and cell.difference == 0:
        return "same"
    return show(cell.difference, unit, signed=True, like=cell.published.value)


def not_a_formula(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def to_csv(table: Table, improvements: Sequence[Improvement] = ()) -> str:
    """One line for each cell, for each row's interquartile mean, and for each probability of improvement."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    shared: dict[str, object] = {"table": table.name, "plan": table.plan, "papers_plan": str(table.is_papers).lower()}
    shared |= {"steps": table.steps, "published_steps": table.published_steps}
    for row in table.rows:
        head = shared | {"row": not_a_formula(row.label), "algorithm": row.algorithm, "dropout_p": row.dropout_p}
        for cell in row.cells:
            numbers = {"ours": cell.ours, "std": cell.std, "difference": cell.difference}
            numbers |= {"final": cell.final, "final_std": cell.final_std} | _interval_columns(cell.iqm)
            if cell.published is not None:
                numbers |= {"published": cell.published.value, "published_std": cell.published.std}
            counts = {"found": cell.found, "wanted": cell.wanted, "unfinished": cell.unfinished}
            writer.writerow(head | {"env": not_a_formula(cell.env), "unit": table.unit} | _digits(numbers) | counts)
        if row.iqm is not None:
            numbers = _interval_columns(row.iqm)
            writer.writerow(head | {"env": _joined(row.iqm_tasks), "unit": "iqm"} | _digits(numbers))
    for better, than, (value, low, high), tasks in improvements:
        head = shared | {"row": f"{better} over {than}", "env": _joined(tasks), "unit": "probability"}
        writer.writerow(head | _digits({"ours": value, "low": low, "high": high}))
    return text.getvalue()


def to_markdown(table: Table, improvements: Sequence[Improvement] = ()) -> str:
    """The table for a README: ours, what is published in brackets, the difference, and seeds where some are missing."""
    with_iqm = any(row.iqm is not None for row in table.rows)
    lines = [f"**{table.title}**", ""]
    if table.plan is not None:
        lines += [f"Plan: {table.plan}" + ("." if table.is_papers else ", which is not the paper's."), ""]
    names = [_escaped(short_name(env)) for env in table.envs] + ["IQM"] * with_iqm
    lines += [f"| {' | '.join([table.scale, *names])} |", "| --- |" + " ---: |" * len(names)]
    for row in table.rows:
        cells = [_escaped(row.label), *(_markdown_cell(cell, table.unit) for cell in row.cells)]
        if with_iqm:
            cells.append("" if row.iqm is None else _with_interval(row.iqm))
        lines.append(f"| {' | '.join(cells)} |")
    if improvements:
        lines += ["", "| probability of improvement | | tasks |", "| --- | ---: | ---: |"]
        lines += [
            f"| {_escaped(better)} over {_escaped(than)} | {_with_interval(probability)} | {len(tasks)} |"
            for better, than, probability, tasks in improvements
        ]
    lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_cell(cell: Cell, unit: Unit) -> str:
    """Ours, the paper's, the difference, the last evaluation, and how many seeds if some are missing."""
    parts = [] if cell.ours is None else [show_with_std(cell.ours, cell.std, unit)]
    if cell.published is not None:
        parts.append(f"(paper {show_with_std(*cell.published, unit)})")
        parts += [show_difference(cell, unit)] if cell.ours is not None else []
    if cell.final is not None:
        parts.append(f"last {show_with_std(cell.final, cell.final_std, unit)}")
    if cell.found != cell.wanted:
        parts.append(f"{cell.found}/{many(cell.wanted, 'seed')}")
    return "<br>".join(parts)


def _cell(env: str, runs: Sequence[Run], unit: Unit) -> Cell:
    finished = [run for run in runs if run.finished]
    cell = Cell(env, found=len(finished), wanted=len(runs), unfinished=len(runs) - len(finished))
    if not finished:
        return cell
    if unit == "minutes":
        values = [run.train_seconds / 60 for run in finished if run.train_seconds is not None]
    else:
        values = [run.mean_of_five_best for run in finished]
        iqm, _ = _iqm({env: finished})
        final, final_std = _mean_and_std([float(run.means[-1]) for run in finished])
        cell = cell._replace(final=final, final_std=final_std, iqm=iqm)
    ours, std = _mean_and_std(values)
    return cell._replace(ours=ours, std=std)


def _mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """The paper does not say which standard deviation it prints: here the sum of squares is divided by n."""
    return float(np.mean(values)), float(np.std(values)) if len(values) > 1 else None


def _iqm(runs: Mapping[str, Sequence[Run]]) -> tuple[Estimate | None, tuple[str, ...]]:
    """Over final returns: the mean of the best evaluations is biased upwards by selection (D17)."""
    scores = {
        env: [float(normalise(run.means[-1], env)) for run in members if run.finished]
        for env, members in runs.items()
        if env in REFERENCE and sum(run.finished for run in members) > 1  # one run has no interval
    }
    return (bootstrap(interquartile_mean, scores), tuple(scores)) if scores else (None, ())


def _differences(config: Config) -> list[str]:
    """The settings that differ from the algorithm's defaults, and the length of the run."""
    default, spec = describe(find(config.algorithm).spec), describe(config.spec)
    changed = [f"{name}={text}" for name, text in spec.items() if default.get(name) != text]
    other = {name: value for name, value in config.non_default_options().items() if name not in ("seed", "steps")}
    changed += [f"{name.replace('_', '-')}={value}" for name, value in other.items()]
    return [*changed, many(config.steps, "step")]


def _digits(numbers: Mapping[str, float | None]) -> dict[str, str]:
    return {name: "" if value is None else f"{value:.6g}" for name, value in numbers.items()}


def _interval_columns(iqm: Estimate | None) -> dict[str, float | None]:
    return dict(zip(("iqm", "low", "high"), iqm or [None] * 3, strict=True))


def _with_interval(estimate: Estimate) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*estimate)


def _joined(envs: Sequence[str]) -> str:
    return "+".join(map(short_name, envs))


def _escaped(text: str) -> str:
    """Text that is neither Markdown nor HTML."""
    return html.escape(" ".join(text.split())).replace("|", "&#124;").replace("`", "&#96;").replace("[", "&#91;")
