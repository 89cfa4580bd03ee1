"""Estimates with confidence intervals from a few runs: the measures that Agarwal et al. (2021) recommend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError, unknown

Floats = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float] | Floats]  # for each task its runs, of which tasks may have different numbers
Tasks = list[Floats]  # for each task [..., runs]: leading axes are resamples

Score = TypeVar("Score", float, Floats)

CONFIDENCE = 0.95

# The returns that count as 0 and as 1 on each task, as in the zoo of Stable-Baselines3.
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


def normalise(score: Score, env: str) -> Score:
    """A return, or an array of them, on the scale where the task's reference scores are 0 and 1."""
    if env not in REFERENCE:
        raise unknown("environment with reference scores", env, REFERENCE)
    low, high = REFERENCE[env]
    return (score - low) / (high - low)


def bootstrap(statistic: Callable[..., Floats], *groups: Scores, repetitions: int = 2000, seed: int = 0) -> Estimate:
    """A statistic of one or more groups of runs, with a percentile interval; runs are resampled within each task."""
    if any(list(group) != list(groups[0]) for group in groups):
        raise UsageError("groups are compared on the same tasks, in the same order")
    rng = np.random.default_rng(seed)
    samples = [[np.asarray(runs, float) for runs in group.values()] for group in groups]
    if not all(tasks and all(map(len, tasks)) for tasks in samples):
        raise UsageError("scores need at least one task, and at least one run of each")
    resampled = [[runs[rng.integers(len(runs), size=(repetitions, len(runs)))] for runs in tasks] for tasks in samples]
    low, high = np.quantile(statistic(*resampled), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(*samples)), float(low), float(high))


def interquartile_mean(tasks: Tasks) -> Floats:
    """The mean of the middle half of all runs of all tasks, for each resample."""
    values = np.sort(np.concatenate(tasks, axis=-1), axis=-1)
    cut = values.shape[-1] // 4
    middle: Floats = values[..., cut : values.shape[-1] - cut].mean(axis=-1)
    return middle


def probability_of_improvement(x: Tasks, y: Tasks) -> Floats:
    """P(X > Y) + P(X = Y) / 2 for a run of each, averaged over tasks, for each resample."""
    of_tasks = []
    for of_x, of_y in zip(x, y, strict=True):
        left, right = of_x[..., :, None], of_y[..., None, :]
        of_tasks.append(((left > right) + (left == right) / 2).mean(axis=(-2, -1)))
    improvement: Floats = np.mean(of_tasks, axis=0)
    return improvement
