"""A bar that moves with the steps of `learn`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import MofNCompleteColumn, Progress


@contextlib.contextmanager
def bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar; gives the function that moves it."""
    if not shown:
        yield lambda _: None
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn()) as progress:
        task = progress.add_task("learning", total=total)
        yield lambda steps: progress.advance(task, steps)
