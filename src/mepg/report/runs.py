"""Runs read from folders, and checked: a damaged one is named and left out, never averaged in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError
from mepg.report.statistics import Floats
from mepg.run.session import mean_of_five_best
from mepg.storage.files import Damaged, Unreadable, parse_finite, path_exists, read_sealed_arrays
from mepg.storage.folder import Folder, Result
from mepg.storage.policy import require_same_run
from mepg.training.config import Config
from mepg.words import many

# A folder with one of these and without run.json is a damaged run.
FILES_OF_A_RUN = {"evaluations.npz", "metrics.csv", "policy.safetensors", "result.json", ".run.json.writing"}


class Run(NamedTuple):
    """What a run has measured: all of it, or so far if it is not finished."""

    path: Path
    config: Config
    steps: npt.NDArray[np.int64]  # of the evaluations [T]
    returns: Floats  # [T, episodes]
    finished: bool
    seconds: float | None  # None until it is finished
    eval_seconds: float  # of these
    versions: dict[str, str]  # that it was started with
    hours: Floats | None  # core-hours at each evaluation: processor time, evaluations aside; None: not recorded

    @property
    def env(self) -> str:
        return self.config.env

    @property
    def means(self) -> Floats:
        """Each evaluation's mean return."""
        means: Floats = self.returns.mean(axis=1)
        return means

    @property
    def mean_of_five_best(self) -> float:
        """The paper's metric, of a run that has been evaluated (D17)."""
        return mean_of_five_best(self.means)

    @property
    def train_seconds(self) -> float | None:
        return None if self.seconds is None else self.seconds - self.eval_seconds


class Problem(NamedTuple):
    """A folder that was left out, and why."""

    path: Path
    reason: str


def read_run(path: Path) -> Run:
    """The run in this folder; a UsageError if it cannot be require_trusted_env."""
    folder = Folder(path)
    try:
        config = folder.config()
        result = folder.result(config)
        versions = folder.versions()
        steps, returns = _evaluations(folder, config, result)
        hours = _core_hours(folder, result, steps)
        if result is not None:
            _check_policies(folder, config)
    except Damaged as damage:
        raise UsageError(f"{path} cannot be read: {damage}") from None
    except (OSError, RecursionError, MemoryError, OverflowError, ValueError, KeyError) as error:
        raise UsageError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    seconds, eval_seconds = (None, 0.0) if result is None else _check_result(folder, config, result.summary, returns)
    return Run(path, config, steps, returns, result is not None, seconds, eval_seconds, versions, hours)


def collect(paths: Iterable[Path]) -> tuple[list[Run], list[Problem]]:
    """Every run in or below these folders, each once, and what could not be used."""
    runs: dict[Config, Run] = {}
    problems: list[Problem] = []
    seen: set[Path] = set()
    for path in paths:
        found = list(_folders(path)) or [(path, "holds no run" if path.is_dir() else "is not a folder")]
        for folder, reason in found:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            if reason is None:
                try:
                    run = read_run(folder)
                    if runs.setdefault(run.config, run) is not run:
                        reason = f"the same run as {runs[run.config].path}"
                except UsageError as error:  # the folder is named beside the reason
                    reason = str(error).replace(f"{folder}{os.sep}", "").removeprefix(f"{folder} ")
            if reason is not None:
                problems.append(Problem(folder, reason))
    return list(runs.values()), problems


