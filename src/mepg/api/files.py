"""A model as one file: a zip archive of JSON and arrays, which cannot run code. Its replay buffer is another."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import safetensors
import safetensors.numpy

from mepg.api.learner import Learner, LearningLock, TrainingState
from mepg.api.model_config import count_envs, in_envs, pop_run_options
from mepg.envs.simulators import full_id
from mepg.errors import UsageError
from mepg.settings import describe
from mepg.storage.checkpoint import Checkpoints, flatten, unflatten
from mepg.storage.files import (
    MAX_FILE_BYTES,
    Arrays,
    Damaged,
    from_npz,
    from_zip,
    parse_count,
    path_exists,
    read_whole,
    to_npz,
    write_atomic,
)
from mepg.storage.folder import Folder, versions
from mepg.storage.identity import Identity
from mepg.storage.policy import read_best, restore_trainables
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program

if TYPE_CHECKING:
    from mepg.api.model import Model

M = TypeVar("M", bound="Model")
Location = str | Path | IO[bytes]  # a path, or a file that is open in binary mode

FORMAT = 2
ABOUT, ARRAYS = "model.json", "arrays.safetensors"

# What Stable-Baselines3 would leave out of a file, or is asked to, and is not in ours anyway.
NOT_SAVED = frozenset(
    ("replay_buffer", "rollout_buffer", "env", "eval_env", "logger", "ep_info_buffer", "ep_success_buffer",
     "tensorboard_log", "verbose", "device")
)  # fmt: skip
# Settings of a run that a file does not bring along: those of another machine, and data, as it holds no replay buffer.
NOT_BROUGHT_ALONG = ("threads", "backend", "data", "data_share")


# A model's file


class SavedModel(NamedTuple):
    """What a model's file holds."""

    identity: Identity
    steps: int  # of training
    num_timesteps: int  # of these, since `learn` last began counting
    episodes: int  # begun
    arrays: Arrays
    versions: dict[str, str]  # that it was made with


def save(learner: Learner, path: Location, first_step: int) -> None:
    """Write all but the replay buffer.

    :param first_step: the step at which `num_timesteps` was 0
    """
    with learner.lock:
        training, config = learner.training, learner.config
        if isinstance(training, Loop):
            training.check_finite()  # networks that are no longer finite are not worth a file
        metadata = {
            "format": FORMAT,
            **Identity(config, learner.spaces).to_json(),
            "steps": training.step,
            "num_timesteps": training.step - first_step,
            "episodes": training.next_episode,
            "versions": versions(config.backend),
        }
        content = to_archive(metadata, flatten(learner.state, "agent"))
    _write(path, ".zip", content)


def to_archive(metadata: dict[str, Any], arrays: Arrays) -> bytes:
    """JSON and arrays as one zip archive. Nothing is compressed, so that no file can grow when it is opened."""
    content = io.BytesIO()
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:  # without dates, equal models are equal files
        archive.writestr(zipfile.ZipInfo(ABOUT), json.dumps(metadata, indent=2, allow_nan=False))
        archive.writestr(zipfile.ZipInfo(ARRAYS), safetensors.numpy.save(contiguous))
    return content.getvalue()


def read_archive(location: Location) -> tuple[dict[str, Any], Arrays]:
    """JSON and arrays from a file that `to_archive` made; `Damaged` says what is wrong with another."""
    name = _name_of(location)
    members = from_zip(_read(location, ".zip"), name)
    if sorted(members) != sorted([ABOUT, ARRAYS]):
        raise Damaged(f"{name} is not a model of mepg")
    try:
        metadata, arrays = json.loads(members[ABOUT]), safetensors.numpy.load(members[ARRAYS])
    except (ValueError, KeyError, safetensors.SafetensorError, RecursionError) as error:
        raise Damaged(f"{name} is damaged: {error}") from None
    if not isinstance(metadata, dict):
        raise Damaged(f"{name} is not a model of mepg")
    return metadata, arrays


def read_model(location: Location, env: object = None) -> SavedModel:
    """A model from a file, or from the folder of a run; a UsageError says what is wrong.

    :param env: the one that the user has named, if any: see `Folder.env`
    """
    name = _name_of(location)
    try:
        if isinstance(location, str | Path):
            path = Path(location)
            if path_exists(path / "run.json"):
                return _read_run(Folder(path), env)
            if not path_exists(_with_suffix(path, ".zip")):
                raise UsageError(f"there is neither a model {_with_suffix(path, '.zip')} nor a run {path}")
        metadata, arrays = read_archive(location)
    except Damaged as damage:
        raise UsageError(str(damage)) from None
    if metadata.get("format") != FORMAT:
        raise UsageError(f"{name} is of format {metadata.get('format')!r}, which this version of mepg does not know")
    try:
        identity = Identity.from_json(metadata)
        packages = {str(package): str(version) for package, version in metadata["versions"].items()}
        steps, num_timesteps, episodes = (
            parse_count(metadata[each]) for each in ("steps", "num_timesteps", "episodes")
        )
        return SavedModel(identity, steps, num_timesteps, episodes, arrays, packages)
    except (AttributeError, KeyError, ValueError) as error:
        raise UsageError(f"{name} is damaged: {error!r}") from None


