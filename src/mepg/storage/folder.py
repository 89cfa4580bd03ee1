"""A run's folder: what it is, what it measured, and what came of it.

run.json            the config and the versions it was started with
evaluations.npz     `timesteps`, `results`, `ep_lengths`, as Stable-Baselines3 lays them out
metrics.csv         a row for every 1,000 steps, with Stable-Baselines3's names
events.out.*        the same for TensorBoard
checkpoints/, replay/   see `checkpoint`; `replay/` goes when the run is finished, unless it is to be kept
policy.safetensors  the final networks, with all that is needed to use them
best.safetensors    those of the best evaluation so far, with its step and return
result.json, curve.png  written last: a run that has them is finished
inspect.json, inspect.png   what `mepg inspect` found, if anyone asked
"""

from __future__ import annotations

import contextlib
import csv
import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.native.build import CannotBuild, compiler_version
from mepg.native.processor import best_instructions
from mepg.settings import digest
from mepg.storage.files import (
    Arrays,
    Checksum,
    Damaged,
    JsonObject,
    acquire,
    checksum,
    list_names,
    not_writable,
    open_lock,
    path_exists,
    read_npz,
    read_prefix,
    read_sealed,
    read_whole,
    require_trusted_env,
    write_npz,
    write_sealed,
)
from mepg.storage.identity import Identity
from mepg.system import processor_extensions
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.training.loop import Evaluations
from mepg.words import many

FORMAT = 4


class Result(NamedTuple):
    """What a finished run came to: result.json."""

    summary: dict[str, float]
    files: dict[str, Checksum]  # as they were then, by their names

    def sha256(self, path: Path) -> str:
        """The checksum of a file that the run left; for any other file, one that never matches."""
        return self.files[path.name].sha256 if path.name in self.files else "none"


