"""How many cores a run may use: to be set before JAX computes anything."""

from __future__ import annotations

import os

import jax

from mepg.errors import UsageError
from mepg.jax_defaults import start_jax
from mepg.system import cores, signals_off_the_heap


def limit_threads(threads: int) -> None:
    """Let this process compute on `threads` cores, wherever the scheduler puts it."""
    available = len(cores())
    if not 1 <= threads <= available:
        raise UsageError(f"threads must be in [1, {available}], the cores that this process may use, not {threads}")
    nproc, asynchronous = os.environ.get("NPROC"), jax.config.values["jax_cpu_enable_async_dispatch"]
    os.environ["NPROC"] = str(threads)  # the size of XLA's thread pool; none of its flags changes that
    # Without a second core, handing a program to another thread only costs time.
    jax.config.update("jax_cpu_enable_async_dispatch", threads > 1)
    try:
        with signals_off_the_heap():
            start_jax()  # it reads both once, and never again: both can be restored
    finally:
        jax.config.update("jax_cpu_enable_async_dispatch", asynchronous)
        os.environ.pop("NPROC") if nproc is None else os.environ.update(NPROC=nproc)
