"""The machine: what a process settles with it before JAX computes anything."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mepg.core import nets
from mepg.run.cache import keep_compiled_programs
from mepg.run.threads import keep_signals_off_the_heap, limit_threads


def prepare(threads: int) -> None:
    """Compute on `threads` cores, with programs that were compiled before, and the instructions that there are."""
    limit_threads(threads)
    keep_signals_off_the_heap()
    keep_compiled_programs(instructions())
    nets.MULTIPLIES_BFLOAT16 = any(name in instructions().split() for name in ("avx512_bf16", "amx_bf16", "bf16"))


def instructions() -> str:
    """The names of the processor's extensions; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""
