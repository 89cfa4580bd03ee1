"""How many cores a run may use, and how signals reach it unharmed. Settle both before JAX computes anything."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

import jax

from mepg.core.arithmetic import start_jax
from mepg.errors import UsageError


def limit_threads(threads: int) -> None:
    """Let this process compute on `threads` cores, wherever the scheduler puts it."""
    available = len(os.sched_getaffinity(0))
    if not 1 <= threads <= available:
        raise UsageError(f"threads must be in [1, {available}], the cores that this process may use, not {threads}")
    said, asynchronous = os.environ.get("NPROC"), jax.config.values["jax_cpu_enable_async_dispatch"]
    os.environ["NPROC"] = str(threads)  # the size of XLA's thread pool; none of its flags changes that
    # Without a second core, handing a program to another thread only costs time.
    jax.config.update("jax_cpu_enable_async_dispatch", threads > 1)
    try:
        with signals_off_the_heap():
            start_jax()  # which reads both once, and never again: so both can be the user's again
    finally:
        jax.config.update("jax_cpu_enable_async_dispatch", asynchronous)
        os.environ.pop("NPROC") if said is None else os.environ.update(NPROC=said)


class _Stack(ctypes.Structure):
    """Linux's stack_t."""

    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


DISABLED, SIZE = 2, 2**16
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
_kept: list[ctypes.Array[ctypes.c_char]] = []  # never freed: a signal may come at any time


@contextlib.contextmanager
def signals_off_the_heap() -> Iterator[None]:
    """Let this thread receive signals on a stack of their own, and threads that begin meanwhile receive none.

    The system writes a signal below the stack pointer. While oneDNN multiplies matrices for JAX, that register may
    point to its buffer: whatever lies before the buffer is written over, and the process aborts at some later time
    with "corrupted size vs. prev_size". Python's handlers use a thread's other stack where there is one.
    """
    if sys.platform != "linux":
        yield
        return
    libc, stack = ctypes.CDLL(None), _Stack()
    libc.sigaltstack(None, ctypes.byref(stack))
    if stack.flags & DISABLED:
        _kept.append(ctypes.create_string_buffer(SIZE))
        libc.sigaltstack(ctypes.byref(_Stack(ctypes.addressof(_kept[-1]), 0, SIZE)), None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
