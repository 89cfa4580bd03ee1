"""What runs cost: core-hours at each of their evaluations, and where that figure comes from.

A run records the processor time that it has used. Older runs did not: their hours are what their learning steps take at
the speed that `mepg bench` measured for the algorithm, if a bench.json lies in the folder of the report; without one,
the time that passed, waiting included.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mepg.algos import find
from mepg.errors import UsageError
from mepg.report.runs import Run
from mepg.storage.files import Damaged, Unreadable, finite, path_exists, read_json
from mepg.words import many


class MeasuredSpeeds(NamedTuple):
    """Steps a second on a quiet machine, of algorithms with their default settings."""

    steps_per_second: dict[tuple[str, str], float]  # by algorithm and environment
    source: str


def find_speeds(paths: Iterable[Path]) -> MeasuredSpeeds | None:
    """The first bench.json in these folders."""
    for path in paths:
        exists = False
        with contextlib.suppress(Unreadable):  # a folder that we may not enter: its runs are left out, by name
            exists = path_exists(path / "bench.json")
        if exists:
            return read_speeds(path / "bench.json")
    return None


def read_speeds(path: Path) -> MeasuredSpeeds:
    """From a file that `mepg bench` wrote."""
    try:
        data = read_json(path)
        speeds = {
            (str(name), str(env)): finite(loop["steps_per_second"])
            for env, loops in data["loops"].items()
            for name, loop in loops.items()
        }
        if not all(speed > 0 for speed in speeds.values()):
            raise ValueError("a speed that is not positive")
        about = data["about"]
        return MeasuredSpeeds(
            speeds, ", ".join(str(about[name]) for name in ("date", "commit", "processor") if name in about)
        )
    except (Damaged, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is not what mepg bench writes: {error!r}") from None


def with_hours(runs: Iterable[Run], speeds: MeasuredSpeeds | None) -> list[Run]:
    """The runs with their core-hours, where these can be known."""
    return [_with_hours(run, speeds) for run in runs]


def describe_sources(runs: Sequence[Run], speeds: MeasuredSpeeds | None) -> str:
    """Where the core-hours of these runs come from; empty if there are none."""
    sources = Counter(run.hours_from for run in runs if len(run.steps))
    parts = []
    if n := sources["processor time"]:
        parts.append(f"Of {many(n, 'run')}: processor time on all cores, evaluations aside.")
    if (n := sources["benchmark"]) and speeds is not None:
        used = sorted({(run.config.algorithm, run.env) for run in runs if run.hours_from == "benchmark"})
        listed = ", ".join(f"{name} {speeds.steps_per_second[name, env]:.0f} on {env}" for name, env in used)
        parts.append(
            f"Of {many(n, 'run')} that did not record processor time: learning steps at the speed of the benchmark "
            f"({speeds.source}), in steps/s: {listed}. Random steps before learning are not counted."
        )
    if n := sources["wall clock"]:
        parts.append(
            f"Of {many(n, 'run')} that did not record processor time: time that passed, waiting and evaluations too."
        )
    if (n := sources[None]) and parts:
        parts.append(f"Not drawn over core-hours: {many(n, 'run')} whose settings were not measured.")
    return " ".join(parts)


def _with_hours(run: Run, speeds: MeasuredSpeeds | None) -> Run:
    if run.seconds_at.processor is not None:
        return run._replace(hours=run.seconds_at.processor / 3600, hours_from="processor time")
    if speeds is None:
        wall = run.seconds_at.wall
        return run if wall is None else run._replace(hours=wall / 3600, hours_from="wall clock")
    speed = speeds.steps_per_second.get((run.config.algorithm, run.env))
    if speed is None or run.config.spec != find(run.config.algorithm).spec or run.config.threads != 1:
        return run  # with other settings it has another speed
    learning = np.maximum(run.steps - run.config.spec.warmup, 0)
    return run._replace(hours=learning / speed / 3600, hours_from="benchmark")
