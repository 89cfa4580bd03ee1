"""Numbers in the tables of docs/results.md and docs/one-critic.md."""

from __future__ import annotations

import numpy as np

from mepg.report.runs import Run
from mepg.report.statistics import Estimate


def mean_of_last_ten(run: Run, hours: float = np.inf) -> float:
    """Of the returns of a run's evaluations, or of those within so many core-hours."""
    reached = evaluations_within(run, hours)
    return float(run.means[max(reached - 10, 0) : reached].mean())


def evaluations_within(run: Run, hours: float) -> int:
    """The number of evaluations within so many core-hours, at least one."""
    return max(int(np.searchsorted(run.hours, hours, side="right")), 1)


def interval(estimate: Estimate) -> str:
    """A number and its 95 % interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*estimate)
