"""What runs cost: core-hours at each of their evaluations, and where that figure comes from.

A run that was started by this version says how much processor time it has used. Of an older one that is not known:
its hours are what its learning steps take at the speed that `mepg bench` measured for its algorithm, if a bench.json
lies in the folder of the report; without one, the time that passed, waiting included.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mepg.algos import find
from mepg.errors import UsageError
from mepg.report.runs import Run
from mepg.storage.files import Damaged, Unreadable, finite, is_there, read_json
from mepg.words import many

NAME = "bench.json"


class Benchmark(NamedTuple):
    """Steps a second on a quiet machine, of algorithms as they are listed."""

    path: Path
    speeds: dict[tuple[str, str], float]  # by algorithm and environment
    about: str


def find_benchmark(paths: Iterable[Path]) -> Benchmark | None:
    """The first bench.json in these folders."""
    for path in paths:
        there = False
        with contextlib.suppress(Unreadable):  # a folder that we may not enter: its runs are left out, by name
            there = is_there(path / NAME)
        if there:
            return read_benchmark(path / NAME)
    return None


def read_benchmark(path: Path) -> Benchmark:
    """What `mepg bench` wrote, as far as it is needed here."""
    try:
        data = read_json(path)
        speeds = {
            (str(name), str(env)): finite(found["steps_per_second"])
            for env, loops in data["loops"].items()
            for name, found in loops.items()
        }
        if not all(speed > 0 for speed in speeds.values()):
            raise ValueError("a speed that is not positive")
        return Benchmark(path, speeds, _about(data["about"]))
    except (Damaged, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is not what mepg bench writes: {error!r}") from None


def with_hours(runs: Iterable[Run], benchmark: Benchmark | None) -> list[Run]:
    """The runs with their core-hours, where these can be known."""
    return [_with_hours(run, benchmark) for run in runs]


def in_words(runs: Sequence[Run], benchmark: Benchmark | None) -> str:
    """Where the core-hours of these runs come from; empty if there are none."""
    sources = Counter(run.hours_from for run in runs if len(run.steps))
    parts = []
    if n := sources["processor time"]:
        parts.append(f"Of {many(n, 'run')}: processor time on all cores, evaluations aside.")
    if (n := sources["benchmark"]) and benchmark is not None:
        used = sorted({(run.config.algorithm, run.env) for run in runs if run.hours_from == "benchmark"})
        speeds = ", ".join(f"{name} {benchmark.speeds[name, env]:.0f} on {env}" for name, env in used)
        parts.append(
            f"Of {many(n, 'run')} that did not record processor time: learning steps at the speed of the benchmark "
            f"({benchmark.about}), in steps/s: {speeds}. Random steps before learning are not counted."
        )
    if n := sources["wall clock"]:
        parts.append(
            f"Of {many(n, 'run')} that did not record processor time: time that passed, waiting and evaluations too."
        )
    if (n := sources[None]) and parts:
        parts.append(f"Not drawn over core-hours: {many(n, 'run')} whose settings were not measured.")
    return " ".join(parts)


def _with_hours(run: Run, benchmark: Benchmark | None) -> Run:
    processor, passed = run.clock
    if processor is not None:
        return run._replace(hours=processor / 3600, hours_from="processor time")
    if benchmark is None:
        return run if passed is None else run._replace(hours=passed / 3600, hours_from="wall clock")
    speed = benchmark.speeds.get((run.config.algorithm, run.env))
    if speed is None or run.config.spec != find(run.config.algorithm).spec or run.config.threads != 1:
        return run  # with other settings it has another speed
    learning = np.maximum(run.steps - run.config.spec.warmup, 0)
    return run._replace(hours=learning / speed / 3600, hours_from="benchmark")


def _about(data: dict[str, Any]) -> str:
    return ", ".join(str(data[name]) for name in ("date", "commit", "processor") if name in data)
