"""Carrying out many runs: finished ones are left alone, killed ones restarted, failed ones reported."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from mepg.errors import UsageError
from mepg.scheduler.jobs import Job, Progress
from mepg.scheduler.worker import PATIENCE
from mepg.storage.files import hold, not_writable, open_lock

ATTEMPTS = 3  # of a run whose process was killed: more would hide that something kills it
POLL = 0.2


class Launched(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Its exit status, negative for a signal that killed it; None while it goes on."""

    def stop(self) -> None:
        """Ask it to save and end."""


class Engine(Protocol):
    """Where runs are carried out."""

    def capacity(self) -> int:
        """How many at once, now."""

    def launch(self, job: Job, log: Path) -> Launched:
        """Begin one, or go on with it; what it prints is added to the log."""


class Failure(NamedTuple):
    """A run that did not finish."""

    job: Job
    reason: str
    log: Path | None  # None: it was never started


class Watch(Protocol):
    """Whoever watches the progress."""

    def show(self, going_on: dict[Job, Progress], finished: int, failures: Sequence[Failure]) -> None:
        """Called several times a second."""


def carry_out(
    jobs: Iterable[Job],
    engine: Engine,
    logs: Path,
    watch: Watch,
    stopping: Callable[[], bool],
    unwanted: Callable[[Job], bool] = lambda _: False,
) -> list[Failure]:
    """Carry out all jobs, or stop when `stopping()` says so; gives those that failed, which do not stop the others.

    The next job is taken from `jobs` only when there is room for it, so it can depend on the results of earlier ones.
    A job that becomes `unwanted` is stopped, and not started again.
    """
    coming: Iterator[Job] | None = iter(jobs)  # None when there are no more
    again: list[Job] = []
    running: dict[Job, Launched] = {}
    attempts: dict[Job, int] = {}
    failures: list[Failure] = []
    told: set[Job] = set()  # asked to stop: a second signal would end it at once, unsaved
    finished = 0
    logs.mkdir(parents=True, exist_ok=True)

    def log_of(job: Job) -> Path:
        return logs / f"{job.folder.name}.log"

    while coming is not None or again or running:
        if stopping():
            _stop(running)
            return failures
        while (coming is not None or again) and len(running) < engine.capacity():
            job = again.pop(0) if again else None if coming is None else next(coming, None)
            if job is None:
                coming = None
            elif not unwanted(job):
                attempts[job] = attempts.get(job, 0) + 1
                running[job] = engine.launch(job, log_of(job))
        for job, launched in list(running.items()):
            status = launched.poll()
            if status is None:
                if unwanted(job) and job not in told:
                    told.add(job)
                    launched.stop()
                continue
            del running[job]
            if status == 0:
                finished += 1
            elif unwanted(job):
                continue
            elif (status < 0 or status > 128) and attempts[job] < ATTEMPTS:  # it was killed, or told to stop
                again.insert(0, job)
            else:
                failures.append(Failure(job, _reason(status, log_of(job)), log_of(job)))
        watch.show({job: job.progress() for job in running}, finished, failures)
        time.sleep(POLL)
    return failures


class Stock(NamedTuple):
    """Which of the wanted runs are there."""

    finished: list[Job]
    missing: list[Job]  # or unfinished
    unusable: list[Failure]  # another run is in that folder, or it is damaged


def take_stock(jobs: Iterable[Job]) -> Stock:
    """Look into every folder; one that cannot be used is named and does not stop the others."""
    stock = Stock([], [], [])
    for job in jobs:
        try:
            (stock.finished if job.finished() else stock.missing).append(job)
        except UsageError as error:
            stock.unusable.append(Failure(job, str(error), None))
    return stock


def claim(results: Path) -> TextIO:
    """Lock a folder of results until the file that is returned is closed."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = open_lock(results / ".lock")
    except OSError as error:
        raise not_writable(results, error) from None
    try:
        return hold(lock)
    except OSError:
        lock.close()
        raise UsageError(f"{results} is in use: another mepg process is working there") from None


def _stop(running: dict[Job, Launched]) -> None:
    for launched in running.values():
        launched.stop()
    deadline = time.monotonic() + PATIENCE
    while any(launched.poll() is None for launched in running.values()) and time.monotonic() < deadline:
        time.sleep(POLL)


def _reason(status: int, log: Path) -> str:
    try:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2].removeprefix("mepg: ")
    except OSError:
        last = ""
    if status < 0 or status > 128:
        number = -status if status < 0 else status - 128
        who = f"signal {number}" + ", as the system does when memory runs out" * (number == signal.SIGKILL)
        return f"its process was killed {ATTEMPTS} times, by {who}" + (f"; its last line: {last}" if last else "")
    if not last and shutil.disk_usage(log.parent).free == 0:  # its last words could not be written either
        last = os.strerror(errno.ENOSPC)
    return last or f"it ended with status {status}"
