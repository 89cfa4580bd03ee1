"""The paper's tables from runs: its values beside ours.

A table says which plan it is of, and whether that is the paper's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

from mepg.algos import algorithms, count_parameters
from mepg.jax_defaults import with_jax_defaults
from mepg.paper.experiments import ALL_TASKS, BEYOND, EXPERIMENTS, PAPER, PLANS, Plan, Row, Selection
from mepg.paper.tasks import PAPER_TASKS
from mepg.report.runs import Run
from mepg.report.statistics import bootstrap, probability_of_improvement
from mepg.report.tables import Cell, Improvement, Line, Published, Table, Unit, make_line
from mepg.training.config import Config
from mepg.words import many

OURS = ("ME-SAC", "ME-DDPG")  # the paper's own algorithms
UNITS: dict[str, Unit] = {"return": "return", "seconds": "minutes", "parameters": "parameters"}


def paper_table(selection: Selection, runs: Iterable[Run]) -> Table:
    """The experiment's table from those runs that are its own."""
    experiment, lines = selection.experiment, []
    unit, there = UNITS[experiment.metric], runs_of(selection, runs)
    for row in experiment.rows:
        if unit == "parameters":
            line = Line(row.label, row.algorithm, tuple(_count(row.algorithm, env) for env in experiment.envs))
        else:
            line = make_line(row.label, row.algorithm, unit, there[row.label])
        cells = (
            cell._replace(
                published=published(selection.name, row, cell.env), wanted=len(selection.configs(row, cell.env))
            )
            for cell in line.cells
        )
        lines.append(line._replace(cells=tuple(cells), dropout_p=row.dropout_p))
    needs_runs = unit != "parameters"
    return Table(
        name=selection.name,
        title=title_of(selection),
        unit=unit,
        envs=experiment.envs,
        lines=tuple(lines),
        plan=selection.folder_name if needs_runs else None,
        is_papers=not needs_runs or selection.plan.is_papers,
        notes=tuple(_notes(selection, lines)),
        steps=selection.plan.steps if needs_runs else None,
        published_steps=PAPER.steps if needs_runs and selection.name not in BEYOND else None,
    )


def runs_of(selection: Selection, runs: Iterable[Run]) -> dict[str, dict[str, list[Run]]]:
    """The runs that belong to each row and environment, by the row's label."""
    by_config = {run.config.on_any_backend: run for run in runs}
    return {
        row.label: {
            env: [by_config[config] for config in selection.configs(row, env) if config in by_config]
            for env in selection.experiment.envs
        }
        for row in selection.experiment.rows
    }


def improvements(selection: Selection, runs: Iterable[Run]) -> list[Improvement]:
    """How often the paper's own algorithms end higher than each other one, where both have several finished runs.

    Of two of the paper's own, the first over the second is enough.
    """
    everywhere = selection._replace(experiment=selection.experiment._replace(envs=ALL_TASKS))
    final = {
        label: {env: [run.means[-1] for run in there] for env, there in by_env.items() if len(there) > 1}
        for label, by_env in runs_of(everywhere, (run for run in runs if run.finished)).items()
    }
    found = []
    ours = [label for label in OURS if label in final]
    for place, better in enumerate(ours, start=1):
        for than in (label for label in final if label not in ours[:place]):
            if tasks := tuple(env for env in final[better] if env in final[than]):
                both = ({env: final[label][env] for env in tasks} for label in (better, than))
                found.append(Improvement(better, than, bootstrap(probability_of_improvement, *both), tasks))
    return found


def find_selections(runs: Sequence[Run]) -> list[Selection]:
    """Every experiment, under every plan, that at least one of these runs belongs to.

    Wanted are the plan's seeds and whichever others there are.
    """
    seeds: dict[Config, set[int]] = {}
    for run in runs:
        seeds.setdefault(replace(run.config.on_any_backend, seed=0), set()).add(run.config.seed)
    found = []
    for plan_name, plan in _plans(runs):
        for name, experiment in EXPERIMENTS.items():
            whole = Selection(name, experiment, plan_name, plan, (0,))
            there = set().union(*(seeds.get(config, set()) for config in whole.all_configs()))
            if there:
                found.append(whole._replace(seeds=tuple(sorted(there | set(range(plan.seeds))))))
    return found


