"""Where a run's metrics go: metrics.csv, TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tensorboardX import SummaryWriter

from mepg.errors import UsageError, unknown
from mepg.run.folder import MetricsFile

Row = dict[str, float]


class Log(Protocol):
    """One place where they go."""

    def add(self, row: Row, step: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Csv:
    """A row for every 1,000 steps; evaluations have a file of their own."""

    def __init__(self, folder: Path, columns: list[str], upto: int, _: dict[str, Any]) -> None:
        self._columns = set(columns)
        self._file = MetricsFile(folder / "metrics.csv", columns, upto)

    def add(self, row: Row, step: int) -> None:
        if self._columns.issuperset(row):
            self._file.add({"time/total_timesteps": step, **row})

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """events.out.*, with Stable-Baselines3's tags. What came after the checkpoint of step `upto` is purged."""

    def __init__(self, folder: Path, _: list[str], upto: int, __: dict[str, Any]) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=upto + 1 if upto else None)

    def add(self, row: Row, step: int) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def sync(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """One run there for each folder here, however often it is resumed."""

    def __init__(self, folder: Path, _: list[str], __: int, config: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise UsageError("--log wandb needs Weights & Biases: pip install 'mepg[wandb]'") from None
        identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        try:
            self._run = wandb.init(
                project="mepg", name=folder.name, id=identity, resume="allow", dir=str(folder), config=config
            )
        except wandb.errors.Error as error:
            raise UsageError(f"Weights & Biases: {error}; WANDB_MODE=offline needs no account") from None
        self._run.define_metric("*", step_metric="time/total_timesteps")

    def add(self, row: Row, step: int) -> None:
        self._run.log({"time/total_timesteps": step, **row})

    def sync(self) -> None:
        pass  # it has a process of its own for that

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, Callable[[Path, list[str], int, dict[str, Any]], Log]] = {
    "csv": Csv,
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
DEFAULT = ("csv", "tensorboard")


def check(names: Sequence[str]) -> None:
    """A UsageError if one of them is not known."""
    for name in names:
        if name not in LOGS:
            raise unknown("log", name, LOGS, hint=f" (known: {', '.join(LOGS)})")


def open_logs(
    names: Sequence[str],
    folder: Path,
    columns: list[str],
    upto: int,
    config: dict[str, Any],
    stack: contextlib.ExitStack,
) -> list[Log]:
    """The logs of these names, which go on after step `upto` and are closed with the stack."""
    return [stack.enter_context(contextlib.closing(LOGS[name](folder, columns, upto, config))) for name in names]
