"""Turn finished runs of format 3 (18 November 2026) into format 4: convert_results.py FOLDER ..."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from mepg.storage.files import (
    checksum,
    read_npz,
    read_prefix,
    read_sealed,
    read_sealed_arrays,
    write_npz,
    write_sealed,
    write_sealed_arrays,
)
from mepg.storage.folder import FORMAT, Checksum, Folder
from mepg.storage.identity import Identity


def renamed(config: dict[str, Any]) -> dict[str, Any]:
    """`improve_on` had two meanings: a spec's is `policy_q`, a mask's `policy_mask`."""
    spec = dict(config["spec"])
    if "improve_on" in spec:
        spec["policy_q"] = spec.pop("improve_on")
    if spec.get("dropout") is not None:
        dropout = dict(spec["dropout"])
        if "improve_on" in dropout:
            dropout["policy_mask"] = dropout.pop("improve_on") == "masked"
        spec["dropout"] = dropout
    return {**config, "spec": spec}


def convert(path: Path) -> bool:
    """Rewrite the files that name the run; every number stays. run.json comes last. False: nothing is left to do."""
    folder, data = Folder(path), read_sealed(path / "run.json")
    if data["format"] == FORMAT:
        return False
    if data["format"] != 3:
        raise SystemExit(f"{path}: run.json is of format {data['format']}, not 3")
    identity = Identity.from_json({**data, "config": renamed(data["config"])})
    config = identity.config
    result, new = read_sealed(folder.result_file), config.fingerprint
    known = {result["config"], new}  # the new one where a conversion was interrupted

    def require(fingerprint: str, file: Path) -> None:
        if fingerprint not in known:
            raise SystemExit(f"{file} is another run's")

    arrays = read_npz(folder.evaluations_file)
    fingerprint = arrays["config"].tobytes().hex()
    require(fingerprint, folder.evaluations_file)
    for name, sealed in result["files"].items():
        if sealed is not None and not (name == folder.evaluations_file.name and fingerprint == new):
            read_prefix(path / name, Checksum(*sealed))
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
            whose = Identity.from_json({**about, "config": renamed({"steps": config.steps, **about["config"]})})
            require(whose.config.fingerprint, file)
            write_sealed_arrays(file, networks, {**about, "config": config.identity()})
    write_sealed(folder.config_file, {**data, "format": FORMAT, "config": config.to_json()})
    return True


if __name__ == "__main__":
    runs = [file.parent for root in sys.argv[1:] for file in sorted(Path(root).rglob("result.json"))]
    print(f"{sum([convert(run) for run in runs])} of {len(runs)} runs were converted")
