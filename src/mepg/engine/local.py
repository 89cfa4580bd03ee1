"""The cores of this machine: one process a run, one core each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from mepg.core.settings import to_json
from mepg.engine.jobs import Job
from mepg.errors import UsageError


class Process:
    """A run on one core."""

    def __init__(self, job: Job, log: Path, core: int) -> None:
        self.core = core
        with log.open("ab") as output:
            self._process = start_worker(job, core, output)

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.terminate()


class Local:
    """As many runs at once as there are cores, each pinned to its own."""

    def __init__(self, workers: int | None = None) -> None:
        cores = sorted(os.sched_getaffinity(0))
        if workers is not None and not 1 <= workers <= len(cores):
            raise UsageError(f"workers must be in [1, {len(cores)}], the cores of this machine, not {workers}")
        self._cores = cores[:workers]
        self._running: list[Process] = []

    def capacity(self) -> int:
        return len(self._cores)

    def launch(self, job: Job, log: Path) -> Process:
        self._running = [process for process in self._running if process.poll() is None]
        taken = {process.core for process in self._running}
        process = Process(job, log, next(core for core in self._cores if core not in taken))
        self._running.append(process)
        return process


def start_worker(job: Job, core: int | None, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process that carries the job out; what it prints goes to `output`."""
    told = {"config": job.config.to_json(), "folder": str(job.folder), "core": core}
    process = subprocess.Popen(
        [sys.executable, "-m", "mepg.engine.worker"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the one who started it, who then asks it to stop
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(to_json(told)).encode())
    process.stdin.close()
    return process
