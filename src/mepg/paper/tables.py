"""The paper's tables from runs: its values beside ours.

A table says which plan it is of, and whether that is the paper's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from mepg.algos import algorithms, count_parameters
from mepg.jax_defaults import with_jax_defaults
from mepg.paper.experiments import (
    ALL_TASKS,
    EXPERIMENTS,
    NOT_IN_PAPER,
    PAPER,
    PLANS,
    Plan,
    Row,
    Selection,
    experiments_of,
)
from mepg.paper.others import published_rows, sources
from mepg.paper.tasks import PAPER_TASKS
from mepg.report.runs import Run
from mepg.report.statistics import bootstrap, probability_of_improvement
from mepg.report.tables import Cell, Improvement, Published, Table, TableRow, make_row
from mepg.words import many

PAPERS_OWN = ("ME-SAC", "ME-DDPG")  # algorithms


def paper_table(selection: Selection, runs: Iterable[Run]) -> Table:
    """The experiment's table from those runs that are its own."""
    experiment, rows = selection.experiment, []
    unit, members = experiment.unit, runs_of(selection, runs)
    for row in experiment.rows:
        if unit == "parameters":
            made = TableRow(row.label, row.algorithm, tuple(_count(row.algorithm, env) for env in experiment.envs))
        else:
            made = make_row(row.label, row.algorithm, unit, members[row.label])
        cells = (
            cell._replace(
                published=published(selection.name, row, cell.env), wanted=len(selection.configs(row, cell.env))
            )
            for cell in made.cells
        )
        rows.append(made._replace(cells=tuple(cells), dropout_p=row.dropout_p))
    if experiment.beside:
        rows += published_rows(experiment.beside, selection.plan.steps, experiment.envs)
    needs_runs = unit != "parameters"
    return Table(
        name=selection.name,
        title=title_of(selection),
        unit=unit,
        envs=experiment.envs,
        rows=tuple(rows),
        plan=selection.folder_name if needs_runs else None,
        is_papers=not needs_runs or selection.plan.is_papers,
        notes=tuple(_notes(selection, rows)),
        steps=selection.plan.steps if needs_runs else None,
        published_steps=PAPER.steps if needs_runs and selection.name not in NOT_IN_PAPER else None,
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

    Of two of the paper's own, only the first over the second.
    """
    tasks = tuple(dict.fromkeys((*ALL_TASKS, *selection.experiment.envs)))
    on_all_tasks = selection._replace(experiment=selection.experiment._replace(envs=tasks))
    final = {
        label: {env: [run.means[-1] for run in members] for env, members in by_env.items() if len(members) > 1}
        for label, by_env in runs_of(on_all_tasks, (run for run in runs if run.finished)).items()
    }
    found = []
    own = [label for label in PAPERS_OWN if label in final]
    for count, better in enumerate(own, start=1):
        for than in (label for label in final if label not in own[:count]):
            if tasks := tuple(env for env in final[better] if env in final[than]):
                both = ({env: final[label][env] for env in tasks} for label in (better, than))
                found.append(Improvement(better, than, bootstrap(probability_of_improvement, *both), tasks))
    return found


def find_selections(runs: Iterable[Run]) -> list[Selection]:
    """Every experiment, under every plan, that at least one of these runs belongs to.

    Wanted are the plan's seeds and whichever others there are.
    """
    seeds: dict[tuple[str, Plan, str], set[int]] = {}
    for config in (run.config for run in runs):
        for name, base in experiments_of(config):
            plan_name, plan = _plan(base, config.steps)
            if (plan.eval_every, plan.eval_episodes) == (config.eval_every, config.eval_episodes):
                seeds.setdefault((plan_name, plan, name), set()).add(config.seed)
    plans, names, selections = list(PLANS), list(EXPERIMENTS), []
    order = sorted(seeds, key=lambda key: (-plans.index(key[0]), -key[1].steps, names.index(key[2])))
    for plan_name, plan, name in order:
        wanted = sorted({*seeds[plan_name, plan, name], *range(plan.seeds)})
        selections.append(Selection(name, EXPERIMENTS[name], plan_name, plan, tuple(wanted)))
    return selections


def _plan(base: str, steps: int) -> tuple[str, Plan]:
    """The plan for runs of this length: a whole one, or the base plan cut to it."""
    cut = PLANS[base].with_steps(steps)
    whole = {plan._replace(seeds=0): name for name, plan in PLANS.items()}.get(cut._replace(seeds=0))
    return (base, cut) if whole is None else (whole, PLANS[whole])


def divided_by_best(table: Table, *, of_paper: bool = False) -> dict[str, dict[str, float | None]]:
    """Section 5.4: for each row and environment, the return over the largest of all rows."""
    values = {
        row.label: {
            cell.env: (cell.published and cell.published.value) if of_paper else cell.ours for cell in row.cells
        }
        for row in table.rows
    }
    best = {env: max((by_env[env] or 0.0 for by_env in values.values()), default=0.0) for env in table.envs}
    return {  # a share of a best return that is not positive would mean nothing
        label: {env: None if value is None or best[env] <= 0 else value / best[env] for env, value in by_env.items()}
        for label, by_env in values.items()
    }


def published(table: str, row: Row, env: str) -> Published | None:
    """What the paper prints in this table for this row. It prints two different rows of DDPG (D14)."""
    label, rate = (row.label, "") if row.dropout_p is None else (row.algorithm.upper(), str(float(row.dropout_p)))
    return _published().get((table, label, rate, env))


def title_of(selection: Selection) -> str:
    """`Table 1: Returns, four tasks`."""
    if selection.name in NOT_IN_PAPER:
        return selection.experiment.title
    number = selection.name.capitalize().replace("Table", "Table ").replace("Figure", "Figure ")
    return f"{number}: {selection.experiment.title}"


@cache
def _count(algorithm_name: str, env: str) -> Cell:
    algorithm = algorithms()[algorithm_name]
    exact = with_jax_defaults(count_parameters)(algorithm, PAPER_TASKS[env]).as_paper
    return Cell(env, ours=float(round(exact / 1000) * 1000))  # the paper prints thousands


def _notes(selection: Selection, rows: Sequence[TableRow]) -> list[str]:
    experiment, plan = selection.experiment, selection.plan
    notes = {
        "return": "Ours: the five best evaluations of a run, averaged, then mean and standard deviation over runs "
        "(D17).",
        "minutes": "Minutes of training a run, without evaluation. They depend on the machine: compare one row with "
        "another, not ours with the paper's.",
        "parameters": "Thousands, target networks included, as the paper counts: Gaussians without log-std (D11).",
    }  # fmt: skip
    found = [notes[experiment.unit]]
    if experiment.unit == "return" and any(row.label == "DDPG" for row in rows):
        found.append("DDPG: the paper prints one set of returns in Table 1 and another in Tables 2, 6 and 8 (D14).")
    if any(row.iqm is not None for row in rows):
        found.append(
            "IQM: interquartile mean of final returns on the scale of the reference scores, over those tasks that "
            "have such scores and at least two runs, with a 95 % interval of a bootstrap over runs."
        )
    if selection.name in NOT_IN_PAPER:
        settings = f", with {', '.join(plan.settings)}" if plan.settings else ""
        found.append(f"None of this is in the paper. Runs have {many(plan.steps, 'step')}{settings}.")
        if len(rows) > len(experiment.rows):
            found.append(
                "Rows with v4: others' curves at the same number of steps, mean and standard deviation over seeds of "
                f"one evaluation each, to be read beside our last evaluation ({sources(experiment.beside)}). v4 is not "
                "v5: our SAC on v5 beside their SAC on v4 shows how far they can be compared."
            )
    elif experiment.unit != "parameters" and not plan.is_papers:
        found.append(f"Not the paper's plan: {plan.difference}. So the differences do not test the paper's numbers.")
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
