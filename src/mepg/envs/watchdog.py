"""A time limit for calls into an environment, wherever they hang.

The watchdog is a separate process, because code that never returns to the interpreter also blocks our threads and
signal handlers. It reads the current call's deadline from shared memory. After the deadline it sends a signal, which
ends the call with an exception. If that has no effect, it prints why and kills the process.

The process runs this file, which needs only the standard library: `python watchdog.py PID FILE NAME`.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Self

GRACE = 2.0  # seconds for the interpreter to handle the signal
LIMIT, DEADLINE, STEP, SIZE = 0, 1, 2, 3  # indices: seconds for a call, when they are over, the run's step


class StepTimeout(BaseException):
    """Raised in a call that takes too long. A BaseException, so that no environment's `except Exception` catches it."""


class Watchdog:
    """`with watchdog:` around a call. One call at a time, in the main thread."""

    def __init__(self, seconds: float, name: str) -> None:
        self.seconds = seconds
        with tempfile.TemporaryFile() as file:
            file.truncate(8 * SIZE)
            self._page = memoryview(mmap.mmap(file.fileno(), 8 * SIZE)).cast("d")
            self._page[LIMIT], self._page[DEADLINE] = seconds, math.inf
            self._previous_handler = signal.signal(signal.SIGALRM, self._interrupt)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(file.fileno()), name],
                pass_fds=[file.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C does not reach it
            )

    def at_step(self, step: int) -> None:
        """Set the run's step, for the message."""
        self._page[STEP] = step

    def __enter__(self) -> Self:
        self._page[DEADLINE] = time.monotonic() + self.seconds
        return self

    def __exit__(self, *_: object) -> None:
        self._page[DEADLINE] = math.inf

    def _interrupt(self, *_: object) -> None:
        if time.monotonic() > self._page[DEADLINE]:  # otherwise that call has returned since
            raise StepTimeout

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        signal.signal(signal.SIGALRM, self._previous_handler)


def watch(parent: int, page: memoryview[float], name: str) -> None:
    """Watch until the parent ends, or has to be killed."""
    while os.getppid() == parent:
        time.sleep(min(1.0, page[LIMIT] / 10))
        deadline = page[DEADLINE]
        if time.monotonic() <= deadline:
            continue
        os.kill(parent, signal.SIGALRM)
        time.sleep(GRACE)
        if page[DEADLINE] == deadline and os.getppid() == parent:
            show_cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
            problem = f"step {page[STEP]:.0f}: {name} did not return within {page[LIMIT]:g} s"
            outcome = "nor when it was interrupted: the process was killed; what was saved is safe"
            print(f"{show_cursor}mepg: {problem}, {outcome}", file=sys.stderr, flush=True)
            os.kill(parent, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), memoryview(mmap.mmap(int(sys.argv[2]), 8 * SIZE)).cast("d"), sys.argv[3])
