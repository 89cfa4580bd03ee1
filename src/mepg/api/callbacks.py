"""Callbacks: plain functions, or objects with the method names of Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mepg.api.vecenv import vec_env_infos
from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.training.loop import Record

Locals = dict[str, Any]


class StepCallback(Protocol):
    """An object with `on_step`, and perhaps other methods of Stable-Baselines3's callbacks."""

    def on_step(self) -> Any:
        """Whether to continue: see `_continues`."""


Callback = Callable[[Locals, Locals], Any] | StepCallback  # a function of (locals, globals), or an object
MaybeCallback = None | Callback | Sequence[Callback]


class Callbacks:
    """Any number of callbacks. A method that one of them lacks is not called."""

    def __init__(self, callback: MaybeCallback) -> None:
        several = callback if isinstance(callback, list | tuple) else [] if callback is None else [callback]
        self._callbacks: list[Any] = [_checked(each) for each in several]

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def begin(self, model: Any, variables: Locals) -> None:
        self._call("init_callback", model)
        self._call("on_training_start", variables, {})

    def before_step(self) -> None:
        self._call("on_rollout_start")

    def after_step(self, variables: Locals) -> bool:
        """Whether to continue."""
        self._call("update_locals", variables)
        results = [  # all are called, whoever stops
            callback.on_step() if hasattr(callback, "on_step") else callback(variables, {})
            for callback in self._callbacks
        ]
        self._call("on_rollout_end")
        return all(map(_continues, results))

    def end(self) -> None:
        self._call("on_training_end")

    def _call(self, method_name: str, *args: Any) -> None:
        for callback in self._callbacks:
            if (method := getattr(callback, method_name, None)) is not None:
                method(*args)


def _continues(result: Any) -> bool:
    """Anything false stops, NumPy's False and 0 too. None continues: it is what a function returns by default."""
    try:
        return result is None or bool(result)
    except Exception as error:  # an array of several
        raise UsageError(
            f"a callback returned a {type(result).__name__}, which is neither true nor false: {error}"
        ) from None


def _checked(callback: Any) -> Any:
    if hasattr(callback, "on_step") or (callable(callback) and not isinstance(callback, type)):
        return callback
    shown = f"a {type(callback).__name__}" if isinstance(callback, Iterable) else repr(callback)
    raise UsageError(f"a callback is a function of (locals, globals), or an object with a method on_step, not {shown}")


def step_locals(record: Record, actions: npt.NDArray[Any], obs: npt.NDArray[np.float32], spaces: Spaces) -> Locals:
    """What callbacks find in their `locals`: as with Stable-Baselines3's VecEnv, the next episodes have begun."""
    infos, ended = vec_env_infos(record.results, spaces), iter(record.episodes)
    for info, result in zip(infos, record.results, strict=True):
        if result.over:
            total, length = next(ended)
            info.setdefault("episode", {"r": total, "l": length})
    return {
        "actions": actions,
        "new_obs": spaces.unflatten(obs),
        "rewards": np.array([result.reward for result in record.results], np.float32),
        "dones": np.array([result.over for result in record.results]),
        "infos": infos,
    }
