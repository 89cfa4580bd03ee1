"""Checkpoints: the networks and counters in one small file each, the replay buffer in chunks that never change.

    checkpoints/000010000.json           its manifest, with checksums: written last, so until then it does not count
    checkpoints/000010000.safetensors    the agent's state and the run's counters
    replay/000005000-000010000.safetensors   the rows that are new, or have changed, since the previous checkpoint

A chunk of the replay buffer is written once, with the checkpoint that needs it, and removed when the
ring has moved past it. Nothing is ever overwritten, so a run that dies while it writes a checkpoint
still has the one before, ring and all.
"""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from mepg.errors import RunFailure, UsageError
from mepg.storage.files import (
    Arrays,
    Checksum,
    Damaged,
    JsonObject,
    list_names,
    parse_count,
    parse_finite,
    read_arrays,
    read_sealed,
    write_arrays,
    write_sealed,
)
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.training.loop import Snapshot
from mepg.training.replay import Replay
from mepg.words import many

FORMAT = 6
PyTree = Any  # of arrays: an agent's state, or its networks; JAX has no better type
KEEP_LAST = 2  # checkpoints: the last one, and the one before in case the last is damaged


class ReplayChunk(NamedTuple):
    """Rows number `start` to `stop` of the replay buffer, in a file."""

    start: int
    stop: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.start:09d}-{self.stop:09d}.safetensors"


class TimeSpent(NamedTuple):
    """How long a run has taken so far, over all its sessions, in seconds."""

    total: float
    evaluating: float
    processor: float  # on all cores together, evaluations aside


class Checkpoint(NamedTuple):
    """What a checkpoint holds, besides the replay buffer."""

    snapshot: Snapshot
    spent: TimeSpent
    metrics_checksum: Checksum | None  # of metrics.csv as it was then, if there was one


