"""From runs to a figure: the paper's metric, and beside it the measures that Agarwal et al. (2021) recommend.

Scores are an array [runs, tasks], or for each task its runs: tasks may then have different numbers of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError, unknown

Vector = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float] | Vector] | Vector
Tasks = list[Vector]  # for each task [..., runs]: leading axes are resamples
Statistic = Callable[[Tasks], Vector]

CONFIDENCE = 0.95

# What stands for 0 and for 1 on each task, as in the zoo of Stable-Baselines3.
REFERENCE = {
    "HalfCheetahBulletEnv-v0": (-1400.0, 3000.0),
    "AntBulletEnv-v0": (300.0, 3500.0),
    "HopperBulletEnv-v0": (20.0, 2500.0),
    "Walker2DBulletEnv-v0": (200.0, 2500.0),
}


class Estimate(NamedTuple):
    """A number, and the interval that 95 % of the resamples lie in."""

    value: float
    low: float
    high: float


def five_best(means: Sequence[float] | Vector) -> float:
    """The paper's metric for one run: its five largest evaluation means, averaged (D17)."""
    if len(means) == 0:
        raise UsageError("a run without an evaluation has no best one")
    return float(np.mean(sorted(means, reverse=True)[:5]))


def mean_and_std(values: Sequence[float] | Vector) -> tuple[float, float]:
    """Over runs. The paper says no more than "std": here the sum of squares is divided by n (ddof=0)."""
    if len(values) == 0:
        raise UsageError("there is no mean of no runs")
    return float(np.mean(values)), float(np.std(values))


def normalise(score: Any, env: str) -> Any:
    """A return, or an array of them, on the scale where the task's reference scores are 0 and 1."""
    if env not in REFERENCE:
        raise unknown("environment with reference scores", env, REFERENCE)
    low, high = REFERENCE[env]
    return (score - low) / (high - low)


def interquartile_mean(tasks: Tasks) -> Vector:
    """The mean of the middle half of all runs of all tasks, for each resample."""
    values = np.sort(np.concatenate(tasks, axis=-1), axis=-1)
    cut = values.shape[-1] // 4
    middle: Vector = values[..., cut : values.shape[-1] - cut].mean(axis=-1)
    return middle


def iqm(scores: Scores) -> float:
    """The interquartile mean over all runs and tasks."""
    return float(interquartile_mean(_tasks(scores)))


def interval(
    scores: Scores, statistic: Statistic = interquartile_mean, repetitions: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile interval of a bootstrap that draws runs anew within each task."""
    resampled = statistic(_resample(_tasks(scores), repetitions, np.random.default_rng(seed)))
    return _percentiles(resampled)


def probability_of_improvement(x: Scores, y: Scores, repetitions: int = 2000, seed: int = 0) -> Estimate:
    """P(X > Y) + P(X = Y) / 2 for a run of each, averaged over tasks."""
    of_x, of_y = _tasks(x), _tasks(y)
    if len(of_x) != len(of_y) or (isinstance(x, Mapping) and isinstance(y, Mapping) and list(x) != list(y)):
        raise UsageError("a probability of improvement needs the same tasks on both sides, in the same order")
    rng = np.random.default_rng(seed)
    low, high = _percentiles(_improvement(_resample(of_x, repetitions, rng), _resample(of_y, repetitions, rng)))
    return Estimate(float(_improvement(of_x, of_y)), low, high)


def _improvement(x: Tasks, y: Tasks) -> Vector:
    of_tasks = []
    for of_x, of_y in zip(x, y, strict=True):
        left, right = of_x[..., :, None], of_y[..., None, :]
        of_tasks.append(((left > right) + (left == right) / 2).mean(axis=(-2, -1)))
    improvement: Vector = np.mean(of_tasks, axis=0)
    return improvement


def _resample(tasks: Tasks, repetitions: int, rng: np.random.Generator) -> Tasks:
    return [runs[rng.integers(len(runs), size=(repetitions, len(runs)))] for runs in tasks]


def _percentiles(resampled: Vector) -> tuple[float, float]:
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _tasks(scores: Scores) -> Tasks:
    columns = list(scores.values()) if isinstance(scores, Mapping) else list(np.asarray(scores, float).T)
    tasks = [np.asarray(column, float) for column in columns]
    if not tasks or any(runs.ndim != 1 or len(runs) == 0 for runs in tasks):
        raise UsageError("scores need at least one task, and at least one run of each")
    return tasks
