"""Carrying out many runs: finished runs are skipped, killed ones restarted, failed ones reported."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from mepg.errors import UsageError
from mepg.scheduler.jobs import Job, Progress
from mepg.scheduler.worker import STOP_TIMEOUT
from mepg.storage.files import acquire, not_writable, open_lock

MAX_ATTEMPTS = 3  # of a run whose process was killed: more would hide that something kills it
POLL_INTERVAL = 0.2  # seconds


class RunHandle(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Its exit status, negative for a signal that killed it; None while it is running."""

    def stop(self) -> None:
        """Ask it to save and exit."""


class Engine(Protocol):
    """Where runs are carried out."""

    def capacity(self) -> int:
        """How many runs it can carry out at once, now."""

    def launch(self, job: Job, log: Path) -> RunHandle:
        """Start or resume a run; what it prints is appended to the log."""


class Failure(NamedTuple):
    """A run that did not finish."""

    job: Job
    reason: str
    log: Path | None  # None: it was never started


class Status(NamedTuple):
    """How far a schedule has come."""

    running: dict[Job, Progress]
    finished: int
    failures: list[Failure]


def run_jobs(
    jobs: Iterable[Job],
    engine: Engine,
    logs: Path,
    should_stop: Callable[[], bool],
    is_cancelled: Callable[[Job], bool] = lambda _: False,
) -> Iterator[Status]:
    """Carry out all jobs, until `should_stop()`. Yields the current status several times a second.

    A job that fails does not stop the others. The next job is taken from `jobs` only when there is room for it, so it
    can depend on the results of earlier ones. A job that is cancelled is stopped, and not started again.
    """
    queue: Iterator[Job] | None = iter(jobs)  # None when it is exhausted
    restarts: list[Job] = []
    running: dict[Job, RunHandle] = {}
    attempts: dict[Job, int] = {}
    failures: list[Failure] = []
    stopped: set[Job] = set()  # asked to stop: a second signal would end it at once, unsaved
    finished = 0
    logs.mkdir(parents=True, exist_ok=True)

    def log_of(job: Job) -> Path:
        return logs / f"{job.folder.name}.log"

    while queue is not None or restarts or running:
        if should_stop():
            _stop(running)
            return
        while (queue is not None or restarts) and len(running) < engine.capacity():
            job = restarts.pop(0) if restarts else None if queue is None else next(queue, None)
            if job is None:
                queue = None
            elif not is_cancelled(job):
                attempts[job] = attempts.get(job, 0) + 1
                running[job] = engine.launch(job, log_of(job))
        for job, run in list(running.items()):
            status = run.poll()
            if status is None:
                if is_cancelled(job) and job not in stopped:
                    stopped.add(job)
                    run.stop()
                continue
            del running[job]
            if status == 0:
                finished += 1
            elif is_cancelled(job):
                continue
            elif (status < 0 or status > 128) and attempts[job] < MAX_ATTEMPTS:  # a signal killed or stopped it
                restarts.insert(0, job)
            else:
                failures.append(Failure(job, _reason(status, log_of(job)), log_of(job)))
        yield Status({job: job.progress() for job in running}, finished, failures)
        time.sleep(POLL_INTERVAL)


class JobsByState(NamedTuple):
    """Jobs, by what their folders hold."""

    finished: list[Job]
    missing: list[Job]  # or unfinished
    unusable: list[Failure]  # the folder holds another run, or is damaged


def jobs_by_state(jobs: Iterable[Job]) -> JobsByState:
    """Look into every job's folder. A folder that cannot be used is named, and does not stop the others."""
    states = JobsByState([], [], [])
    for job in jobs:
        try:
            (states.finished if job.finished() else states.missing).append(job)
        except UsageError as error:
            states.unusable.append(Failure(job, str(error), None))
    return states


def claim(results: Path) -> TextIO:
    """Lock a folder of results until the returned file is closed."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = open_lock(results / ".lock")
    except OSError as error:
        raise not_writable(results, error) from None
    try:
        return acquire(lock)
    except OSError:
        lock.close()
        raise UsageError(f"{results} is in use: another mepg process is working there") from None


def _stop(running: dict[Job, RunHandle]) -> None:
    for run in running.values():
        run.stop()
    deadline = time.monotonic() + STOP_TIMEOUT
    while any(run.poll() is None for run in running.values()) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)


def _reason(status: int, log: Path) -> str:
    """Why a run failed, from its exit status and the last line that it printed."""
    try:
        last_line = log.read_text(errors="replace").strip().rpartition("\n")[2].removeprefix("mepg: ")
    except OSError:
        last_line = ""
    if status < 0 or status > 128:
        number = -status if status < 0 else status - 128
        killer = f"signal {number}" + ", as the system does when memory runs out" * (number == signal.SIGKILL)
        reason = f"its process was killed {MAX_ATTEMPTS} times, by {killer}"
        return f"{reason}; its last line: {last_line}" if last_line else reason
    if not last_line and shutil.disk_usage(log.parent).free == 0:  # the error could not be written either
        last_line = os.strerror(errno.ENOSPC)
    return last_line or f"it ended with status {status}"
