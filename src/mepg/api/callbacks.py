"""Callbacks: plain functions, or objects with the method names of Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.api.vecenv import infos_of
from mepg.errors import UsageError
from mepg.training.loop import Record

Locals = dict[str, Any]


class Callbacks:
    """Any number of callbacks. A method that one of them lacks is not called."""

    def __init__(self, given: Any) -> None:
        several = given if isinstance(given, list | tuple) else [] if given is None else [given]
        self._all = [_as_object(callback) for callback in several]

    def __bool__(self) -> bool:
        return bool(self._all)

    def begin(self, model: Any, variables: Locals) -> None:
        self._tell("init_callback", model)
        self._tell("on_training_start", variables, {})

    def before_step(self) -> None:
        self._tell("on_rollout_start")

    def after_step(self, variables: Locals) -> bool:
        """Whether to go on."""
        self._tell("update_locals", variables)
        go_on = [_goes_on(callback.on_step()) for callback in self._all]  # each of them, whatever another says
        self._tell("on_rollout_end")
        return all(go_on)

    def end(self) -> None:
        self._tell("on_training_end")

    def _tell(self, what: str, *arguments: Any) -> None:
        for callback in self._all:
            if (method := getattr(callback, what, None)) is not None:
                method(*arguments)


def _goes_on(said: Any) -> bool:
    """Anything false is no, NumPy's False and 0 too. None is yes: it is what a function returns that has no opinion."""
    try:
        return said is None or bool(said)
    except Exception as error:  # an array of several
        raise UsageError(
            f"a callback returned a {type(said).__name__}, which is neither true nor false: {error}"
        ) from None


class _Function:
    """A function of (locals, globals) that says whether to go on."""

    def __init__(self, function: Callable[[Locals, Locals], bool | None]) -> None:
        self._function = function
        self._locals: Locals = {}

    def update_locals(self, variables: Locals) -> None:
        self._locals = variables

    def on_step(self) -> bool | None:
        return self._function(self._locals, {})


def _as_object(callback: Any) -> Any:
    if hasattr(callback, "on_step"):
        return callback
    if callable(callback) and not isinstance(callback, type):
        return _Function(callback)
    wants = "a function of (locals, globals), or an object with a method on_step"
    is_collection = isinstance(callback, Iterable)
    raise UsageError(
        f"a callback is {wants}, not {'a ' + type(callback).__name__ if is_collection else repr(callback)}"
    )


def step_locals(record: Record, actions: npt.NDArray[Any], obs: npt.NDArray[np.float32]) -> dict[str, Any]:
    """What callbacks find in their `locals`: as with Stable-Baselines3's VecEnv, the next episodes have begun."""
    infos, ended = infos_of(record.results), iter(record.episodes)
    for info, result in zip(infos, record.results, strict=True):
        if result.over:
            total, length = next(ended)
            info.setdefault("episode", {"r": total, "l": length})
    return {
        "actions": actions,
        "new_obs": obs,
        "rewards": np.array([result.reward for result in record.results], np.float32),
        "dones": np.array([result.over for result in record.results]),
        "infos": infos,
    }
