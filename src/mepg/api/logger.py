"""What `model.logger` is unless the user sets another: Stable-Baselines3's method names, our logs behind them."""

from __future__ import annotations

import glob
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from mepg.api.arguments import as_python
from mepg.display import table
from mepg.errors import UsageError
from mepg.storage.logs import TensorBoard
from mepg.training.loop import Loop

INFO, DEBUG = 20, 10  # levels, as in Python's logging


class Logger:
    """Collects values by name until `dump` writes them."""

    def __init__(self, folder: Path | None = None, *, verbose: int = 0) -> None:
        self.dir = None if folder is None else str(folder)
        self.name_to_value: dict[str, Any] = {}
        self.verbose = verbose  # 0: nothing is printed; 2: debug messages too
        self._counts: dict[str, int] = {}
        self._excluded: dict[str, tuple[str, ...]] = {}  # where a value does not go: "stdout", "tensorboard"
        self._console = Console(highlight=False)
        self._tensorboard = None if folder is None else TensorBoard(folder)

    def record(self, key: str, value: object, exclude: str | tuple[str, ...] | None = None) -> None:
        self.name_to_value[key] = value
        self._excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())

    def record_mean(self, key: str, value: object, exclude: str | tuple[str, ...] | None = None) -> None:
        if value is not None:
            count, mean = self._counts.get(key, 0), self.name_to_value.get(key, 0.0)
            self._counts[key] = count + 1
            self.record(key, mean + (value - mean) / (count + 1), exclude)

    def dump(self, step: int = 0) -> None:
        """Print the numbers and texts that were recorded, and write the numbers to TensorBoard."""
        if self.verbose and (shown := self._values_for("stdout", int | float | str)):
            self._console.print(table(shown))
        if self._tensorboard is not None:
            self._tensorboard.add(self._values_for("tensorboard", int | float), step)
            self._tensorboard.sync()
        self.name_to_value, self._counts, self._excluded = {}, {}, {}

    def _values_for(self, output: str, kinds: Any) -> dict[str, Any]:
        values = {name: as_python(value) for name, value in self.name_to_value.items()}
        allowed = {name: value for name, value in values.items() if output not in self._excluded.get(name, ())}
        return {name: value for name, value in allowed.items() if isinstance(value, kinds)}

    def get_dir(self) -> str | None:
        return self.dir

    def log(self, *args: Any, level: int = INFO) -> None:
        if self.verbose and level >= (INFO if self.verbose < 2 else DEBUG):
            self._console.print(*args, markup=False)

    def debug(self, *args: Any) -> None:
        self.log(*args, level=DEBUG)

    info = warn = error = log

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()


class TrainingLog:
    """The log of a model's training: its logger, which the user may replace, and the speed since the last row."""

    def __init__(self, verbose: int) -> None:
        self.logger: Any = Logger(verbose=verbose)  # anything with `record` and `dump`
        self._is_custom = False
        self._last = (0, 0.0)  # the step and the time of the last row

    def set_logger(self, logger: object) -> None:
        if not (callable(getattr(logger, "record", None)) and callable(getattr(logger, "dump", None))):
            raise UsageError(f"a logger has the methods record and dump, and {logger!r:.80} has not")
        self.logger, self._is_custom = logger, True

    def begin(self, loop: Loop, folder: Path | None, verbose: int) -> None:
        """Begin a call of `learn`, which is logged to TensorBoard in `folder`."""
        self._last = loop.step, time.monotonic()
        if self._is_custom:
            return
        if self.logger.dir != (folder and str(folder)):
            self.logger.close()
            self.logger = Logger(folder)
        self.logger.verbose = verbose
        self.logger.log(loop.pace)

    def write(self, loop: Loop, num_timesteps: int) -> None:
        """A row of metrics."""
        now = time.monotonic()
        (step, before), self._last = self._last, (loop.step, now)
        metrics = loop.report() | {
            "time/fps": int((loop.step - step) / max(now - before, 1e-9)),
            "time/total_timesteps": num_timesteps,
        }
        for name, value in metrics.items():
            self.logger.record(name, value)
        self.logger.dump(num_timesteps)


def log_folder(base: str | Path | None, name: str, *, new: bool) -> Path | None:
    """base/ME_SAC_1, ME_SAC_2, ...: the next of these that is free, or the latest if it is not to be a new one."""
    if base is None:
        return None
    numbers = [path.name.removeprefix(f"{name}_") for path in Path(base).glob(f"{glob.escape(name)}_*")]
    latest = max((int(number) for number in numbers if number.isdecimal()), default=0)
    return Path(base) / f"{name}_{latest + 1 if new or not latest else latest}"