def divided_by_best(table: Table, *, of_paper: bool = False) -> dict[str, dict[str, float | None]]:
    """Section 5.4: for each row and environment, the return over the largest of all rows."""
    values = {
        line.label: {
            cell.env: (cell.published and cell.published.value) if of_paper else cell.ours for cell in line.cells
        }
        for line in table.lines
    }
    best = {env: max((row[env] or 0.0 for row in values.values()), default=0.0) for env in table.envs}
    return {  # a share of a best return that is not positive would mean nothing
        label: {env: None if value is None or best[env] <= 0 else value / best[env] for env, value in row.items()}
        for label, row in values.items()
    }


def published(table: str, row: Row, env: str) -> Published | None:
    """What the paper prints in this table for this row: D14 keeps two rows of DDPG, each where it stands."""
    label, rate = (row.label, "") if row.dropout_p is None else (row.algorithm.upper(), str(float(row.dropout_p)))
    return _published().get((table, label, rate, env))


def title_of(selection: Selection) -> str:
    """`Table 1: Returns, four tasks`."""
    if selection.name in BEYOND:
        return selection.experiment.title
    number = selection.name.capitalize().replace("Table", "Table ").replace("Figure", "Figure ")
    return f"{number}: {selection.experiment.title}"


@cache
def _count(algorithm_name: str, env: str) -> Cell:
    algorithm = algorithms()[algorithm_name]
    exact = with_jax_defaults(count_parameters)(algorithm, PAPER_TASKS[env]).as_paper
    return Cell(env, ours=float(round(exact / 1000) * 1000))  # the paper prints thousands


def _notes(selection: Selection, lines: Sequence[Line]) -> list[str]:
    experiment, plan = selection.experiment, selection.plan
    notes = {
        "return": "Ours: the five best evaluations of a run, averaged, then mean and standard deviation over runs "
        "(D17).",
        "seconds": "Minutes of training a run, without evaluation. They depend on the machine: compare one row with "
        "another, not ours with the paper's.",
        "parameters": "Thousands, target networks included, as the paper counts: Gaussians without log-std (D11).",
    }  # fmt: skip
    found = [notes[experiment.metric]]
    if experiment.metric == "return" and any(line.label == "DDPG" for line in lines):
        found.append("DDPG: the paper prints one set of returns in Table 1 and another in Tables 2, 6 and 8 (D14).")
    if any(line.iqm is not None for line in lines):
        found.append(
            "IQM: interquartile mean of final returns on the scale of the reference scores, over those tasks that "
            "have such scores and at least two runs, with a 95 % interval of a bootstrap over runs."
        )
    if selection.name in BEYOND:
        settings = f", with {', '.join(plan.settings)}" if plan.settings else ""
        found.append(f"None of this is in the paper. Runs have {many(plan.steps, 'step')}{settings}.")
    elif experiment.metric != "parameters" and not plan.is_papers:
        found.append(f"Not the paper's plan: {plan.difference}. So the differences do not test the paper's numbers.")
    return found


def _plans(runs: Sequence[Run]) -> list[tuple[str, Plan]]:
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


@cache
def _published() -> dict[tuple[str, str, str, str], Published]:
    text = resources.files("mepg.paper").joinpath("published", "results.csv").read_text(encoding="utf-8")
    return {
        (cell["table"].partition("-")[0], cell["algorithm"], cell["dropout_p"], cell["env"]): Published(
            float(cell["value"]), float(cell["std"]) if cell["std"] else None
        )
        for cell in csv.DictReader(text.splitlines())
    }
