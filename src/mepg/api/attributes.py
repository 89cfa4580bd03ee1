"""Attributes of Stable-Baselines3's models: those that are read from a spec, and those that are not here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mepg.api import unsupported
from mepg.api.arguments import ARGUMENTS, integer
from mepg.errors import UsageError


class SpecAttribute:
    """`model.gamma`: an argument's value, read from the model's spec."""

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self
        try:
            return ARGUMENTS[self.name].read(model.spec, model.n_envs)
        except UsageError as error:  # not of this algorithm
            raise AttributeError(f"{kind.__name__} has no {self.name!r}: {error}") from None

    def __set__(self, model: Any, value: Any) -> None:
        argument = f"{self.name}={value!r:.40}"
        raise AttributeError(
            f"{self.name} cannot be set: give it to a new model, {type(model).__name__}(..., {argument}), "
            f"or to a saved one, load(path, {argument})"
        )


def spec_attributes() -> Iterable[SpecAttribute]:
    """One for each argument: the class says their names, for editors and type checkers."""
    return (SpecAttribute() for _ in ARGUMENTS)


class UnsupportedAttribute:
    """An attribute that only Stable-Baselines3's models have: the error says what to use instead."""

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self
        raise AttributeError(f"{kind.__name__} has no {self.name!r}: {self.instead}")

    def __set__(self, model: Any, _: Any) -> None:
        raise AttributeError(f"{type(model).__name__} has no {self.name!r}: {self.instead}")


def add_unsupported(kind: type) -> None:
    """Say, for each name that Stable-Baselines3's models have and `kind` has not, what to use instead."""
    arguments = {name: argument.instead for name, argument in unsupported.ARGUMENTS.items()}
    for name, instead in (arguments | unsupported.ATTRIBUTES).items():
        setattr(kind, name, UnsupportedAttribute(name, instead))


def check_attribute(name: str, value: Any) -> Any:
    """A value that a user sets, as the model keeps it. What would have no effect, or fail later, is refused."""
    if name in READ_ONLY:
        raise AttributeError(f"{name} cannot be set: {READ_ONLY[name]}")
    if name == "verbose":
        return integer(name, int(value) if isinstance(value, bool | np.bool) else value or 0, least=0)
    if name == "tensorboard_log" and not isinstance(value, str | Path | None):
        raise UsageError(f"{name} is the path of a folder, not {value!r:.80}")
    return value


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
