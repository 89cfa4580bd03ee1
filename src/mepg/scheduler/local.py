"""The local engine: one process for each run, on a core of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from mepg import system
from mepg.errors import UsageError
from mepg.scheduler.jobs import Job
from mepg.settings import to_json

IDLE_TIMEOUT = 15 * 60.0  # seconds without any processor time after which a process is killed


class Process:
    """A run in a process on this machine. A process that was stopped, or hangs, is killed after IDLE_TIMEOUT."""

    def __init__(self, job: Job, log: Path, core: int | None) -> None:
        self.core, self._log = core, log
        with log.open("ab") as output:
            self._process = start_worker(job, core, output)
        self._cpu_time, self._idle, self._last_poll = "", 0.0, time.monotonic()

    def poll(self) -> int | None:
        status = self._process.poll()
        if status is None and self._idle_seconds() > IDLE_TIMEOUT:
            self._process.kill()
            self._idle = 0.0  # in case even that takes a while
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.write(f"mepg: killed: stopped or stuck, no processor time for {IDLE_TIMEOUT:.0f} s\n")
        return status

    def stop(self) -> None:
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a stopped process could not receive the signal

    def wait(self, poll_interval: float) -> int:
        while (status := self.poll()) is None:
            time.sleep(poll_interval)
        return status

    def _idle_seconds(self) -> float:
        """For how long it has used no processor time. Time in which this process slept too does not count."""
        cpu_time, now = system.cpu_time(self._process.pid), time.monotonic()
        if cpu_time != self._cpu_time:
            self._cpu_time, self._idle = cpu_time, 0.0
        else:
            self._idle += min(now - self._last_poll, 1.0)
        self._last_poll = now
        return self._idle


class Local:
    """As many runs at once as there are cores, each pinned to its own."""

    def __init__(self, workers: int | None = None) -> None:
        cores = system.cores()
        if workers is not None and not 1 <= workers <= len(cores):
            raise UsageError(f"workers must be in [1, {len(cores)}], the cores of this machine, not {workers}")
        self._cores = cores[:workers]
        self._running: list[Process] = []

    def capacity(self) -> int:
        return len(self._cores)

    def launch(self, job: Job, log: Path) -> Process:
        self._running = [process for process in self._running if process.poll() is None]
        busy = {process.core for process in self._running}
        process = Process(job, log, next(core for core in self._cores if core not in busy))
        self._running.append(process)
        return process


def start_worker(job: Job, core: int | None, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the process that carries out the job; what it prints goes to `output`."""
    request = {"config": job.config.to_json(), "folder": str(job.folder), "core": core, "parent": os.getpid()}
    process = subprocess.Popen(
        [sys.executable, "-m", "mepg.scheduler.worker"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C goes to the parent process only, which then asks this one to stop
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is dead already; `poll` will say so
        process.stdin.write(json.dumps(to_json(request)).encode())
        process.stdin.close()
    return process
