"""Turn finished runs of format 2 (before 18 November 2026) into format 3: convert_results.py FOLDER ..."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from mepg.settings import digest
from mepg.storage.files import (
    checksum,
    read_npz,
    read_sealed,
    read_sealed_arrays,
    read_until,
    write_npz,
    write_sealed,
    write_sealed_arrays,
)
from mepg.storage.folder import FORMAT, Checksum, Folder
from mepg.storage.identity import Identity


def old_fingerprints(config: dict[str, Any]) -> set[str]:
    """What the run's files may say: XLA went without saying, and at first the number of steps was a part of it."""
    stored = {name: value for name, value in config.items() if (name, value) != ("backend", "xla")}
    return {digest(stored), digest({name: value for name, value in stored.items() if name != "steps"})}


def convert(path: Path) -> bool:
    """Rewrite the files that name the run; every number stays. run.json comes last. False: nothing is left to do."""
    folder, data = Folder(path), read_sealed(path / "run.json")
    if data["format"] == FORMAT:
        return False
    if data["format"] != 2:
        raise SystemExit(f"{path}: run.json is of format {data['format']}, not 2")
    identity = Identity.from_json({**data, "config": {"backend": "xla", **data["config"]}})
    config = identity.config
    known, new = old_fingerprints(data["config"]) | {config.fingerprint}, config.fingerprint

    def require(fingerprint: str, file: Path) -> None:
        if fingerprint not in known:
            raise SystemExit(f"{file} is another run's")

    result = read_sealed(folder.result_file)
    require(result["config"], folder.result_file)
    arrays = read_npz(folder.evaluations_file)
    fingerprint = arrays["config"].tobytes().hex()
    require(fingerprint, folder.evaluations_file)
    for name, sealed in result["files"].items():  # evaluations may be new: a process was killed after writing them
        if sealed is not None and not (name == folder.evaluations_file.name and fingerprint == new):
            read_until(path / name, Checksum(*sealed))
    write_npz(folder.evaluations_file, {**arrays, "config": np.frombuffer(bytes.fromhex(new), np.uint8)})
    files = {**result["files"], folder.evaluations_file.name: checksum(folder.evaluations_file)}
    write_sealed(folder.result_file, {**result, "config": new, "files": files})
    if folder.inspection_file.exists():
        inspection = read_sealed(folder.inspection_file)
        require(inspection["config"], folder.inspection_file)
        write_sealed(folder.inspection_file, {**inspection, "config": new})
    for file in (folder.policy_file, folder.best_file):
        if file.exists():
            networks, about = read_sealed_arrays(file)
            whose = Identity.from_json(
                {**about, "config": {"backend": "xla", "steps": config.steps, **about["config"]}}
            )
            require(whose.config.fingerprint, file)
            kept = {name: about[name] for name in ("step", "return") if name in about}
            whose_now = {**identity.to_json(), "config": config.identity()}
            write_sealed_arrays(file, networks, {**whose_now, "step": config.steps, **kept})
    write_sealed(folder.config_file, {**data, "format": FORMAT, "config": config.to_json()})
    return True


if __name__ == "__main__":
    runs = [file.parent for root in sys.argv[1:] for file in sorted(Path(root).rglob("result.json"))]
    print(f"{sum([convert(run) for run in runs])} of {len(runs)} runs were converted")
