"""The machine: what a process settles with it before JAX computes anything."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mepg.core import nets
from mepg.run.cache import keep_compiled_programs
from mepg.run.threads import limit_threads


def prepare(threads: int) -> None:
    """Compute on `threads` cores, with the instructions that there are."""
    limit_threads(threads)
    nets.MULTIPLIES_BFLOAT16 = any(name in instructions().split() for name in ("avx512_bf16", "amx_bf16", "bf16"))


def take_over(threads: int) -> None:
    """The same in a process of our own, where JAX may also be told to keep compiled programs."""
    prepare(threads)
    keep_compiled_programs(instructions())


def instructions() -> str:
    """The names of the processor's extensions; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""
