"""The cores of this machine: one process a run, one core each."""

from __future__ import annotations

import contextlib
import json
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

SILENCE = 15 * 60.0  # seconds without a tick of processor time before a process is given up


class Process:
    """A run on this machine, on one core if one is named. One that is stopped, or waits for ever, is killed."""

    def __init__(self, job: Job, log: Path, core: int | None) -> None:
        self.core, self._log = core, log
        with log.open("ab") as output:
            self._process = start_worker(job, core, output)
        self._ticks, self._silent, self._looked = "", 0.0, time.monotonic()

    def poll(self) -> int | None:
        status = self._process.poll()
        if status is None and self._silence() > SILENCE:
            self._process.kill()
            self._silent = 0.0  # in case even that takes a while
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.write(f"mepg: killed: stopped or stuck, no processor time for {SILENCE:.0f} s\n")
        return status

    def stop(self) -> None:
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a stopped process could not receive the signal

    def wait(self, poll: float) -> int:
        while (status := self.poll()) is None:
            time.sleep(poll)
        return status

    def _silence(self) -> float:
        """For how many seconds it has used no processor time, not counting time in which this process slept too."""
        ticks, now = system.processor_seconds(self._process.pid), time.monotonic()
        if ticks != self._ticks:
            self._ticks, self._silent = ticks, 0.0
        else:
            self._silent += min(now - self._looked, 1.0)
        self._looked = now
        return self._silent


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
        taken = {process.core for process in self._running}
        process = Process(job, log, next(core for core in self._cores if core not in taken))
        self._running.append(process)
        return process


def start_worker(job: Job, core: int | None, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process that carries the job out; what it prints goes to `output`."""
    told = {"config": job.config.to_json(), "folder": str(job.folder), "core": core}
    process = subprocess.Popen(
        [sys.executable, "-m", "mepg.scheduler.worker"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the one who started it, who then asks it to stop
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is dead already; `poll` will say so
        process.stdin.write(json.dumps(to_json(told)).encode())
        process.stdin.close()
    return process
