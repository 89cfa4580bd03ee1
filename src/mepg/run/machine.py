"""The machine: what a process settles with it before JAX computes anything."""

from __future__ import annotations

from mepg.native.processor import extensions
from mepg.run.cache import keep_compiled_programs
from mepg.run.threads import limit_threads


def prepare(threads: int) -> None:
    """Compute on `threads` cores, with programs that were compiled before."""
    limit_threads(threads)
    keep_compiled_programs(extensions())
