"""Ctrl-C and SIGTERM.

In a process of `mepg` that has something to save, the first signal asks it to stop and the second ends it at once. In a
user's process, Ctrl-C is still a KeyboardInterrupt, but waits for the end of the current step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def signal_exit_status(name: str) -> int:
    """The exit status of a process that the signal of this name ended, as a shell reports it."""
    return 128 + signal.Signals[name]


def exit_immediately(number: int, _: types.FrameType | None = None) -> None:
    """Exit with hardly any clean-up: files are whole or absent, and an orderly exit may crash in JAX."""
    if _deferred:
        _deferred.append(number)
        return
    show_cursor = b"\x1b[?25h\n" if os.isatty(_stderr()) else b""
    with contextlib.suppress(OSError):  # standard error may be closed
        os.write(_stderr(), show_cursor + b"mepg: interrupted; what was saved is safe\n")
    for clean_up in reversed(_clean_ups):
        with contextlib.suppress(Exception):
            clean_up()
    os._exit(128 + number)


@contextlib.contextmanager
def cleaning_up(clean_up: Callable[[], object]) -> Iterator[None]:
    """Call `clean_up` at the end of the block, also if a signal ends the process at once."""
    _clean_ups.append(clean_up)
    try:
        yield
    finally:
        _clean_ups.remove(clean_up)
        clean_up()


_clean_ups: list[Callable[[], object]] = []


@contextlib.contextmanager
def exit_deferred() -> Iterator[None]:
    """Let a signal that would end the process at once wait for the end of the block.

    To start a process in: if a signal came between its start and `cleaning_up`, it would go on without us.
    """
    _deferred.append(0)
    try:
        yield
    finally:
        signals = [number for number in _deferred if number]
        _deferred.clear()
        if signals:
            exit_immediately(signals[0])


@contextlib.contextmanager
def process_group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that ends with this one: at the end of the block it is killed, and all that it has started.

    The same happens if a signal ends this process at once. `options`: see `subprocess.Popen`.
    """
    with contextlib.ExitStack() as stack:
        with exit_deferred():
            process = subprocess.Popen(command, start_new_session=True, **options)
            stack.enter_context(process)
            stack.enter_context(cleaning_up(lambda: _kill_group(process)))
        yield process


def _kill_group(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:  # else its number may be another's by now
        os.killpg(process.pid, signal.SIGKILL)


_deferred: list[int] = []  # in such a block: 0, and the signals that have come since


def exit_on_signal() -> contextlib.AbstractContextManager[None]:
    """Let a signal end the process at once. Used while there is nothing to save."""
    _stderr()
    return _handled_by(exit_immediately)


def exits_on_signal() -> bool:
    """Whether a signal would now end the process at once."""
    return signal.getsignal(signal.SIGTERM) is exit_immediately


class StopRequest:
    """Whether a signal has asked this process to stop."""

    by: str | None = None  # the signal's name


@contextlib.contextmanager
def stop_on_signal(on_stop: Callable[[int], None] = lambda _: None) -> Iterator[StopRequest]:
    """Record the first signal and call `on_stop` with its number; the second ends the process at once."""
    stop = StopRequest()

    def handle(number: int, _: types.FrameType | None) -> None:
        if stop.by is not None:
            exit_immediately(number)
        stop.by = signal.Signals(number).name
        on_stop(number)

    with _handled_by(handle):
        yield stop


@contextlib.contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], None]]:
    """Delay the first Ctrl-C until the current step ends: in the middle of an update it would destroy the networks.

    Yields a function that raises KeyboardInterrupt if Ctrl-C was pressed. In another thread, or if other code handles
    the signal, nothing is changed.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    interrupted = False

    def handle(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the second Ctrl-C is not delayed

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    with _handled_by(handle, signal.SIGINT):
        try:
            yield check
        except Exception as error:  # in a terminal, Ctrl-C may also have ended a process that the environment needs
            if interrupted:
                raise KeyboardInterrupt from error
            raise
        check()  # for one pressed in the last step


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, types.FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals; SIGINT and SIGTERM if none is named."""
    _restore_handlers_in_forks()
    previous = {number: signal.signal(number, handler) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    outermost = {number: before for number, before in previous.items() if number not in _previous_handlers}
    _previous_handlers.update(outermost)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
        for number in outermost:
            _previous_handlers.pop(number, None)


_previous_handlers: dict[signal.Signals, Any] = {}  # those that were set before ours, by signal


@functools.cache
def _restore_handlers_in_forks() -> None:
    """Give a forked process, such as a worker of an environment's `multiprocessing.Pool`, the handlers before ours.

    There, SIGTERM ends the process, because its parent waits for that. Ctrl-C, which reaches every process in a
    terminal, is ignored, because the environment still needs the process in the current step. Both are blocked during
    the fork: Python loses a signal that arrives between the fork and the first line of the new process.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _previous_handlers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        for number, before in _previous_handlers.items():
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else before)
        _previous_handlers.clear()
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


@functools.cache
def _stderr() -> int:
    """A duplicate of standard error: while PyBullet starts, descriptor 2 is redirected to /dev/null."""
    try:
        return os.dup(2)
    except OSError:  # it is closed
        return os.open(os.devnull, os.O_WRONLY)