def _folders(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Folders that hold a run, or should, with what is wrong if that can be seen without reading the run.

    A link to a run is followed, any other is not: it may lead in a circle, or to a whole disk.
    """
    unreadable: list[OSError] = []
    links: list[Path] = []
    for parent, folders, files in os.walk(path, onerror=unreadable.append):
        if "run.json" in files:
            folders.clear()  # deeper folders belong to the run
            yield Path(parent), None
        elif FILES_OF_A_RUN & set(files):
            folders.clear()
            yield Path(parent), "holds files of a run, but no run.json that says which run"
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            links += [link for name in (*folders, *sorted(files)) if (link := Path(parent, name)).is_symlink()]
    for link in links:  # last, so that a run goes by its own name
        try:
            if not path_exists(link):
                yield link, "is a link that leads nowhere"
            elif path_exists(link / "run.json"):
                yield link, None
            elif link.is_dir():
                yield link, "is a link to a folder of others: name that folder itself"
        except Unreadable as error:
            yield link, f"is a link, and {error}"
    for failure in unreadable:
        if not isinstance(failure, FileNotFoundError | NotADirectoryError):
            folder = Path(failure.filename)
            yield folder, str(Unreadable(folder, failure)).removeprefix(f"{folder} ")


def _evaluations(folder: Folder, config: Config, result: Result | None) -> tuple[npt.NDArray[np.int64], Floats]:
    """Steps and returns, which have to be those that the config asks for, from the first on."""
    if not path_exists(folder.evaluations_file):
        if result is not None:
            raise UsageError(f"{folder.path} holds a finished run without its {folder.evaluations_file.name}")
        return np.zeros(0, np.int64), np.zeros((0, config.eval_episodes))
    evaluations = folder.evaluations(config, result)
    expected = -(-config.steps // config.eval_every)  # rounded up: the last step is evaluated too
    if list(evaluations) != [min((i + 1) * config.eval_every, config.steps) for i in range(len(evaluations))]:
        raise UsageError(f"{folder.evaluations_file} has evaluations at other steps than the run's")
    if any(len(episodes) != config.eval_episodes for episodes in evaluations.values()):
        raise UsageError(
            f"{folder.evaluations_file} has other than {many(config.eval_episodes, 'episode')} an evaluation"
        )
    if result is not None and len(evaluations) != expected:
        raise UsageError(
            f"{folder.path} holds a finished run with {len(evaluations)} of {many(expected, 'evaluation')}"
        )
    if result is None and len(evaluations) == expected and not path_exists(folder.path / "checkpoints"):
        raise UsageError(f"{folder.path} holds a finished run without its {folder.result_file.name}")
    returns = np.array([[episode.return_ for episode in episodes] for episodes in evaluations.values()], float)
    if not np.isfinite(returns).all():
        raise UsageError(f"{folder.evaluations_file} has a return that is not finite")
    return np.array(list(evaluations), np.int64), returns.reshape(len(evaluations), config.eval_episodes)


def _core_hours(folder: Folder, result: Result | None, steps: npt.NDArray[np.int64]) -> Floats | None:
    """From metrics.csv. A finished run's has to match its checksum; an unfinished one can do without.

    None unless they are recorded throughout, and grow.
    """
    try:
        rows = folder.metrics() if result is None else folder.checked_metrics(result)
        at, seconds = (
            np.array([float(row.get(name) or "nan") for row in rows])
            for name in ("time/total_timesteps", "time/processor_seconds")
        )
    except (Damaged, ValueError):
        if result is not None:
            raise
        return None
    if not len(at) or not (np.diff(seconds, prepend=0.0) >= 0).all() or not seconds[-1] < 1e12:
        return None
    hours: Floats = np.interp(steps, [0.0, *at], [0.0, *seconds]) / 3600
    return hours


def _check_policies(folder: Folder, config: Config) -> None:
    """A policy that lies beside the results has to be this run's, as it was written."""
    for path in (folder.policy_file, folder.best_file):
        if path_exists(path):
            require_same_run(path, read_sealed_arrays(path)[1], config)


def _check_result(folder: Folder, config: Config, result: dict[str, float], returns: Floats) -> tuple[float, float]:
    """The run's seconds and those that evaluation took, once the result agrees with what was measured."""

    def number(name: str) -> float:
        try:
            return parse_finite(result.get(name))
        except ValueError as error:
            raise UsageError(f"{folder.result_file}: {name} = {error}") from None

    if number("steps") != config.steps or not np.isclose(number("final_return"), returns[-1].mean()):
        raise UsageError(f"{folder.result_file} does not agree with {folder.evaluations_file.name}")
    seconds, eval_seconds = number("seconds"), number("eval_seconds")
    if not 0 <= eval_seconds <= seconds:
        raise UsageError(f"{folder.result_file} says that {eval_seconds} of {seconds} seconds went into evaluation")
    return seconds, eval_seconds
