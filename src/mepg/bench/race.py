"""The race: core-minutes until a task is solved, one contestant on one core, two side by side.

A task is solved when the mean of three evaluations in a row reaches its threshold. Evaluations are not counted.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mepg import system
from mepg.bench.contestants import CONTESTANTS, TASKS, ZOO, RaceTask
from mepg.bench.measure import Contender
from mepg.bench.peers import Peer
from mepg.bench.worker import Task
from mepg.errors import RunFailure, UsageError, unknown
from mepg.signals import cleaning_up
from mepg.storage.files import (
    Damaged,
    JsonObject,
    not_writable,
    parse_count,
    parse_finite,
    path_exists,
    read_sealed,
    write_sealed,
)
from mepg.storage.folder import versions

EPISODES, IN_A_ROW = 10, 3  # of an evaluation; evaluations that are averaged
LIMIT = 3_600.0  # core-seconds
SEEDS = range(3)
SIDE_BY_SIDE = 2


class Evaluation(NamedTuple):
    """What the episodes of one evaluation gave, and what had been used until then."""

    step: int
    core_seconds: float
    mean_return: float


class Heat(NamedTuple):
    """One contestant on one task with one seed."""

    contestant: str
    task: str
    seed: int

    def __str__(self) -> str:
        return f"{self.contestant} on {self.task}, seed {self.seed}"

    @property
    def library(self) -> str:
        """Empty for this one."""
        return CONTESTANTS[self.contestant].library

    def work(self) -> Task:
        """What the contestant's process does: all that its outcome depends on."""
        algorithm, settings, library, zoo = CONTESTANTS[self.contestant]
        task: Task = {"measurement": "race", "algorithm": algorithm, "env": self.task, "seed": self.seed}
        task |= {"steps": TASKS[self.task].eval_every, "episodes": EPISODES}
        if library:
            return task | {"library": library, "arguments": ZOO[algorithm][self.task] if zoo else {}}
        return task | {"set": list(settings)}

    def rules(self) -> JsonObject:
        """As its file has them, so that no result of other rules is taken for one of these."""
        limits = {"threshold": TASKS[self.task].threshold, "in_a_row": IN_A_ROW, "limit": LIMIT}
        return {"contestant": self.contestant, **self.work(), **limits}

    def file(self, folder: Path) -> Path:
        return folder / self.task / f"{self.contestant}_seed{self.seed}.json"


Results = dict[Heat, list[Evaluation]]
Watch = Callable[[Heat, Sequence[Evaluation]], None]


def choose(contestants: Collection[str], tasks: Collection[str] | None, seeds: Iterable[int] | None) -> list[Heat]:
    """The heats of these contestants, tasks and seeds, or of all: first one seed of everything, then the next."""
    for kind, names, known in (("contestant", contestants, CONTESTANTS), ("task of the race", tasks or (), TASKS)):
        for name in names:
            if name not in known:
                raise unknown(kind, name, known, hint=f" (there are {', '.join(known)})")
    return [
        Heat(contestant, task, seed)
        for seed in (SEEDS if seeds is None else seeds)
        for task in tasks or TASKS
        for contestant in contestants or CONTESTANTS
    ]


def solved_after(evaluations: Sequence[Evaluation], task: RaceTask) -> float | None:
    """Core-seconds until the task was solved; None if it was not, within the limit."""
    for last in range(IN_A_ROW, len(evaluations) + 1):
        window = evaluations[last - IN_A_ROW : last]
        if np.mean([each.mean_return for each in window]) >= task.threshold:
            return window[-1].core_seconds if window[-1].core_seconds <= LIMIT else None
    return None


def read_results(folder: Path, heats: Iterable[Heat]) -> tuple[Results, dict[Heat, str]]:
    """The evaluations of the heats that are done; and what is wrong with files that cannot be used."""
    results: Results = {}
    problems = {}
    for heat in heats:
        path = heat.file(folder)
        try:
            if path_exists(path):
                results[heat] = _read(path, heat)
        except (Damaged, UsageError) as error:
            problems[heat] = f"{path} cannot be used: {error}; delete it, and the heat is run again"
    return results, problems


def _read(path: Path, heat: Heat) -> list[Evaluation]:
    data = read_sealed(path)
    if data.get("rules") != heat.rules():
        raise Damaged("it is of a race with other rules")
    try:
        return [
            Evaluation(parse_count(step), parse_finite(used), parse_finite(mean))
            for step, used, mean in data["evaluations"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"its evaluations: {error}") from None


def run(
    heats: Sequence[Heat], folder: Path, peers: Mapping[str, Peer], watch: Watch
) -> tuple[Results, dict[Heat, str]]:
    """Run the heats, two at a time, and write each that ends. Gives what they did, and why others failed."""
    results: Results = {}
    failures: dict[Heat, str] = {}
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    lanes = system.cores()[:SIDE_BY_SIDE]
    for core in lanes:
        cores.put(core)

    def compete(heat: Heat) -> None:
        core = cores.get()
        try:
            peer = peers[heat.library] if heat.library else None
            results[heat] = _race(heat, core, peer, caches, lambda so_far: watch(heat, so_far))
            _write(folder, heat, results[heat], peer)
        except (RunFailure, UsageError) as error:
            failures[heat] = f"{heat}: {error}"
        finally:
            cores.put(core)

    caches = tempfile.mkdtemp(prefix="mepg-race-")
    # Around all heats: if a signal ends the process, this is done last, when nobody writes there any more.
    with cleaning_up(lambda: shutil.rmtree(caches, ignore_errors=True)), ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(compete, heats))
    return results, failures


def _race(
    heat: Heat, core: int, peer: Peer | None, caches: str, watch: Callable[[Sequence[Evaluation]], None]
) -> list[Evaluation]:
    """With nothing compiled yet: compiling counts, whoever does it."""
    evaluations: list[Evaluation] = []
    with (
        tempfile.TemporaryDirectory(dir=caches, ignore_cleanup_errors=True) as cache,
        contextlib.closing(Contender(heat.work(), [core], peer, cache)) as contender,
    ):
        contender.pin()
        contender.answer()  # that it is ready
        while solved_after(evaluations, TASKS[heat.task]) is None:
            watch(evaluations)
            if evaluations and evaluations[-1].core_seconds > LIMIT:
                break
            contender.start_turn()
            answer = contender.answer()
            if "ended" in answer:  # its settings know how many steps there are
                break
            used, mean = (round(answer[name], 2) for name in ("core_seconds", "mean_return"))
            evaluations.append(Evaluation(int(answer["step"]), used, mean))
    return evaluations


def _write(folder: Path, heat: Heat, evaluations: Sequence[Evaluation], peer: Peer | None) -> None:
    path = heat.file(folder)
    data = {
        "rules": heat.rules(),
        "solved_after": solved_after(evaluations, TASKS[heat.task]),
        "evaluations": [list(each) for each in evaluations],
        "date": date.today().isoformat(),
        "processor": system.processor_name(),
        "versions": versions() if peer is None else peer.versions,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, data)
    except OSError as error:
        raise not_writable(path.parent, error) from None
