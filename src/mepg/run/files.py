"""Files that are either whole or not there, and that cannot run code when they are read."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from mepg.errors import UsageError

Arrays = dict[str, npt.NDArray[Any]]


class Damaged(Exception):
    """A file that is missing, cut short or altered."""


def write_whole(path: Path, content: bytes) -> str:
    """Write beside the old file, flush to the disk, and rename into place. Gives the SHA-256."""
    temporary = path.with_name(f".{path.name}.writing")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)
    return hashlib.sha256(content).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path, sha256: str | None = None) -> bytes:
    """A file's content, compared with its checksum where one is known."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(f"{path.name} is not what was written")
    return content


def write_json(path: Path, data: Any) -> None:
    """JSON for people too: indented, and without NaN."""
    write_whole(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote, or whatever else is there: the caller checks."""
    try:
        return json.loads(read_whole(path))
    except ValueError as error:
        raise Damaged(f"{path.name} is not JSON: {error}") from None


def write_arrays(path: Path, arrays: Arrays, about: dict[str, Any] | None = None) -> str:
    """A safetensors file, with `about` as JSON in its header; gives its SHA-256."""
    # One entry: safetensors writes several in any order, and equal runs should leave equal files.
    text = None if about is None else {"mepg": json.dumps(about)}
    return write_whole(path, safetensors.numpy.save({k: np.asarray(v, order="C") for k, v in arrays.items()}, text))


def read_arrays(path: Path, sha256: str | None = None) -> Arrays:
    """The arrays of a safetensors file, by name."""
    try:
        return safetensors.numpy.load(read_whole(path, sha256))
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{path.name} is not a safetensors file: {error}") from None


def not_writable(folder: Path, error: OSError) -> UsageError:
    """The error for a folder that the system will not let us use."""
    return UsageError(f"{folder} cannot be written: {error.strerror or error}")
