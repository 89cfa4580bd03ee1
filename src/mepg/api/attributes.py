"""Attributes of Stable-Baselines3's models: those that are read from a spec, and those that are not here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mepg.api import unsupported
from mepg.api.arguments import ARGUMENTS, integer
from mepg.errors import UsageError

if TYPE_CHECKING:
    from mepg.api.model import Model

# Of those that only Stable-Baselines3's models have: what to use instead.
MISSING = {name: argument.instead for name, argument in unsupported.ARGUMENTS.items()} | unsupported.ATTRIBUTES

# Attributes of a model that cannot be set, and the way out.
READ_ONLY = {
    "spec": "a model keeps the one that it was made with: give another spec= to a new one, or to load",
    "seed": "a model keeps the one that it was made with: give another seed= to a new one, or to load",
    "env": "model.set_env(env)",
    "n_envs": "model.set_env(env) brings as many as there are in env",
    "device": "mepg computes on the CPU",
    "logger": "model.set_logger(logger)",
    "replay_buffer": "model.load_replay_buffer(path)",
    "ep_info_buffer": "it is made from the last training episodes each time that it is read",
    "observation_space": "it is the environment's: model.set_env(env)",
    "action_space": "it is the environment's: model.set_env(env)",
    "algorithm": "mepg.algorithm(name) is the class of another",
    "default_spec": "give spec= to a new model",
}


def spec_attributes() -> Iterator[property]:
    """`model.gamma` and so on: each argument's value, read from the model's spec."""
    return (property(functools.partial(_read, name)) for name in ARGUMENTS)


def _read(name: str, model: Model) -> Any:
    try:
        return ARGUMENTS[name].read(model.spec, model.n_envs)
    except UsageError as error:  # not of this algorithm
        raise AttributeError(f"{type(model).__name__} has no {name!r}: {error}") from None


def add_unsupported(kind: type) -> None:
    """Say, for each name that Stable-Baselines3's models have and `kind` has not, what to use instead."""
    for name in MISSING:
        setattr(kind, name, property(functools.partial(_refuse, name)))


def _refuse(name: str, model: Model) -> None:
    raise AttributeError(f"{type(model).__name__} has no {name!r}: {MISSING[name]}")


def check_attribute(model: Model, name: str, value: object) -> Any:
    """A value that a user sets, as the model keeps it. What would have no effect, or fail later, is refused."""
    if name in ARGUMENTS:
        argument = f"{name}={value!r:.40}"
        raise AttributeError(
            f"{name} cannot be set: give it to a new model, {type(model).__name__}(..., {argument}), "
            f"or to a saved one, load(path, {argument})"
        )
    if name in READ_ONLY:
        raise AttributeError(f"{name} cannot be set: {READ_ONLY[name]}")
    if name in MISSING:
        _refuse(name, model)
    if name == "verbose":
        return integer(name, int(value) if isinstance(value, bool | np.bool) else value or 0, least=0)
    if name == "tensorboard_log" and not isinstance(value, str | Path | None):
        raise UsageError(f"{name} is the path of a folder, not {value!r:.80}")
    return value