class Folder:
    """The names of a run's files; reads and writes the small ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "run.json"
        self.evaluations_file = path / "evaluations.npz"
        self.metrics_file = path / "metrics.csv"
        self.policy_file = path / "policy.safetensors"
        self.best_file = path / "best.safetensors"
        self.replay_folder = path / "replay"
        # The best policy before the evaluation of the last step: a longer run would not have had that evaluation.
        self.earlier_best_file = self.replay_folder / "best.safetensors"
        self.result_file = path / "result.json"
        self.curve_file = path / "curve.png"
        self.inspection_file = path / "inspect.json"
        self.inspection_picture = path / "inspect.png"

    def config(self) -> Config:
        """The config of the run in this folder."""
        return self.identity().config

    def identity(self) -> Identity:
        """Which run is in this folder, and for which observations and actions."""
        if not path_exists(self.config_file) or not self.config_file.is_file():
            if not path_exists(self.path):
                raise UsageError(f"{self.path} does not exist")
            reason = f"there is no {self.config_file.name} in it" if self.path.is_dir() else "it is not a folder"
            raise UsageError(f"{self.path} holds no run: {reason}")
        try:
            data = read_sealed(self.config_file)
        except Damaged as damage:
            raise UsageError(f"{self.path} holds a damaged run: {damage}") from None
        if data.get("format") != FORMAT:
            raise UsageError(
                f"{self.config_file} is of format {data.get('format')!r:.80}, not {FORMAT}: another version wrote it"
            )
        try:
            return Identity.from_json(data)
        except UsageError as error:
            raise UsageError(f"{self.config_file}: {error}") from None

    def env(self, named: str | None = None) -> str:
        """The id of its environment. If that is module:id, the user must have named it too, or imported the module."""
        return require_trusted_env(self.config().env, named, self.config_file)

    def versions(self) -> dict[str, str]:
        """What the run was started with."""
        found = read_sealed(self.config_file).get("versions")
        return {str(k): v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}

    def require_same_config(self, config: Config) -> None:
        """Refuse a folder that holds anything but this very run, or a shorter one."""
        # What begins with a dot is a lock, or half a file that a killed process left.
        if all(name.startswith(".") for name in list_names(self.path)):
            return
        if not path_exists(self.config_file):
            raise UsageError(f"{self.path} holds other files; choose another --out")
        stored = self.config()
        wanted, found = _flat(config.without_length()), _flat(stored.without_length())
        if config.backend == "auto":
            wanted["backend"] = stored.backend
        different = [name for name in wanted | found if wanted.get(name) != found.get(name)]
        if different:
            shown = ", ".join(f"{name}={found.get(name)} there, {wanted.get(name)} here" for name in different[:3])
            raise UsageError(f"{self.path} holds another run ({shown}); choose another --out")
        if config.steps < stored.steps:
            raise UsageError(
                f"{self.path} holds this run with {many(stored.steps, 'step')}, and a run cannot be made shorter: "
                f"--steps {stored.steps} or more, or another --out"
            )

    def claim(self, config: Config, spaces: Spaces) -> contextlib.ExitStack:
        """Make the folder and lock it for as long as what is given back is open."""
        content = {"format": FORMAT, **Identity(config, spaces).to_json(), "versions": versions(config.backend)}
        with contextlib.ExitStack() as locks:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                acquire(locks.enter_context(open_lock(self.path / ".lock")))
                if not path_exists(self.config_file):
                    write_sealed(self.config_file, content)
                # Someone may delete .lock, which looks like litter: so run.json is locked too.
                # `in_use` locks it only for a moment, and is waited for.
                acquire(locks.enter_context(self.config_file.open("r+")), seconds=1)
            except BlockingIOError:
                raise UsageError(f"{self.path} is in use: another process is training there") from None
            except OSError as error:
                raise not_writable(self.path, error) from None
            return locks.pop_all()

    def set_steps(self, config: Config) -> TextIO:
        """Say in run.json that this run, which we have claimed, is now to have more steps. Gives the new file's lock.

        All else in it stays as it was when the run began.
        """
        data = read_sealed(self.config_file)
        write_sealed(self.config_file, {**data, "config": config.to_json()})
        return acquire(self.config_file.open("r+"))

    def replay_bytes(self) -> int:
        """The size of the stored replay buffer; 0 if it was not kept."""
        return sum(file.stat().st_size for file in self.replay_folder.glob("*"))

    def in_use(self) -> bool:
        """Whether a process has claimed it."""
        try:
            with self.config_file.open() as lock:
                acquire(lock, shared=True)
        except BlockingIOError:
            return True
        except OSError:  # there is none yet, or it may not be read
            return False
        return False

    def finish(self, config: Config, summary: dict[str, float]) -> None:
        """Write result.json, which holds the checksums of what the run measured; its policy has one of its own."""
        files = {path.name: checksum(path) for path in (self.evaluations_file, self.metrics_file)}
        write_sealed(self.result_file, {**summary, "config": config.fingerprint, "files": files})

    def result(self, config: Config) -> Result | None:
        """What `finish` wrote, or None while the run is not finished. `config`: this run's."""
        if not path_exists(self.result_file):
            return None
        try:
            summary = read_sealed(self.result_file)
            if summary.pop("config") != config.fingerprint:
                raise Damaged("it is another run's")
            files = {name: Checksum(*found) for name, found in summary.pop("files").items() if found is not None}
        except (Damaged, KeyError, TypeError, AttributeError) as damage:
            raise UsageError(f"{self.path} holds a finished run whose result is damaged: {damage}") from None
        return Result(summary, files)

    def summary_if_finished(self, config: Config) -> dict[str, float] | None:
        """The result of this very run, or None while it is not finished; a UsageError if something else is here."""
        self.require_same_config(config)
        if not path_exists(self.config_file) or (stored := self.config()).steps < config.steps:
            return None
        result = self.result(stored)
        return None if result is None else result.summary

    def metrics(self, checksum: Checksum | None = None) -> list[dict[str, str]]:
        """The rows of metrics.csv, by column; `Damaged` if it cannot be read. A last row that is cut short is left out.

        :param checksum: read only the part that it is of
        """
        path = self.metrics_file
        content = read_whole(path) if checksum is None else read_prefix(path, checksum)
        try:
            rows = list(csv.DictReader(content.decode("ascii", "replace").splitlines()))
        except csv.Error as error:
            raise Damaged(f"{path.name}: {error}") from None
        return [row for row in rows if None not in row and None not in row.values()]

    def checked_metrics(self, result: Result) -> list[dict[str, str]]:
        """Those rows of a finished run's metrics.csv whose checksum its result has; none if it was not logged."""
        checksum = result.files.get(self.metrics_file.name)
        return [] if checksum is None else self.metrics(checksum)

    def write_evaluations(self, config: Config, evaluations: Evaluations) -> None:
        """Lay the evaluations out as Stable-Baselines3 does, and say whose they are."""
        arrays: Arrays = {
            "timesteps": np.array(list(evaluations)),
            "results": np.array([[episode.return_ for episode in episodes] for episodes in evaluations.values()]),
            "ep_lengths": np.array([[episode.length for episode in episodes] for episodes in evaluations.values()]),
            "config": np.frombuffer(bytes.fromhex(config.fingerprint), np.uint8),
        }
        write_npz(self.evaluations_file, arrays)

    def evaluations(self, config: Config, result: Result | None = None) -> Evaluations:
        """What `write_evaluations` wrote; a UsageError if it is missing or damaged, or another run's.

        :param result: what `result(config)` returned, if that has been read already
        """
        path, result = self.evaluations_file, result or self.result(config)
        try:
            found = read_npz(path, None if result is None else result.sha256(path))
            if found["config"].tobytes().hex() != config.fingerprint:
                raise Damaged("it is another run's")
            rows = zip(*(found[name].tolist() for name in ("timesteps", "results", "ep_lengths")), strict=True)
            return {step: [Episode(*pair) for pair in zip(*both, strict=True)] for step, *both in rows}
        except (Damaged, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path} has evaluations that cannot be read: {error}") from None


def versions(backend: str = "xla") -> dict[str, str]:
    """What bits may depend on."""
    found = dict(_versions())
    if backend == "native":
        with contextlib.suppress(CannotBuild):
            found["compiler"] = compiler_version()
    return found


@functools.cache
def _versions() -> dict[str, str]:
    """What stays the same as long as a process lives."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "processor": _processor()}
    if (commit := _commit()) is not None:
        found["commit"] = commit
    packages = ["mepg", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco"]
    packages += ["pybullet", "pybullet-arm64", "pybullet_envs_gymnasium"]  # the second is a fork of the first
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _processor() -> str:
    """Which instructions it has: two that say the same round alike."""
    return f"{best_instructions().name}-{digest(processor_extensions())[:8]}"


def _commit() -> str | None:
    """Of the source that runs, if it is a checkout; with -dirty if it has been changed since."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit or None


def _flat(data: JsonObject, prefix: str = "") -> JsonObject:
    flat: JsonObject = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
