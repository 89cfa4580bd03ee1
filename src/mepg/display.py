"""What a person sees while a run goes on, or many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from mepg.engine.jobs import Job
from mepg.engine.jobs import Progress as Going
from mepg.engine.schedule import Failure
from mepg.run.loop import Record
from mepg.run.session import Session
from mepg.words import many

REFRESH = 0.25  # seconds


def _text(template: str) -> TextColumn:
    """A part of the line that stays whole; only the bar gives way where the terminal is narrow."""
    return TextColumn(template, table_column=Column(no_wrap=True))


def table(row: Mapping[str, float]) -> Table:
    """Metrics as Stable-Baselines3 shows them: a heading for each group, then its names and values."""
    shown = Table(box=box.ASCII, show_header=False, pad_edge=True)
    shown.add_column(no_wrap=True)
    shown.add_column(justify="right", no_wrap=True)
    group = ""
    for name, value in sorted(row.items()):
        if (heading := name.rpartition("/")[0]) != group:
            group = heading
            shown.add_row(f"{heading}/", "")
        shown.add_row(f"   {name.rpartition('/')[2]}", _number(value))
    return shown


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


class Display:
    """A live table and bar on a terminal; a line for each evaluation where there is none; nothing if quiet."""

    def __init__(self, session: Session, *, quiet: bool) -> None:
        self._session = session
        # stderr with --json: notes must not get lost, and must not get into the data
        self._console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._live = self._console.is_terminal and not quiet
        self._progress = Progress(
            _text("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            _text("{task.completed:,.0f}/{task.total:,.0f}"),
            _text("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            _text("{task.fields[evaluation]}"),
            console=self._console,
            speed_estimate_period=30,
            expand=True,
        )
        self._screen = Live(self._progress, console=self._console, auto_refresh=False)
        self._then = 0.0

    def __enter__(self) -> Self:
        session, config = self._session, self._session.config
        for note in session.notes:
            self._console.print(f"mepg: {note}", markup=False)
        if not self._quiet:
            self._console.print(
                f"{config.algorithm} on {config.env}, seed {config.seed} -> {session.folder.path}", markup=False
            )
            if config.envs > 1:
                self._console.print(session.loop.pace)
        if self._live:
            self._screen.start()
            self._task = self._progress.add_task(
                "compiling", total=config.steps, completed=session.started_at, speed="", evaluation=""
            )
            self._screen.refresh()
        self._began, self._first = time.monotonic(), self._session.loop.step
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._screen.stop()

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
            self._draw()
        if self._live and record.step == self._session.config.steps:
            self._progress.update(self._task, completed=record.step)
            self._draw()

    def _draw(self) -> None:
        latest = self._session.latest
        self._screen.update(Group(table(latest), self._progress) if latest else self._progress, refresh=True)


class Board:
    """Many runs: a bar for each that goes on and one for the whole; lines where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], finished: int, *, quiet: bool) -> None:
        self._console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._quiet = quiet
        self._steps = sum(job.config.steps for job in jobs)
        self._runs, self._finished_before = len(jobs) + finished, finished
        self._done: dict[Job, int] = {}
        self._said = (0, 0)
        self._progress = Progress(
            _text("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            _text("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            _text("{task.fields[note]}"),
            console=self._console,
            disable=not self._live,
            speed_estimate_period=300,
            expand=True,
        )
        self._whole = self._progress.add_task("all", total=self._steps, note="")
        self._bars: dict[Job, TaskID] = {}

    def __enter__(self) -> Self:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def show(self, going_on: dict[Job, Going], finished: int, failures: Sequence[Failure]) -> None:
        """One more look at the runs."""
        failed = len(failures)
        for job in self._bars.keys() - going_on.keys():
            self._progress.remove_task(self._bars.pop(job))
            self._done[job] = job.config.steps
        for job, going in going_on.items():
            if job not in self._bars:
                self._bars[job] = self._progress.add_task(job.folder.name, total=job.config.steps, note="")
            note = "" if going.last_return is None else f"return {going.last_return:,.1f}"
            self._progress.update(self._bars[job], completed=going.step, note=note)
            self._done[job] = going.step
        count = f"{self._finished_before + finished}/{many(self._runs, 'run')}" + (
            f", {failed} failed" if failed else ""
        )
        self._progress.update(self._whole, completed=sum(self._done.values()), note=count)
        if not self._live and not self._quiet and (finished, failed) != self._said:
            self._said = finished, failed
            self._console.print(count, markup=False)