def _read_run(folder: Folder, env: object) -> SavedModel:
    """The newest whole checkpoint of a run, as if it had been saved as a model."""
    identity = folder.identity()
    trained_in = identity.config.env
    # An environment with another id may have the same spaces.
    folder.env(trained_in if isinstance(env, str) and full_id(env) == trained_in else None)
    checkpoints = Checkpoints(folder.path, identity.config)
    for step in checkpoints.steps():
        with contextlib.suppress(Damaged):
            arrays, episodes = checkpoints.load_agent(step)
            return SavedModel(identity, step, step, episodes, arrays, folder.versions())
    raise UsageError(f"{folder.path} holds no intact checkpoint")


def read_parameters(source: Location | Mapping[str, Any]) -> Mapping[str, Any]:
    """An agent's arrays by name, {"agent.actor.params.0.w": ...}: of a file, or what `get_parameters` gave."""
    return _flatten_dict(source, "agent") if isinstance(source, Mapping) else read_model(source).arrays


def _flatten_dict(tree: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}.{name}"
        arrays |= _flatten_dict(value, path) if isinstance(value, Mapping) else {path: value}
    return arrays


def make_model(kind: type[M], saved: SavedModel, path: Location, env: object, arguments: dict[str, Any]) -> M:
    """A model without what it has learned, made with the arguments that were saved.

    :param kind: a class of the algorithm that was saved, or `Model`, which stands for any
    :param arguments: those that are to differ; None: as it was saved
    """
    from mepg.api.classes import class_of  # which needs Model, and Model this module

    config = saved.identity.config
    made = kind if kind.algorithm else class_of(config.algorithm)
    if config.algorithm != made.algorithm:
        raise UsageError(
            f"{_name_of(path)} holds {config.algorithm}, not {made.algorithm}: load it with mepg.load, "
            f"or mepg.algorithm({config.algorithm!r}).load"
        )
    kept = {name: value for name, value in vars(config).items() if name not in NOT_BROUGHT_ALONG}
    run_options = pop_run_options(kept)
    envs = count_envs(env, config.envs)
    saved_arguments = {**run_options, "spec": config.spec, "seed": config.seed, "n_envs": envs}
    model = made(**saved_arguments | {name: value for name, value in arguments.items() if value is not None})
    if not isinstance(env, str | None) and model.n_envs != envs:
        raise UsageError(f"n_envs={model.n_envs} makes copies of an environment by its id; this one is ready-made")
    assert isinstance(model, kind)
    return model


def restore(saved: SavedModel, config: Config, path: Location, learning_lock: LearningLock, *, best: bool) -> Learner:
    """What a file holds, without an environment to learn in.

    :param config: the new model's, which may differ from the saved one where no network depends on it
    :param best: of a run's folder, the policy of its best evaluation
    """
    (saved_config, spaces), steps = saved.identity, saved.steps
    config = replace(in_envs(config, spaces.id, config.envs), backend=Program.backend)
    program = Program(config, config.build(spaces.sizes), spaces.sizes)
    try:
        state = unflatten(saved.arrays, program.template, "agent")
    except Damaged as damage:
        _require_same_networks(saved_config, config, _name_of(path))
        raise UsageError(f"{_name_of(path)} is damaged: {damage}") from None
    if best:
        if not isinstance(path, str | Path) or not path_exists(Path(path) / "run.json"):
            raise UsageError(f"best=True: {_name_of(path)} is not the folder of a run, which keeps its best policy")
        networks, steps, _ = read_best(Folder(Path(path)), saved_config, program.template)
        state = restore_trainables(networks, program.template)
    training = TrainingState(program.flatten(state), steps, saved.episodes, None)
    return Learner(config, spaces, program, training, learning_lock)


def _require_same_networks(saved: Config, config: Config, name: str) -> None:
    """If other settings than the saved ones were asked for, they are why the arrays of a file do not fit."""
    before, now = (
        {**describe(each.spec), "normalize_obs": str(each.normalize_obs), "actor_obs": str(each.actor_obs)}
        for each in (saved, config)
    )
    different = [field for field in before | now if before.get(field) != now.get(field)]
    if different:
        shown = ", ".join(f"{field}={before.get(field)} there, {now.get(field)} here" for field in different)
        raise UsageError(f"{name} holds other networks than were asked for ({shown}): load it without that argument")


