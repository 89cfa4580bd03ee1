"""Ctrl-C and SIGTERM, for every kind of process.

The first signal asks a process of `mepg` that has something to save to stop; the second ends it at once. In a user's
process, Ctrl-C is still a KeyboardInterrupt, but waits for the current step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any


def status_of(name: str) -> int:
    """The exit status of a process that this signal ended."""
    return 128 + signal.Signals[name]


def end_at_once(number: int, _: types.FrameType | None = None) -> None:
    """Exit with hardly any clean-up: files are whole or absent, and an orderly exit may crash in JAX."""
    show_cursor = b"\x1b[?25h\n" if os.isatty(_stderr()) else b""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(_stderr(), show_cursor + b"mepg: interrupted; what was saved is safe\n")
    for clean_up in reversed(_at_the_end):
        with contextlib.suppress(Exception):
            clean_up()
    os._exit(128 + number)


@contextlib.contextmanager
def cleaning_up(clean_up: Callable[[], object]) -> Iterator[None]:
    """Call this at the end of the block, also if a signal ends the process at once meanwhile."""
    _at_the_end.append(clean_up)
    try:
        yield
    finally:
        _at_the_end.remove(clean_up)
        clean_up()


_at_the_end: list[Callable[[], object]] = []


def ending_at_once() -> contextlib.AbstractContextManager[None]:
    """Let a signal end the process at once, while there is nothing to save."""
    _stderr()
    return _handled_by(end_at_once)


def ends_at_once() -> bool:
    """Whether a signal would end the process at once now."""
    return signal.getsignal(signal.SIGTERM) is end_at_once


class Stop:
    """Whether this process has been asked to stop, and by which signal."""

    by: str | None = None


@contextlib.contextmanager
def stopping(act: Callable[[int], None] = lambda _: None) -> Iterator[Stop]:
    """Call `act` at the first signal, and note it; end the process at once at the second."""
    stop = Stop()

    def note(number: int, _: types.FrameType | None) -> None:
        if stop.by is not None:
            end_at_once(number)
        stop.by = signal.Signals(number).name
        act(number)

    with _handled_by(note):
        yield stop


@contextlib.contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C wait for the current step, once: in the middle of an update it would destroy the networks.

    Gives a function that raises KeyboardInterrupt if Ctrl-C was pressed. In another thread, or if somebody else
    handles the signal, nothing is changed.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    interrupted = False

    def note(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the second does not wait

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    with _handled_by(note, signal.SIGINT):
        try:
            yield check
        except Exception as error:  # in a terminal, Ctrl-C may also have ended a process that the environment needs
            if interrupted:
                raise KeyboardInterrupt from error
            raise
        check()  # in the last step


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, types.FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals; SIGINT and SIGTERM if none is named."""
    _leave_forked_processes_alone()
    previous = {number: signal.signal(number, handler) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    outermost = {number: before for number, before in previous.items() if number not in _not_ours}
    _not_ours.update(outermost)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
        for number in outermost:
            _not_ours.pop(number, None)


_not_ours: dict[signal.Signals, Any] = {}  # of the signals that we handle: the handlers before ours


@functools.cache
def _leave_forked_processes_alone() -> None:
    """Let a process that is forked here, as an environment's `multiprocessing.Pool` does, be as any other.

    SIGTERM ends it: whoever sends it waits for that. Ctrl-C, which reaches every process in a terminal, does not: the
    environment still needs it in the step under way. Both are blocked until then: Python forgets what comes between
    the fork and the first line in the new process.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _not_ours)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def let_go() -> None:
        for number, before in _not_ours.items():
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else before)
        _not_ours.clear()
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=let_go)


@functools.cache
def _stderr() -> int:
    """A second descriptor of standard error: while PyBullet starts, the usual one is redirected to nowhere."""
    try:
        return os.dup(2)
    except OSError:  # there is none, and nobody to read it
        return os.open(os.devnull, os.O_WRONLY)