class Checkpoints:
    """A run's checkpoints."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder = folder / "checkpoints"
        self.replay_folder = folder / "replay"
        self._config = config
        self._chunks: list[ReplayChunk] = []  # of the run under way

    def make_folders(self) -> None:
        for folder in (self.folder, self.replay_folder):
            if folder.is_symlink():  # files would be written, and removed, wherever it leads
                raise UsageError(f"{folder} is a link: a run's files have to be in its own folder")
            folder.mkdir(exist_ok=True)

    def save(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Write what `load` reads."""
        snapshot = checkpoint.snapshot
        self.make_folders()
        start = max(replay.dirty_from, replay.oldest)
        if start < replay.count:
            chunk = ReplayChunk(start, replay.count, "")
            sha256 = write_arrays(self.replay_folder / chunk.name, {"rows": replay.read(start, replay.count)})
            self._chunks.append(chunk._replace(sha256=sha256))
            replay.dirty_from = replay.count
        self._chunks = [chunk for chunk in self._chunks if chunk.stop > replay.oldest]

        arrays = flatten(snapshot.state, "agent") | flatten(snapshot.carry, "carry")
        arrays |= {f"actions.{index}": actions for index, actions in enumerate(snapshot.episode_actions)}
        arrays |= {"next_actions": snapshot.next_actions, "sums": snapshot.metric_sums}
        _require_finite(arrays)
        content = {
            "format": FORMAT,
            "config": self._config.fingerprint,
            "step": snapshot.step,
            "episodes": snapshot.episode_numbers,
            "recent": snapshot.recent_episodes,
            "evaluations": list(snapshot.evaluations.items()),
            "state": write_arrays(self._path(snapshot.step, "safetensors"), arrays),
            "seconds": list(checkpoint.spent),
            "metrics": checkpoint.metrics_checksum,
            "rows": replay.count,
            "replay": [list(chunk) for chunk in self._chunks],
        }
        write_sealed(self._path(snapshot.step, "json"), content)
        self._prune(snapshot.step)

    def _path(self, step: int, suffix: str) -> Path:
        """The name of a checkpoint's file; `steps` reads it back."""
        return self.folder / f"{step:09d}.{suffix}"

    def steps(self) -> list[int]:
        """The steps at which there are checkpoints, the newest first."""
        found = (re.fullmatch(r"([0-9]{9,18})\.json", name) for name in list_names(self.folder))
        return sorted((int(each[1]) for each in found if each), reverse=True)

    def load(self, step: int, template: Snapshot, replay: Replay) -> Checkpoint:
        """What was saved at `step`, with the replay buffer put back. `Damaged` says what is wrong.

        :param template: any snapshot of the run, for the structure, shapes and types to expect
        """
        content = self._manifest(step)
        try:
            snapshot = self._snapshot(content, template)
            spent = TimeSpent(*map(parse_finite, content["seconds"]))
            metrics = _checksum(content["metrics"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Damaged(f"{self._path(step, 'json').name}: {error!r}") from None
        self._chunks = self._load_replay(content, step, replay)
        return Checkpoint(snapshot, spent, metrics)

    def load_replay(self, step: int, replay: Replay) -> list[ReplayChunk]:
        """Put back the replay buffer as it was at `step`, from the chunks that are returned. Else `Damaged`."""
        return self._load_replay(self._manifest(step), step, replay)

    def _load_replay(self, content: JsonObject, step: int, replay: Replay) -> list[ReplayChunk]:
        try:
            chunks = [
                ReplayChunk(parse_count(start), parse_count(stop), str(sha256))
                for start, stop, sha256 in content["replay"]
            ]
            rows = parse_count(content["rows"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Damaged(f"{self._path(step, 'json').name}: {error!r}") from None
        if _has_gaps(chunks, rows - min(rows, replay.capacity), rows):
            raise Damaged(f"{self._path(step, 'json').name}: chunks of the replay buffer are missing")
        for chunk in chunks:
            block = read_arrays(self.replay_folder / chunk.name, chunk.sha256).get("rows")
            if block is None or block.shape != (chunk.stop - chunk.start, replay.width) or block.dtype != np.float32:
                raise Damaged(f"{chunk.name} does not hold the rows that its name says")
            replay.restore(chunk.start, block)
        return chunks

    def load_agent(self, step: int) -> tuple[Arrays, int]:
        """Only the agent's arrays at `step`, and the number of the next episode."""
        content = self._manifest(step)
        try:
            return self._arrays(content), max(parse_count(number) for number in content["episodes"]) + 1
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{self._path(step, 'json').name}: {error!r}") from None

    def metrics_checksum(self, step: int) -> Checksum | None:
        """The checksum of metrics.csv as it was at `step`."""
        return _checksum(self._manifest(step).get("metrics"))

    def drop_replay(self) -> None:
        """Remove the replay buffer, which a finished run no longer needs."""
        shutil.rmtree(self.replay_folder, ignore_errors=True)

    def _manifest(self, step: int) -> JsonObject:
        path = self._path(step, "json")
        content = read_sealed(path)
        if content.get("format") != FORMAT:
            raise Damaged(f"{path.name} is of format {content.get('format')}, not {FORMAT}")
        if content.get("config") != self._config.fingerprint or content.get("step") != step:
            raise Damaged(f"{path.name} belongs to another run or step")
        return content

    def _arrays(self, content: JsonObject) -> Arrays:
        return read_arrays(self._path(content["step"], "safetensors"), str(content["state"]))

    def _snapshot(self, content: JsonObject, template: Snapshot) -> Snapshot:
        arrays = self._arrays(content)
        episode_numbers = [parse_count(number) for number in content["episodes"]]
        if len(episode_numbers) != len(template.episode_numbers):
            raise ValueError(f"{many(len(episode_numbers), 'episode')} under way")
        return Snapshot(
            step=content["step"],
            state=unflatten(arrays, template.state, "agent"),
            carry=unflatten(arrays, template.carry, "carry"),
            next_actions=_checked_array(arrays, "next_actions", template.next_actions),
            episode_numbers=episode_numbers,
            episode_actions=[
                _checked_array(arrays, f"actions.{i}", actions, axis=1)
                for i, actions in enumerate(template.episode_actions)
            ],
            recent_episodes=_episodes(content["recent"]),
            evaluations={parse_count(step): _episodes(episodes) for step, episodes in content["evaluations"]},
            metric_sums=_checked_array(arrays, "sums", template.metric_sums),
        )

    def _prune(self, step: int) -> None:
        """Remove what the checkpoint just written, at `step`, and the one before it do not need.

        One with a higher step is damaged, or the run would have gone on from it. The manifest goes first:
        without it nothing else counts.
        """
        newer = [known for known in self.steps() if known > step]
        older = [known for known in self.steps() if known <= step][KEEP_LAST:]
        for known in newer + older:
            self._path(known, "json").unlink(missing_ok=True)
            self._path(known, "safetensors").unlink(missing_ok=True)
        needed = set()
        for known in self.steps():
            try:
                needed |= {ReplayChunk(*chunk).name for chunk in self._manifest(known)["replay"]}
            except (Damaged, TypeError):
                continue
        chunks = (name for name in list_names(self.replay_folder) if re.search(r"[0-9].*\.safetensors", name))
        half_written = (name for name in list_names(self.folder) if re.fullmatch(r"\..*\.writing", name))
        for name in chunks:  # no longer needed, or half written by a killed process
            if name not in needed:
                (self.replay_folder / name).unlink()
        for name in half_written:
            (self.folder / name).unlink()


def _episodes(data: Any) -> list[Episode]:
    return [Episode(parse_finite(return_), parse_count(length)) for return_, length in data]


def _checksum(data: Any) -> Checksum | None:
    try:
        return None if data is None else Checksum(*data)
    except TypeError:
        raise Damaged(f"{data!r} is not a checksum") from None


def _has_gaps(chunks: list[ReplayChunk], first: int, last: int) -> bool:
    """Whether rows `first` to `last` are not all covered, chunk after chunk; chunks may overlap."""
    contiguous = all(after.start <= before.stop <= after.stop for before, after in itertools.pairwise(chunks))
    return not (chunks and contiguous and chunks[0].start <= first and chunks[-1].stop == last)


def flatten(tree: PyTree, prefix: str) -> Arrays:
    """A pytree's arrays by their paths: {"agent.actor.params.0.w": ...}."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(prefix, path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(arrays: Arrays, template: PyTree, prefix: str) -> PyTree:
    """The pytree of `template`'s structure, shapes and types that `flatten` took apart."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _checked_array(arrays, _name(prefix, path), leaf), template
    )


def _checked_array(
    arrays: Arrays, name: str, template: npt.NDArray[Any] | jax.ShapeDtypeStruct, axis: int = 0
) -> npt.NDArray[Any]:
    """The array of that name, if it is finite and has the type of `template`, and its shape from `axis` on."""
    if name not in arrays:
        raise Damaged(f"{name} is missing")
    array = arrays[name]
    if array.dtype != template.dtype or array.ndim != template.ndim or array.shape[axis:] != template.shape[axis:]:
        raise Damaged(f"{name} is {array.dtype}{list(array.shape)}, not {template.dtype}{list(template.shape)}")
    if not np.isfinite(array).all():
        raise Damaged(f"{name} holds a number that is not finite")
    return array


def _name(prefix: str, path: tuple[object, ...]) -> str:
    return prefix + "." + jax.tree_util.keystr(path, simple=True, separator=".")


def _require_finite(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise RunFailure(f"{name} is no longer finite")
