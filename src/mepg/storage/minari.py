"""Minari's datasets, read with its own library: from a folder, or by the ID of one that is on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError, one_line
from mepg.storage.files import Damaged, path_exists, read_json
from mepg.training.data import Recording


def local_folder(dataset_id: str) -> Path:
    """Where Minari keeps the dataset of this ID."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    return (Path.home() / ".minari" / "datasets" if root is None else Path(root)) / dataset_id


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a dataset, as far as its names say."""
    return _metadata_file(folder) is not None


def _metadata_file(folder: Path) -> Path | None:
    """A dataset's folder has it in `data`, which may be named itself."""
    files = (folder / "data" / "metadata.json", folder / "metadata.json")
    return next((file for file in files if path_exists(file)), None)


def read_dataset(name: str, folder: Path) -> Recording:
    """All episodes, one after the other. `name`: the user's."""
    file = _metadata_file(folder)
    if file is None:
        raise UsageError(f"data: {folder} holds no Minari dataset: there is no data/metadata.json in it")
    _require_spaces(name, file)
    try:
        from minari import MinariDataset
    except ImportError as error:
        raise UsageError(
            f"data {name} needs {error.name}, which is not installed: pip install 'mepg[minari]'"
        ) from None
    try:
        episodes = [_columns(episode) for episode in MinariDataset(file.parent).iterate_episodes()]
        names = episodes[0] if episodes else ()
        columns = {column: np.concatenate([episode[column] for episode in episodes]) for column in names}
    except ImportError as error:  # of its format
        raise UsageError(f"data: the dataset {name}: {one_line(error)}") from None
    except Exception as error:  # of any kind, from several libraries
        raise UsageError(f"data: the dataset {name} is damaged, or of an unknown kind: {one_line(error)}") from None
    if not columns:
        raise UsageError(f"{name} is empty: there is no transition in it")
    return Recording(name, columns)


def _require_spaces(name: str, file: Path) -> None:
    """Refuse a dataset without its spaces: to find them, Minari would make the environment that the file names."""
    try:
        metadata = read_json(file)
        for key in ("observation_space", "action_space"):
            json.loads(metadata[key])
    except (Damaged, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"data: the dataset {name} does not say its spaces ({one_line(error)}), and Minari would run code that it "
            "names to find them: write it again with today's Minari"
        ) from None


def _columns(episode: Any) -> dict[str, npt.NDArray[Any]]:
    """Of an episode with n transitions, and one observation more."""
    columns = {name: np.asarray(getattr(episode, name)) for name in ("rewards", "terminations", "truncations")}
    columns["actions"] = np.asarray(episode.actions)
    count = len(columns["rewards"])
    for name, numbers in _entries(episode.observations):
        if len(numbers) != count + 1:
            raise ValueError(f"observations{name} of length {len(numbers)}, and rewards of length {count}")
        columns[f"observations{name}"], columns[f"next_observations{name}"] = numbers[:-1], numbers[1:]
    for name, numbers in columns.items():
        if numbers.dtype.kind not in "biuf":
            raise ValueError(f"{name} are not numbers, but {numbers.dtype}")
    return columns


def _entries(observations: Any, name: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The arrays of an observation, nested or not, and what follows `observations` in their names."""
    if isinstance(observations, dict):
        for key, inner in observations.items():
            yield from _entries(inner, f"{name}.{key}")
    elif isinstance(observations, tuple):
        for index, inner in enumerate(observations):
            yield from _entries(inner, f"{name}.{index}")
    else:
        yield name, np.asarray(observations)
