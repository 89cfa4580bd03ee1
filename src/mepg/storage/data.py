"""Reads the data that a run begins with: a Minari dataset, another run's replay buffer, or an .npz of plain numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mepg.algos import n_step_and_discount
from mepg.errors import UsageError
from mepg.storage import minari
from mepg.storage.checkpoint import Checkpoints
from mepg.storage.files import Damaged, from_npz, path_exists, read_whole
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.data import Data, Recording, StoredReplay
from mepg.training.replay import Replay

PICKLE = b"\x80"  # how one begins, since protocol 2


def with_data(config: Config) -> tuple[Config, Data | None]:
    """The config, which now says what its data holds, and the data; a UsageError if it is not what it was."""
    if config.data is None:
        return config, None
    data = read_data(config.data)
    if config.data_sha256 not in (None, data.sha256):
        raise UsageError(
            f"{config.data} is not the data that this run began with: its SHA-256 is {data.sha256[:12]}..., not "
            f"{str(config.data_sha256)[:12]}..."
        )
    return replace(config, data_sha256=data.sha256), data


def read_data(path_or_id: str) -> Data:
    """What is there, whatever kind of data it is."""
    path = Path(path_or_id)
    if not path_exists(path):
        folder = minari.local_folder(path_or_id)
        if not path_exists(folder):
            raise UsageError(
                f"data: there is neither a file or folder {path_or_id} nor a Minari dataset {folder}; "
                "`minari download ID` fetches one"
            )
        return minari.read_dataset(path_or_id, folder)
    if not path.is_dir():
        return _read_npz(path)
    if path_exists(path / "run.json"):
        return _read_run(Folder(path))
    if minari.is_dataset(path):
        return minari.read_dataset(path_or_id, path)
    raise UsageError(f"data: {path} holds neither a run nor a Minari dataset")


def _read_npz(path: Path) -> Recording:
    """Columns of plain numbers, as `np.savez` writes them."""
    try:
        content = read_whole(path)
        if path.suffix in (".pkl", ".pickle") or content.startswith(PICKLE):
            raise UsageError(
                f"data: {path} is a pickle, which could run code, so it is not opened: docs/coming-from-sb3.md has the "
                "lines that turn Stable-Baselines3's replay buffer into an .npz"
            )
        return Recording(str(path), from_npz(content, path.name))
    except Damaged as damage:
        raise UsageError(f"data: {damage}; a file of data is an .npz that np.savez wrote") from None


def _read_run(folder: Folder) -> StoredReplay:
    """The replay buffer of a run's newest whole checkpoint."""
    if folder.in_use():
        raise UsageError(f"data: {folder.path} is being trained, and changes: wait for its end, with --keep-replay")
    config, spaces = folder.identity()
    checkpoints, damages = Checkpoints(folder.path, config), []
    for step in checkpoints.steps() if path_exists(folder.replay_folder) else ():
        replay = Replay(config.spec.replay_size, spaces.sizes)
        try:
            checkpoints.load_replay(step, replay)
        except Damaged as damage:
            damages.append(str(damage))
            continue
        n_step, discount = n_step_and_discount(config.spec)
        return StoredReplay(str(folder.path), replay.read(replay.oldest, replay.count), spaces, n_step, discount)
    if damages:
        raise UsageError(f"data: the replay buffer of {folder.path} is damaged: {damages[0]}")
    raise UsageError(f"data: {folder.path} has no replay buffer: it was finished without --keep-replay")
