"""What `model.logger` is unless the user sets another: Stable-Baselines3's method names, our logs behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from mepg.display import table
from mepg.run.logs import TensorBoard


class Logger:
    """Collects values by name until `dump` writes them down."""

    def __init__(self, folder: Path | None = None, *, verbose: int = 0) -> None:
        self.dir = None if folder is None else str(folder)
        self.name_to_value: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._verbose = verbose
        self._console = Console(highlight=False)
        self._tensorboard = None if folder is None else TensorBoard(folder, [], 0, {})

    def record(self, key: str, value: Any, exclude: Any = None) -> None:  # noqa: ARG002
        self.name_to_value[key] = value

    def record_mean(self, key: str, value: Any, exclude: Any = None) -> None:  # noqa: ARG002
        if value is not None:
            count, mean = self._counts.get(key, 0), self.name_to_value.get(key, 0.0)
            self._counts[key] = count + 1
            self.name_to_value[key] = mean + (value - mean) / (count + 1)

    def dump(self, step: int = 0) -> None:
        row = {name: value for name, value in self.name_to_value.items() if isinstance(value, int | float)}
        if self._verbose and row:
            self._console.print(table(row))
        if self._tensorboard is not None:
            self._tensorboard.add(row, step)
            self._tensorboard.sync()
        self.name_to_value, self._counts = {}, {}

    def get_dir(self) -> str | None:
        return self.dir

    def log(self, *texts: Any, level: int = 20) -> None:  # noqa: ARG002
        if self._verbose:
            self._console.print(*texts, markup=False)

    info = debug = warn = error = log

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()
