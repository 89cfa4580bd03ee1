"""A model's files: its agent, which is saved and loaded, and its replay buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mepg.api.arguments import pop_run_settings
from mepg.api.files import Location, SavedModel, name_of, read_transitions, run_folder, write, write_transitions
from mepg.api.learner import Learner, LearningLock, TrainingState
from mepg.api.model_config import ModelConfig, count_envs
from mepg.errors import UsageError
from mepg.settings import describe
from mepg.storage.checkpoint import flatten, unflatten
from mepg.storage.files import Damaged
from mepg.storage.folder import versions
from mepg.storage.identity import Identity
from mepg.storage.policy import read_best, restore_trainables
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program

if TYPE_CHECKING:
    from mepg.api.model import Model

M = TypeVar("M", bound="Model")

# What Stable-Baselines3 would leave out of a file, or is asked to, and is not in ours anyway.
NOT_SAVED = frozenset(
    ("replay_buffer", "rollout_buffer", "env", "eval_env", "logger", "ep_info_buffer", "ep_success_buffer",
     "tensorboard_log", "verbose", "device")
)  # fmt: skip
# Settings of a run that a file does not bring along: those of another machine, and data, as it holds no replay buffer.
NOT_BROUGHT_ALONG = ("threads", "backend", "data", "data_share")


def save(learner: Learner, path: Location, first_step: int) -> None:
    """Write all but the replay buffer.

    :param first_step: the step at which `num_timesteps` was 0
    """
    with learner.lock:
        training, config = learner.training, learner.config
        if isinstance(training, Loop):
            training.check_finite()  # networks that are no longer finite are not worth a file
        saved = SavedModel(
            Identity(config, learner.spaces),
            training.step,
            training.step - first_step,
            training.next_episode,
            flatten(learner.state, "agent"),
            versions(config.backend),
        )
        content = saved.to_bytes()
    write(path, ".zip", content)


def save_replay_buffer(learner: Learner, path: Location) -> None:
    """Write the transitions, the oldest first."""
    with learner.lock:
        replay = learner.training.replay
        if replay is None:
            raise UsageError("this model has no replay buffer: it was loaded, and has not learned since")
        transitions = replay.read(replay.oldest, replay.count)
    write_transitions(path, transitions)


def load_replay_buffer(learner: Learner, path: Location) -> None:
    """Replace the transitions by those of a file."""
    loop = learner.loop
    transitions = read_transitions(path, loop.replay.width)
    with loop.lock:
        loop.replace_rows(transitions)


def require_whole(exclude: Any, include: Any) -> None:
    """Refuse a file that would hold more or less than `save` writes."""
    if include:
        raise UsageError(f"include={include!r}: a model's file holds all but the replay buffer: save_replay_buffer")
    names = exclude if isinstance(exclude, Iterable) and not isinstance(exclude, str) else [exclude]
    if kept := [name for name in names if name is not None and name not in NOT_SAVED]:
        raise UsageError(f"exclude={kept!r}: a model's file holds all that it takes to load it; leave exclude out")


def make_model(kind: type[M], saved: SavedModel, path: Location, env: Any, arguments: dict[str, Any]) -> M:
    """A model without what it has learned, made with the arguments that were saved.

    :param kind: a class of the algorithm that was saved, or `Model`, which stands for any
    :param arguments: those that are to differ; None: as it was saved
    """
    from mepg.api.classes import class_of  # which needs Model, and Model this module

    config = saved.identity.config
    made = kind if kind.algorithm else class_of(config.algorithm)
    if config.algorithm != made.algorithm:
        raise UsageError(
            f"{name_of(path)} holds {config.algorithm}, not {made.algorithm}: load it with mepg.load, "
            f"or mepg.algorithm({config.algorithm!r}).load"
        )
    settings = pop_run_settings({name: value for name, value in vars(config).items() if name not in NOT_BROUGHT_ALONG})
    count = count_envs(env, config.envs)
    saved_arguments = {**settings, "spec": config.spec, "seed": config.seed, "n_envs": count}
    model = made(**saved_arguments | {name: value for name, value in arguments.items() if value is not None})
    if not isinstance(env, str | None) and model.n_envs != count:
        raise UsageError(f"n_envs={model.n_envs} makes copies of an environment by its id; this one is ready-made")
    assert isinstance(model, kind)
    return model


def custom_arguments(custom_objects: Any, *, predicts_only: bool) -> dict[str, Any]:
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


def restore(
    saved: SavedModel, model_config: ModelConfig, path: Location, learning_lock: LearningLock, *, best: bool
) -> Learner:
    """What a file holds, without an environment to learn in.

    :param model_config: of the new model, which may differ from the saved one where no network depends on it
    :param best: of a run's folder, the policy of its best evaluation
    """
    (saved_config, spaces), steps = saved.identity, saved.steps
    config = replace(model_config.run_config(spaces.id), backend=Program.backend)
    program = Program(config, config.build(spaces.sizes), spaces.sizes)
    try:
        state = unflatten(saved.arrays, program.template, "agent")
    except Damaged as damage:
        _require_same_networks(saved_config, config, name_of(path))
        raise UsageError(f"{name_of(path)} is damaged: {damage}") from None
    if best:
        networks, steps, _ = read_best(run_folder(path), saved_config, program.template)
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
