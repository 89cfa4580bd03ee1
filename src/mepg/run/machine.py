"""The machine: what a process of our own settles with it before JAX computes anything."""

from __future__ import annotations

from mepg.run.cache import keep_compiled_programs
from mepg.run.threads import limit_threads
from mepg.system import processor_extensions


def take_over(threads: int) -> None:
    """Compute on `threads` cores in a process of our own, where JAX may also be told to keep compiled programs."""
    limit_threads(threads)
    keep_compiled_programs(processor_extensions())
