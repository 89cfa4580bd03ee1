"""How many cores a process may use, and signals off the heap."""

import ctypes
import os
import signal
import sys
import threading

import jax
import pytest

from mepg.errors import UsageError
from mepg.run.threads import DISABLED, FAULTS, _Stack, limit_threads, signals_off_the_heap


@pytest.mark.parametrize("threads", [0, -1, 10_000])
def test_more_than_there_are_cannot_be_used(threads):
    with pytest.raises(UsageError, match=r"threads must be in \[1, "):
        limit_threads(threads)


def test_what_was_set_for_jax_is_the_users_again(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    before = jax.config.values["jax_cpu_enable_async_dispatch"]
    limit_threads(1)
    assert os.environ["NPROC"] == "7"
    assert jax.config.values["jax_cpu_enable_async_dispatch"] == before
    monkeypatch.delenv("NPROC")
    limit_threads(1)
    assert "NPROC" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has these stacks")
def test_signals_have_a_stack_and_new_threads_hear_none():
    blocked, before = [], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    thread = threading.Thread(target=lambda: blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    with signals_off_the_heap():
        thread.start()
    thread.join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= blocked[0]
    assert not FAULTS & blocked[0], "a fault has to be seen where it happens"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    stack = _Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    assert not stack.flags & DISABLED
