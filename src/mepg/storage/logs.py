"""Where a run's metrics go: metrics.csv, TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter

from mepg.errors import UsageError, unknown
from mepg.storage.files import Damaged, JsonObject, path_exists, write_atomic
from mepg.storage.folder import Folder
from mepg.system import sync

MetricsRow = dict[str, float]


class Log(Protocol):
    """A destination of metrics."""

    def add(self, row: MetricsRow, step: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Csv:
    """metrics.csv: a row for every 1,000 steps, of which only the `time/` columns depend on the machine.

    Evaluations have a file of their own.
    """

    def __init__(self, folder: Path, columns: list[str], upto: int) -> None:
        path, kept = Folder(folder).metrics_file, list[dict[str, str]]()
        if upto and path_exists(path):
            # Rows after the checkpoint will be written again.
            try:
                rows = Folder(folder).metrics()
            except Damaged as damage:
                raise UsageError(f"{path} cannot be continued: {damage}; move it away") from None
            kept = [row for row in rows if (step := row.get(columns[0], "")).isdecimal() and int(step) <= upto]
        text = io.StringIO()
        # Another version of mepg may have begun the file with other columns.
        writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        write_atomic(path, text.getvalue().encode())
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, columns, restval="", lineterminator="\n")

    def add(self, row: MetricsRow, step: int) -> None:
        if any(name.startswith("eval/") for name in row):
            return
        self._writer.writerow({"time/total_timesteps": step, **row})  # a ValueError for what has no column
        self._file.flush()

    def sync(self) -> None:
        sync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """events.out.*, with Stable-Baselines3's tags. What came after the checkpoint of step `upto` is purged.

    Each row is written at once. tensorboardX's own writer leaves that to a thread: on a full disk the thread dies,
    and whoever adds to its queue waits for ever.
    """

    def __init__(self, folder: Path, upto: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = RecordWriter(str(_next_events_file(folder)))
        weakref.finalize(self, self._file.close)  # a model in Python never closes its log
        self._write(Event(file_version="brain.Event:2"))
        if upto:
            self._write(Event(step=upto + 1, session_log=SessionLog(status=SessionLog.START)))

    def add(self, row: MetricsRow, step: int) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._write(Event(step=step, summary=Summary(value=values)))
        self._file.flush()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._file.write(event.SerializeToString())

    def sync(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _next_events_file(folder: Path) -> Path:
    """TensorBoard reads a folder's files in the order of their names: a new file's number is always the largest.

    That holds even if the clock was set back.
    """
    earlier = [path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*.*")]
    seconds = max([int(time.time()), *(int(number) + 1 for number in earlier if number.isdecimal())])
    return folder / f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}"


class WeightsAndBiases:
    """One run of Weights & Biases for each folder, however often it is resumed."""

    def __init__(self, folder: Path, config: JsonObject) -> None:
        try:
            import wandb
        except ImportError:
            raise UsageError("--log wandb needs Weights & Biases: pip install 'mepg[wandb]'") from None
        run_id = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        try:
            self._run = wandb.init(
                project="mepg", name=folder.name, id=run_id, resume="allow", dir=str(folder), config=config
            )
        except wandb.errors.Error as error:
            raise UsageError(f"Weights & Biases: {error}; WANDB_MODE=offline needs no account") from None
        self._run.define_metric("*", step_metric="time/total_timesteps")

    def add(self, row: MetricsRow, step: int) -> None:
        self._run.log({"time/total_timesteps": step, **row})

    def sync(self) -> None:
        pass  # its own process does that

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, Callable[[Path, list[str], int, JsonObject], Log]] = {
    "csv": lambda folder, columns, upto, _: Csv(folder, columns, upto),
    "tensorboard": lambda folder, _, upto, __: TensorBoard(folder, upto),
    "wandb": lambda folder, _, __, config: WeightsAndBiases(folder, config),
}


def require_known_logs(names: Sequence[str]) -> None:
    """A UsageError if one of them is not known."""
    for name in names:
        if name not in LOGS:
            raise unknown("log", name, LOGS, hint=f" (known: {', '.join(LOGS)})")


def open_logs(
    names: Sequence[str],
    folder: Path,
    columns: list[str],
    upto: int,
    config: JsonObject,
    stack: contextlib.ExitStack,
) -> list[Log]:
    """The logs of these names, which go on after step `upto` and are closed with the stack."""
    return [stack.enter_context(contextlib.closing(LOGS[name](folder, columns, upto, config))) for name in names]
