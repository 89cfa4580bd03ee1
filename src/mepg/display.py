"""What the terminal shows while one run, or many, are in progress."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBars
from rich.table import Column, Table

from mepg.run.session import Session
from mepg.scheduler.jobs import Job, Progress
from mepg.scheduler.schedule import Failure
from mepg.training.loop import Record
from mepg.words import many

REFRESH = 0.25  # seconds


def table(metrics: Mapping[str, float | str]) -> Table:
    """Metrics as Stable-Baselines3 shows them: a heading for each group, then its names and values."""
    rendered = Table(box=box.ASCII, show_header=False, pad_edge=True)
    rendered.add_column(no_wrap=True)
    rendered.add_column(justify="right", no_wrap=True)
    group = ""
    for name, value in sorted(metrics.items()):
        if (heading := name.rpartition("/")[0]) != group:
            group = heading
            rendered.add_row(f"{heading}/", "")
        rendered.add_row(f"   {name.rpartition('/')[2]}", _number(value))
    return rendered


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _bars(console: Console, *texts: str, period: float) -> ProgressBars:
    """Progress bars between texts. On a narrow terminal the bar shrinks and the texts stay whole."""
    first, *middle, last = (TextColumn(text, table_column=Column(no_wrap=True)) for text in texts)
    bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
    remaining = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
    return ProgressBars(
        first, bar, *middle, remaining, last, console=console, speed_estimate_period=period, expand=True
    )


class _LiveView:
    """A display that is redrawn on a terminal, prints lines elsewhere, and nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        # With --json, notes go to stderr: they must not get lost, nor into the data.
        self._console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._screen: Live | ProgressBars

    def __enter__(self) -> Self:
        if self._live:
            self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._screen.stop()


@contextlib.contextmanager
def preparing(*, quiet: bool) -> Iterator[None]:
    """Show a line on a terminal while a run is set up and compiled."""
    console = Console(highlight=False)
    if quiet or not console.is_terminal:
        yield
        return
    text = "preparing (compiling takes longer the first time)"
    with Live(text, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield


class Display(_LiveView):
    """One run: a table and a bar, or a line for each evaluation."""

    def __init__(self, session: Session, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._session = session
        texts = "{task.completed:,.0f}/{task.total:,.0f}", "{task.fields[speed]}", "{task.fields[evaluation]}"
        self._bars = _bars(self._console, "{task.description}", *texts, period=30)
        self._screen = self._table = Live(self._bars, console=self._console, auto_refresh=False)
        self._refreshed_at = 0.0

    def __enter__(self) -> Self:
        session, config = self._session, self._session.config
        for note in session.notes:
            self._console.print(f"mepg: {note}", markup=False)
        if not self._quiet:
            title = f"{config.algorithm} on {config.env}, seed {config.seed} -> {session.folder.path}"
            self._console.print(title, markup=False)
            if config.envs > 1:
                self._console.print(session.loop.pace)
        super().__enter__()
        if self._live:
            done = session.started_at
            self._task = self._bars.add_task("compiling", total=config.steps, completed=done, speed="", evaluation="")
            self._table.refresh()
        self._started_at, self._first_step = time.monotonic(), session.loop.step
        return self

    def show(self, record: Record) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if record.evaluation is not None:
            mean = float(np.mean([episode.return_ for episode in record.evaluation]))
            if self._live:
                self._bars.update(self._task, evaluation=f"return {mean:,.1f}")
            else:
                average = (record.step - self._first_step) / (now - self._started_at)
                self._console.print(f"step {record.step:>9,}   return {mean:10,.1f}   {average:,.0f} steps/s")
        last = record.step == self._session.config.steps
        if self._live and (last or now - self._refreshed_at > REFRESH):
            self._refreshed_at = now
            speed = self._bars.tasks[0].speed
            phase = "training" if record.step > self._session.config.spec.warmup else "warming up"
            steps_per_second = f"{speed:,.0f} steps/s" if speed else ""
            self._bars.update(self._task, completed=record.step, description=phase, speed=steps_per_second)
            latest = self._session.latest
            self._table.update(Group(table(latest), self._bars) if latest else self._bars, refresh=True)


class JobsDisplay(_LiveView):
    """Many runs: a bar for each run in progress and one for all, or a line whenever a run ends."""

    def __init__(self, jobs: Sequence[Job], finished: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._total, self._finished_before = len(jobs) + finished, finished
        self._steps: dict[Job, int] = {}
        self._printed = (0, 0)  # how many have finished and failed
        texts = "{task.description}", "{task.percentage:>3.0f}%", "{task.fields[note]}"
        self._screen = self._bars = _bars(self._console, *texts, period=300)
        self._overall = self._bars.add_task("all", total=sum(job.config.steps for job in jobs), note="")
        self._tasks: dict[Job, TaskID] = {}

    def show(self, running: dict[Job, Progress], finished: int, failures: Sequence[Failure]) -> None:
        failed = len(failures)
        for job in self._tasks.keys() - running.keys():
            self._bars.remove_task(self._tasks.pop(job))
            self._steps[job] = job.config.steps
        for job, progress in running.items():
            if job not in self._tasks:
                self._tasks[job] = self._bars.add_task(job.folder.name, total=job.config.steps, note="")
            note = "" if progress.last_return is None else f"return {progress.last_return:,.1f}"
            self._bars.update(self._tasks[job], completed=progress.step, note=note)
            self._steps[job] = progress.step
        count = f"{self._finished_before + finished}/{many(self._total, 'run')}"
        count += f", {failed} failed" if failed else ""
        self._bars.update(self._overall, completed=sum(self._steps.values()), note=count)
        if not self._live and not self._quiet and (finished, failed) != self._printed:
            self._printed = finished, failed
            self._console.print(count, markup=False)
