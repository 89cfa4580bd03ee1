"""What `model.logger` is unless the user sets another: Stable-Baselines3's method names, our logs behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from mepg.api.arguments import as_python
from mepg.display import table
from mepg.storage.logs import TensorBoard

INFO, DEBUG = 20, 10  # levels, as in Python's logging


class Logger:
    """Collects values by name until `dump` writes them down."""

    def __init__(self, folder: Path | None = None, *, verbose: int = 0) -> None:
        self.dir = None if folder is None else str(folder)
        self.name_to_value: dict[str, Any] = {}
        self.verbose = verbose  # 0: nothing is printed; 2: debug messages too
        self._counts: dict[str, int] = {}
        self._excluded: dict[str, tuple[str, ...]] = {}  # where a value is not to go: "stdout", "tensorboard"
        self._console = Console(highlight=False)
        self._tensorboard = None if folder is None else TensorBoard(folder, [], 0, {})

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        self.name_to_value[key] = value
        self._excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())

    def record_mean(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        if value is not None:
            count, mean = self._counts.get(key, 0), self.name_to_value.get(key, 0.0)
            self._counts[key] = count + 1
            self.record(key, mean + (value - mean) / (count + 1), exclude)

    def dump(self, step: int = 0) -> None:
        """Print the numbers and texts that were recorded, and write the numbers to TensorBoard."""
        if self.verbose and (shown := self._row("stdout", int | float | str)):
            self._console.print(table(shown))
        if self._tensorboard is not None:
            self._tensorboard.add(self._row("tensorboard", int | float), step)
            self._tensorboard.sync()
        self.name_to_value, self._counts, self._excluded = {}, {}, {}

    def _row(self, place: str, kinds: Any) -> dict[str, Any]:
        values = {name: as_python(value) for name, value in self.name_to_value.items()}
        allowed = {name: value for name, value in values.items() if place not in self._excluded.get(name, ())}
        return {name: value for name, value in allowed.items() if isinstance(value, kinds)}

    def get_dir(self) -> str | None:
        return self.dir

    def log(self, *texts: Any, level: int = INFO) -> None:
        if self.verbose and level >= (INFO if self.verbose < 2 else DEBUG):
            self._console.print(*texts, markup=False)

    def debug(self, *texts: Any) -> None:
        self.log(*texts, level=DEBUG)

    info = warn = error = log

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()
