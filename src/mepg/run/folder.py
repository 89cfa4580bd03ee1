"""A run's folder: what it is, what it measured, and what came of it.

    run.json            the config and the versions it was started with
    evaluations.npz     `timesteps`, `results`, `ep_lengths`, as Stable-Baselines3 lays them out
    metrics.csv         a row for every 1,000 steps, with Stable-Baselines3's names
    events.out.*        the same for TensorBoard
    checkpoints/, replay/   see `checkpoint`; `replay/` goes when the run is finished
    policy.safetensors  the final networks, with all that is needed to use them
    result.json, curve.png  written last: a run that has them is finished
"""

from __future__ import annotations

import csv
import fcntl
import io
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mepg.errors import UsageError
from mepg.run.config import Config
from mepg.run.evaluate import Episode
from mepg.run.files import Damaged, not_writable, read_json, write_json, write_whole

FORMAT = 1


class Folder:
    """The names of a run's files, and the few of them that are small."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "run.json"
        self.evaluations_file = path / "evaluations.npz"
        self.metrics_file = path / "metrics.csv"
        self.policy_file = path / "policy.safetensors"
        self.result_file = path / "result.json"
        self.curve_file = path / "curve.png"

    def config(self) -> Config:
        """The config of the run in this folder."""
        if not self.config_file.is_file():
            raise UsageError(f"{self.path} holds no run: there is no {self.config_file.name} in it")
        try:
            data = read_json(self.config_file)
        except Damaged as damage:
            raise UsageError(f"{self.path} holds a damaged run: {damage}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UsageError(f"{self.config_file} is not of format {FORMAT}: it was written by another version of mepg")
        try:
            return Config.from_json(data.get("config"))
        except UsageError as error:
            raise UsageError(f"{self.config_file}: {error}") from None

    def versions(self) -> dict[str, str]:
        """What the run was started with."""
        found = read_json(self.config_file).get("versions")
        return found if isinstance(found, dict) else {}

    def check_free_for(self, config: Config) -> None:
        """Refuse a folder that holds anything but this very run."""
        try:
            if not self.path.exists() or not any(self.path.iterdir()):
                return
        except OSError as error:
            raise not_writable(self.path, error) from None
        if not self.config_file.exists():
            raise UsageError(f"{self.path} holds other files; choose another --out")
        ours, theirs = _flat(config.to_json()), _flat(self.config().to_json())
        different = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        if different:
            shown = ", ".join(f"{n}={theirs.get(n)} there, {ours.get(n)} here" for n in different[:3])
            raise UsageError(f"{self.path} holds another run ({shown}); choose another --out")

    def claim(self, config: Config) -> TextIO:
        """Make the folder and lock it for as long as the file that is given back is open."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{self.path} is in use: another process is training there") from None
            if not self.config_file.exists():
                write_json(self.config_file, {"format": FORMAT, "config": config.to_json(), "versions": versions()})
        except OSError as error:
            raise not_writable(self.path, error) from None
        return lock

    def result(self) -> dict[str, Any] | None:
        """What the run came to, or None while it is not finished."""
        if not self.result_file.exists():
            return None
        try:
            result = read_json(self.result_file)
        except Damaged as damage:
            raise UsageError(f"{self.path} holds a finished run whose result is damaged: {damage}") from None
        return result if isinstance(result, dict) else None


class Evaluations:
    """evaluations.npz: all evaluations so far, rewritten as a whole with each."""

    def __init__(self, path: Path, upto: int) -> None:
        self.path = path
        self.timesteps: list[int] = []
        self.results: list[list[float]] = []
        self.lengths: list[list[int]] = []
        if upto == 0:
            return
        try:
            with np.load(path, allow_pickle=False) as file:
                kept = file["timesteps"] <= upto
                self.timesteps = file["timesteps"][kept].tolist()
                self.results = file["results"][kept].tolist()
                self.lengths = file["ep_lengths"][kept].tolist()
        except FileNotFoundError:
            return

    def add(self, step: int, episodes: list[Episode]) -> None:
        self.timesteps.append(step)
        self.results.append([episode.total for episode in episodes])
        self.lengths.append([episode.length for episode in episodes])
        content = io.BytesIO()
        np.savez(
            content,
            timesteps=np.array(self.timesteps),
            results=np.array(self.results),
            ep_lengths=np.array(self.lengths),
        )
        write_whole(self.path, content.getvalue())

    def means(self) -> list[float]:
        return [float(np.mean(row)) for row in self.results]


class MetricsFile:
    """metrics.csv, appended to. Only its `time/` columns depend on the machine."""

    def __init__(self, path: Path, columns: list[str], upto: int) -> None:
        kept = []
        if upto and path.exists():
            # Rows after the checkpoint, the last of which may be cut short, will come again.
            with path.open(newline="") as old:
                kept = [row for row in csv.reader(old) if len(row) == len(columns) and row[0].isdigit()]
            kept = [row for row in kept if int(row[0]) <= upto]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([columns, *kept])
        write_whole(path, text.getvalue().encode())
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, columns, restval="", lineterminator="\n")

    def add(self, row: dict[str, float]) -> None:
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def versions() -> dict[str, str]:
    """What bits may depend on."""
    packages = ("mepg", "jax", "jaxlib", "optax", "numpy", "gymnasium")
    return {"python": platform.python_version(), "machine": platform.machine(), **{p: version(p) for p in packages}}


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
