"""What a person sees while a run goes on."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from mepg.run.loop import Record
from mepg.run.session import Session

REFRESH = 0.25  # seconds


def _text(template: str) -> TextColumn:
    """A part of the line that stays whole; only the bar gives way where the terminal is narrow."""
    return TextColumn(template, table_column=Column(no_wrap=True))


class Display:
    """A live bar on a terminal; a line for each evaluation where there is none; nothing if quiet."""

    def __init__(self, session: Session, *, quiet: bool) -> None:
        self._session = session
        # stderr with --json: notes must not get lost, and must not get into the data
        self._console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._live = self._console.is_terminal and not quiet and session.result is None
        self._progress = Progress(
            _text("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            _text("{task.completed:,.0f}/{task.total:,.0f}"),
            _text("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            _text("{task.fields[evaluation]}"),
            console=self._console,
            disable=not self._live,
            speed_estimate_period=30,
            expand=True,
        )
        self._then = 0.0

    def __enter__(self) -> Self:
        session, config = self._session, self._session.config
        for note in session.notes:
            self._console.print(f"mepg: {note}", markup=False)
        if session.result is None and not self._quiet:
            self._console.print(
                f"{config.algorithm} on {config.env}, seed {config.seed} -> {session.folder.path}", markup=False
            )
        if self._live:
            self._progress.start()
            self._task = self._progress.add_task(
                "compiling", total=config.steps, completed=session.started_at, speed="", evaluation=""
            )
        self._began, self._first = time.monotonic(), self._session.loop.step if session.result is None else 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def show(self, record: Record) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if record.evaluation is not None:
            mean = float(np.mean([episode.total for episode in record.evaluation]))
            if self._live:
                self._progress.update(self._task, evaluation=f"return {mean:,.1f}")
            else:
                average = (record.step - self._first) / (now - self._began)
                self._console.print(f"step {record.step:>9,}   return {mean:10,.1f}   {average:,.0f} steps/s")
        if self._live and now - self._then > REFRESH:
            self._then = now
            warm = record.step > self._session.config.spec.warmup
            speed = self._progress.tasks[0].speed
            self._progress.update(
                self._task,
                completed=record.step,
                description="training" if warm else "warming up",
                speed=f"{speed:,.0f} steps/s" if speed else "",
            )
        if self._live and record.step == self._session.config.steps:
            self._progress.update(self._task, completed=record.step)
