"""A model as one file: a zip archive of JSON and arrays, as Stable-Baselines3 names it, that cannot run code."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from mepg.run.files import Arrays, Damaged, read_zip, write_whole

ABOUT, ARRAYS = "model.json", "arrays.safetensors"


def with_suffix(path: str | Path, suffix: str) -> Path:
    """The path as it is if it has a suffix, or with this one: `hopper` is hopper.zip."""
    path = Path(path)
    return path if path.suffix else path.with_name(path.name + suffix)


def write_archive(path: Path, about: dict[str, Any], arrays: Arrays) -> None:
    """Nothing is compressed: no file of ours can grow when it is opened."""
    content = io.BytesIO()
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {
            ABOUT: json.dumps(about, indent=2, allow_nan=False).encode(),
            ARRAYS: safetensors.numpy.save(plain),
        }.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a date, equal models are equal files
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())


def read_archive(path: Path) -> tuple[dict[str, Any], Arrays]:
    """What `write_archive` wrote; `Damaged` says what is wrong."""
    found = read_zip(path)
    if sorted(found) != sorted([ABOUT, ARRAYS]):
        raise Damaged(f"{path} is not a model of mepg")
    try:
        about, arrays = json.loads(found[ABOUT]), safetensors.numpy.load(found[ARRAYS])
    except (ValueError, KeyError, safetensors.SafetensorError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise Damaged(f"{path} is not a model of mepg")
    return about, arrays
