"""How many cores a run may use. Must be said before JAX starts, so nothing here imports it."""

from __future__ import annotations

import os

from mepg.errors import UsageError


def limit_threads(threads: int) -> None:
    """Let this process compute on `threads` cores."""
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(available):
        raise UsageError(f"threads must be in [1, {len(available)}], the cores that this process may use, not {threads}")
    if threads == 1:
        # The core is left to the scheduler: what waits for the network can act on the environment meanwhile.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    else:
        os.sched_setaffinity(0, available[:threads])
