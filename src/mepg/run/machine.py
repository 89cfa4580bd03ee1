"""The machine: what a process of our own settles with it before JAX computes anything."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mepg.run.cache import keep_compiled_programs
from mepg.run.threads import limit_threads


def take_over(threads: int) -> None:
    """Compute on `threads` cores in a process of our own, where JAX may also be told to keep compiled programs."""
    limit_threads(threads)
    keep_compiled_programs(instructions())


def instructions() -> str:
    """The names of the processor's extensions; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""
