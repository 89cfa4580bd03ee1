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

from mepg.run.files import Arrays, Damaged, read_whole, write_whole

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
    content = read_whole(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sorted(member.filename for member in members) != sorted([ABOUT, ARRAYS]):
                raise Damaged(f"{path} is not a model of mepg")
            if any(m.compress_type != zipfile.ZIP_STORED or m.file_size > len(content) for m in members):
                raise Damaged(f"{path} is compressed, which a model of mepg never is")
            about = json.loads(archive.read(ABOUT))
            arrays = safetensors.numpy.load(archive.read(ARRAYS))
    except (zipfile.BadZipFile, ValueError, KeyError, safetensors.SafetensorError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise Damaged(f"{path} is not a model of mepg")
    return about, arrays
