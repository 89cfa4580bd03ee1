"""The class of each algorithm, such as `mepg.ME_SAC`: made from the registry, where an algorithm declares its name."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any

import gymnasium

from mepg import algos
from mepg.api.files import Location
from mepg.api.model import Model
from mepg.envs.env import Env
from mepg.envs.simulators import first_task
from mepg.errors import RunFailure, UsageError


def algorithm(name: str) -> type[Model]:
    """The class for any name that `mepg list` prints, such as "me-sac-r", or for "my_module:name" of your own."""
    algos.import_named(name)
    return class_of(name)


def load(path: Location, env: object = None, **kwargs: Any) -> Model:
    """A model of whichever algorithm, from a file that `save` wrote or from a folder of `mepg train`."""
    return Model.load(path, env, **kwargs)


def recommended(env: object, **kwargs: Any) -> Model:
    """A model of the algorithm to start with in `env`, which `mepg list` marks, with the settings that suit it.

    :param env: as a class such as `mepg.ME_SAC` takes it: its actions decide
    :param kwargs: any argument of such a class, such as ``seed``
    """
    if env is None:
        raise UsageError(f"an algorithm is recommended for an environment: mepg.recommended({first_task()!r})")
    choice = algos.RECOMMENDED[_action_kind(env)]
    tuned = choice.tuned and kwargs.get("spec") is None  # a whole spec has rates of its own
    return class_of(choice.algorithm)(env=env, **{"tuned": tuned, "normalize_obs": choice.normalize_obs} | kwargs)


def _action_kind(env: object) -> str:
    """One of `ACTION_KINDS`; of what is no environment any, because a model refuses it."""
    if isinstance(env, str):
        with contextlib.closing(Env(env)) as made:
            return made.sizes.action_kind
    space = getattr(env, "single_action_space", getattr(env, "action_space", None))
    return "discrete" if isinstance(space, gymnasium.spaces.Discrete) else "box"


@functools.cache
def class_of(name: str) -> type[Model]:
    """The class of an algorithm that is imported already; the same one each time."""
    entry = algos.find(name)
    namespace = {"algorithm": name, "__doc__": f"{entry.summary[:1].upper()}{entry.summary[1:]}.", "__module__": "mepg"}
    return type(entry.python_name or re.sub(r"\W", "_", name).upper(), (Model,), namespace)


def exports() -> dict[str, Any]:
    """What the package `mepg` offers, by name: the class of each algorithm that has a `python_name`, and a few more."""
    classes = {entry.python_name: class_of(name) for name, entry in algos.algorithms().items() if entry.python_name}
    common = (Model, RunFailure, UsageError, algorithm, load, recommended)
    return classes | {each.__name__: each for each in common}
