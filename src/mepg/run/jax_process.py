"""JAX in a process of our own: set up before it computes anything."""

from __future__ import annotations

from mepg.storage.compilation_cache import keep_compiled_programs
from mepg.system import processor_extensions
from mepg.training.threads import limit_threads


def configure_jax(threads: int) -> None:
    """Compute on `threads` cores in a process of our own, where JAX may also be told to keep compiled programs."""
    limit_threads(threads)
    keep_compiled_programs(processor_extensions())
