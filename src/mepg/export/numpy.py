"""Export to NumPy: policy.npz with a program's arrays and operations, and policy.py, which runs them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from mepg.export import standalone
from mepg.export.operations import PolicyProgram
from mepg.storage.files import not_writable, write_atomic


def to_npz(program: PolicyProgram, layout: str = "") -> bytes:
    """A file that `np.load` reads with `allow_pickle=False`; `layout` says where an observation's parts are in it."""
    content = io.BytesIO()
    operations = np.array(json.dumps(program.operations))
    about = {"layout": np.array(layout)} if layout else {}
    np.savez(content, allow_pickle=False, operations=operations, **about, **program.constants)
    return content.getvalue()


def write_numpy(folder: Path, npz: bytes) -> list[Path]:
    """Write policy.npz and policy.py."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from None
    arrays, module = folder / "policy.npz", folder / "policy.py"
    write_atomic(arrays, npz)
    write_atomic(module, Path(standalone.__file__).read_bytes())
    return [arrays, module]
