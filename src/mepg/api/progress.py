"""What goes on around the steps of `learn`: a bar that moves, and Ctrl-C, which waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from rich.progress import MofNCompleteColumn, Progress


@contextlib.contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], None]]:
    """Ctrl-C in the middle of an update would take the networks with it: let it wait for the step, once.

    Gives a function that raises KeyboardInterrupt if it has come. Where others handle the signal, or in
    another thread, it is left to them.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    interrupted = False

    def note(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield check
        check()  # in the last step
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar; gives the function that moves it."""
    if not shown:
        yield lambda _: None
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn()) as progress:
        task = progress.add_task("learning", total=total)
        yield lambda steps: progress.advance(task, steps)
