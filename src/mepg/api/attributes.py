"""Attributes of Stable-Baselines3's models: those that are read from a spec, and those that are not here."""

from __future__ import annotations

from typing import Any

from mepg.api.arguments import ARGUMENTS, INSTEAD, NOT_SUPPORTED
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
        raise AttributeError(f"{self.name} cannot be set: {self.way_out(model, value)}")

    def way_out(self, model: Any, value: Any) -> str:
        said = f"{self.name}={value!r:.40}"
        return f"give it to a new model, {type(model).__name__}(..., {said}), or to a saved one, load(path, {said})"


class Missing:
    """An attribute that only Stable-Baselines3's models have, and what to use instead."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self
        raise AttributeError(f"{kind.__name__} has no {self.name!r}: {self.instead}")

    def __set__(self, model: Any, _: Any) -> None:
        raise AttributeError(f"{type(model).__name__} has no {self.name!r}: {self.instead}")


def add_missing(kind: type) -> None:
    """Say, for each name that Stable-Baselines3's models have and `kind` has not, what to use instead."""
    unsupported = {name: instead or "it is not needed" for name, (_, instead) in NOT_SUPPORTED.items()}
    for name, instead in (unsupported | INSTEAD).items():
        missing = Missing(instead)
        missing.__set_name__(kind, name)
        setattr(kind, name, missing)


# Properties of a model that cannot be set, and the way out.
FIXED = {
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
