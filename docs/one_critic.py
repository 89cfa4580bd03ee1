"""The tables of docs/one-critic.md, from results/one-critic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from measures import mean_of_last_ten
from pictures import inspected

from mepg.paper.experiments import FOUR_TASKS
from mepg.report.runs import Run
from mepg.report.tables import short_name

FOLDER = "one-critic"
BASELINES = ("sac", "sac98")  # their mean return is 1 on the scale of scores
WALKER = "Walker2DBulletEnv-v0"


class Candidate(NamedTuple):
    """One row: the runs of a candidate by task, in order of their seeds, and its score on each of these tasks."""

    name: str
    runs: dict[str, list[Run]]
    scores: dict[str, float]
    cheap_scores: dict[str, float]  # with half of the core-hours that `sac` took

    @property
    def score(self) -> float:
        """The mean of its tasks' scores."""
        return float(np.mean([*self.scores.values()]))


def candidates(runs: Iterable[Run]) -> list[Candidate]:
    """The study's candidates: those on most tasks first, and of these the best first."""
    found: dict[str, dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: run.config.seed):
        if run.path.parent.name == FOLDER:  # name-task-seed0
            found.setdefault(run.path.name.rsplit("-", 2)[0], {}).setdefault(run.env, []).append(run)
    baselines = [found[name] for name in BASELINES if name in found]
    units = {env: mean_return(chain(*(by_env.get(env, []) for by_env in baselines))) for env in FOUR_TASKS}
    half = {env: np.mean([run.hours[-1] for run in runs]) / 2 for env, runs in found.get(BASELINES[0], {}).items()}
    rows = [
        Candidate(
            name,
            by_env,
            {env: mean_return(runs) / units[env] for env, runs in by_env.items()},
            {env: return_by(half[env], runs) / units[env] for env, runs in by_env.items() if env in half},
        )
        for name, by_env in found.items()
    ]
    return sorted(rows, key=lambda row: (-len(row.scores), -row.score))


def mean_return(runs: Iterable[Run]) -> float:
    """Of these runs' last ten evaluations; NaN of no runs."""
    means = [*map(mean_of_last_ten, runs)]
    return float(np.mean(means)) if means else np.nan


def return_by(hours: float, runs: Iterable[Run]) -> float:
    """The mean of the last five evaluations that each run had made after so many core-hours."""
    return float(np.mean([np.mean(run.means[run.hours <= hours][-5:]) for run in runs]))


def table(runs: Iterable[Run]) -> str:
    """A line for each candidate: its return with each seed, its scores, its cost, and what Q is off by."""
    rows = candidates(runs)
    envs = [env for env in FOUR_TASKS if any(env in row.runs for row in rows)]
    tasks = "".join(f" {short_name(env)}, seeds 0, 1, ... | score |" for env in envs)
    lines = [
        f"| |{tasks} mean score | with half of `sac`'s core-hours | core-hours / `sac`'s | Q - return, Walker2D |",
        "| --- |" + " ---: |" * (2 * len(envs) + 4),
    ]
    hours = {row.name: np.mean([run.hours[-1] for run in row.runs[WALKER]]) for row in rows}
    for row in rows:
        cells = []
        for env in envs:
            members = row.runs.get(env, [])
            cells += ["; ".join(f"{mean_of_last_ten(run):,.0f}" for run in members)]
            cells += [f"{row.scores[env]:.2f}" if members else ""]
        cells += [f"{row.score:.2f}", f"{np.mean([*row.cheap_scores.values()]):.2f}"]
        cells += [f"{hours[row.name] / hours[BASELINES[0]]:.2f}", q_error(row.runs[WALKER])]
        lines.append(f"| `{row.name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def q_error(runs: Sequence[Run]) -> str:
    """By how many per cent of what followed Q was off at the end, on average over seeds."""
    shares = [found.bias / np.mean(found.some.truth) for _, found in inspected(runs)]
    return f"{np.mean(shares):+.0%}" if shares else ""