# What Stable-Baselines3's `save` and `load` take besides


def require_whole(exclude: object, include: object) -> None:
    """Refuse a file that would hold more or less than `save` writes."""
    if include:
        raise UsageError(f"include={include!r}: a model's file holds all but the replay buffer: save_replay_buffer")
    names = exclude if isinstance(exclude, Iterable) and not isinstance(exclude, str) else [exclude]
    if kept := [name for name in names if name is not None and name not in NOT_SAVED]:
        raise UsageError(f"exclude={kept!r}: a model's file holds all that it takes to load it; leave exclude out")


def custom_arguments(custom_objects: object, *, predicts_only: bool) -> dict[str, Any]:
    """The arguments in `custom_objects`, without what Stable-Baselines3's zoo gives for pickles that cannot be read.

    That is two schedules, which no file of ours holds, and a learning rate of 0 for a model that only predicts.
    """
    if not isinstance(custom_objects, Mapping | None):
        raise UsageError(f"custom_objects is a dictionary of arguments, not {custom_objects!r:.80}")
    arguments = dict(custom_objects or {})
    for schedule in ("lr_schedule", "clip_range"):
        arguments.pop(schedule, None)
    if predicts_only and arguments.get("learning_rate") == 0:
        del arguments["learning_rate"]
    return arguments


def print_versions(saved: SavedModel) -> None:
    """Of the packages that a model was saved with, and of those that are here."""
    for verb, packages in {"saved": saved.versions, "loaded": versions(saved.identity.config.backend)}.items():
        print(f"{verb} with {', '.join(f'{name} {version}' for name, version in packages.items())}")


# The replay buffer


def save_replay_buffer(learner: Learner, path: Location) -> None:
    """Write the transitions, the oldest first, one in each row."""
    with learner.lock:
        replay = learner.training.replay
        if replay is None:
            raise UsageError("this model has no replay buffer: it was loaded, and has not learned since")
        rows = replay.read(replay.oldest, replay.count)
    _write(_not_pickle(path), ".npz", to_npz({"rows": rows}))


def load_replay_buffer(learner: Learner, path: Location) -> None:
    """Replace the transitions by those of a file."""
    loop, path = learner.loop, _not_pickle(path)
    name, width = _name_of(path), loop.replay.width
    try:
        rows = from_npz(_read(path, ".npz"), name).get("rows")
    except Damaged as damage:
        raise UsageError(str(damage)) from None
    if rows is None or rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
        raise UsageError(f"{name} holds no replay buffer of transitions with {width} numbers")
    if not np.isfinite(rows).all():
        raise UsageError(f"{name} holds a number that is not finite")
    with loop.lock:
        loop.replace_rows(rows)


def _not_pickle(location: Location) -> Location:
    """Stable-Baselines3's callbacks name this file .pkl, which it is not."""
    if not isinstance(location, str | Path):
        return location
    path = _with_suffix(location, ".npz")
    return path.with_suffix(".npz") if path.suffix == ".pkl" else path


# A path, or a file that is open


def _with_suffix(path: str | Path, suffix: str) -> Path:
    """The path as it is if it has a suffix, or with this one: `hopper` is hopper.zip."""
    path = Path(path)
    if path.name in ("", "..") or "\0" in path.name:
        raise UsageError(f"{str(path)!r} is not the name of a file: give a path such as 'model{suffix}'")
    return path if path.suffix else path.with_name(path.name + suffix)


def _name_of(location: Location) -> str:
    """The file's name in messages."""
    return str(location) if isinstance(location, str | Path) else f"the open {type(location).__name__}"


def _write(location: Location, suffix: str, content: bytes) -> None:
    if isinstance(location, str | Path):
        path = _with_suffix(location, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
        return
    try:
        location.write(content)
    except (AttributeError, TypeError, ValueError) as error:  # ValueError: closed, or not open for this
        raise _not_a_file(location, error) from None


def _read(location: Location, suffix: str) -> bytes:
    if isinstance(location, str | Path):
        return read_whole(_with_suffix(location, suffix))
    try:
        if location.seekable():
            size = location.seek(0, io.SEEK_END)
            if size > MAX_FILE_BYTES:
                raise Damaged(f"{_name_of(location)} has {size:,} bytes, more than are ever written")
            location.seek(0)  # it may just have been written
        content = location.read()
    except (AttributeError, TypeError, ValueError) as error:
        raise _not_a_file(location, error) from None
    if not isinstance(content, bytes):
        raise _not_a_file(location, TypeError("it is text"))
    return content


def _not_a_file(location: object, error: Exception) -> UsageError:
    return UsageError(
        f"a {type(location).__name__} is not a file ({error}): give a path, or a file open in binary mode"
    )
