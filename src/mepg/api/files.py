"""A model as one file: a zip archive of JSON and arrays, which cannot run code."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from mepg.envs.simulators import full_id
from mepg.errors import UsageError
from mepg.storage.checkpoint import Checkpoints
from mepg.storage.files import (
    MAX_FILE_BYTES,
    Arrays,
    Damaged,
    count,
    from_npz,
    from_zip,
    path_exists,
    read_whole,
    to_npz,
    write_atomic,
)
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity

FORMAT = 2
ABOUT, ARRAYS = "model.json", "arrays.safetensors"

Location = str | Path | IO[bytes]  # a path, or a file that is open in binary mode


def with_suffix(path: str | Path, suffix: str) -> Path:
    """The path as it is if it has a suffix, or with this one: `hopper` is hopper.zip."""
    path = Path(path)
    if path.name in ("", "..") or "\0" in path.name:
        raise UsageError(f"{str(path)!r} is not the name of a file: give a path such as 'model{suffix}'")
    return path if path.suffix else path.with_name(path.name + suffix)


def name_of(location: Location) -> str:
    """The file's name in messages."""
    return str(location) if isinstance(location, str | Path) else f"the open {type(location).__name__}"


class SavedModel(NamedTuple):
    """What a model's file holds."""

    identity: Identity
    steps: int  # of training
    num_timesteps: int  # of these, since `learn` last began counting
    episodes: int  # begun
    arrays: Arrays
    versions: dict[str, str]  # that it was made with

    def to_bytes(self) -> bytes:
        counts = {name: getattr(self, name) for name in ("steps", "num_timesteps", "episodes")}
        return to_archive(
            {"format": FORMAT, **self.identity.to_json(), **counts, "versions": self.versions}, self.arrays
        )


def to_archive(about: dict[str, Any], arrays: Arrays) -> bytes:
    """JSON and arrays as one zip archive. Nothing is compressed, so that no file can grow when it is opened."""
    content = io.BytesIO()
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    members = {
        ABOUT: json.dumps(about, indent=2, allow_nan=False).encode(),
        ARRAYS: safetensors.numpy.save(contiguous),
    }
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a date, equal models are equal files
    return content.getvalue()


def read_archive(location: Location) -> tuple[dict[str, Any], Arrays]:
    """JSON and arrays from a file that `to_archive` made; `Damaged` says what is wrong with another."""
    name = name_of(location)
    members = from_zip(_read(location, ".zip"), name)
    if sorted(members) != sorted([ABOUT, ARRAYS]):
        raise Damaged(f"{name} is not a model of mepg")
    try:
        about, arrays = json.loads(members[ABOUT]), safetensors.numpy.load(members[ARRAYS])
    except (ValueError, KeyError, safetensors.SafetensorError, RecursionError) as error:
        raise Damaged(f"{name} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise Damaged(f"{name} is not a model of mepg")
    return about, arrays


def read_model(location: Location, env: Any = None) -> SavedModel:
    """A model from a file, or from the folder of a run; a UsageError says what is wrong.

    :param env: the one that the user has named, if any: see `Folder.env`
    """
    name = name_of(location)
    try:
        if isinstance(location, str | Path):
            path = Path(location)
            if path_exists(path / "run.json"):
                return _read_run(Folder(path), env)
            if not path_exists(with_suffix(path, ".zip")):
                raise UsageError(f"there is neither a model {with_suffix(path, '.zip')} nor a run {path}")
        about, arrays = read_archive(location)
    except Damaged as damage:
        raise UsageError(str(damage)) from None
    if about.get("format") != FORMAT:
        raise UsageError(f"{name} is of format {about.get('format')!r}, which this version of mepg does not know")
    try:
        identity = Identity.from_json(about)
        versions = {str(package): str(version) for package, version in about["versions"].items()}
        steps, num_timesteps, episodes = (count(about[each]) for each in ("steps", "num_timesteps", "episodes"))
        return SavedModel(identity, steps, num_timesteps, episodes, arrays, versions)
    except (AttributeError, KeyError, ValueError) as error:
        raise UsageError(f"{name} is damaged: {error!r}") from None


def run_folder(location: Location) -> Folder:
    """The folder of a run; a UsageError if it is something else."""
    if not isinstance(location, str | Path) or not path_exists(Path(location) / "run.json"):
        raise UsageError(f"best=True: {name_of(location)} is not the folder of a run, which keeps its best policy")
    return Folder(Path(location))


def _read_run(folder: Folder, env: Any) -> SavedModel:
    """The newest whole checkpoint of a run, as if it had been saved as a model."""
    identity = folder.identity()
    trained_in = identity.config.env
    # An environment with another id may have the same spaces.
    folder.env(trained_in if isinstance(env, str) and full_id(env) == trained_in else None)
    checkpoints = Checkpoints(folder.path, identity.config)
    for step in checkpoints.steps():
        with contextlib.suppress(Damaged):
            arrays, episodes = checkpoints.load_agent(step)
            break
    else:
        raise UsageError(f"{folder.path} holds no intact checkpoint")
    return SavedModel(identity, step, step, episodes, arrays, folder.versions())


def write_transitions(location: Location, transitions: npt.NDArray[np.float32]) -> None:
    """Write what a replay buffer holds, one transition in each row."""
    write(_not_pickle(location), ".npz", to_npz({"rows": transitions}))


def read_transitions(location: Location, width: int) -> npt.NDArray[np.float32]:
    """What `write_transitions` wrote: finite numbers, `width` in each row."""
    location = _not_pickle(location)
    name = name_of(location)
    try:
        rows: npt.NDArray[np.float32] | None = from_npz(_read(location, ".npz"), name).get("rows")
    except Damaged as damage:
        raise UsageError(str(damage)) from None
    if rows is None or rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
        raise UsageError(f"{name} holds no replay buffer of transitions with {width} numbers")
    if not np.isfinite(rows).all():
        raise UsageError(f"{name} holds a number that is not finite")
    return rows


def _not_pickle(location: Location) -> Location:
    """Stable-Baselines3's callbacks name this file .pkl, which it is not."""
    if not isinstance(location, str | Path):
        return location
    path = with_suffix(location, ".npz")
    return path.with_suffix(".npz") if path.suffix == ".pkl" else path


def write(location: Location, suffix: str, content: bytes) -> None:
    """Write a file as a whole, or into one that is open."""
    if isinstance(location, str | Path):
        path = with_suffix(location, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
        return
    try:
        location.write(content)
    except (AttributeError, TypeError, ValueError) as error:  # ValueError: closed, or not open for this
        raise _not_a_file(location, error) from None


def _read(location: Location, suffix: str) -> bytes:
    if isinstance(location, str | Path):
        return read_whole(with_suffix(location, suffix))
    try:
        if location.seekable():
            size = location.seek(0, io.SEEK_END)
            if size > MAX_FILE_BYTES:
                raise Damaged(f"{name_of(location)} has {size:,} bytes, more than are ever written")
            location.seek(0)  # it may just have been written
        content = location.read()
    except (AttributeError, TypeError, ValueError) as error:
        raise _not_a_file(location, error) from None
    if not isinstance(content, bytes):
        raise _not_a_file(location, TypeError("it is text"))
    return content


def _not_a_file(location: Any, error: Exception) -> UsageError:
    return UsageError(
        f"a {type(location).__name__} is not a file ({error}): give a path, or a file open in binary mode"
    )
