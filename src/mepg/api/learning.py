"""What `model.learn` does: a loop of steps, with callbacks, a log and a progress bar.

Callbacks are plain functions, or objects with the method names of Stable-Baselines3's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from rich.progress import MofNCompleteColumn, Progress

from mepg.api.vecenv import vec_env_infos
from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.signals import interrupt_between_steps
from mepg.training.loop import Loop, Record

if TYPE_CHECKING:
    from mepg.api.model import Model

Locals = dict[str, Any]


class StepCallback(Protocol):
    """An object with `on_step`, and perhaps other methods of Stable-Baselines3's callbacks."""

    def on_step(self) -> object:
        """Whether to continue: see `_continues`."""


Callback = Callable[[Locals, Locals], object] | StepCallback  # a function of (locals, globals), or an object
MaybeCallback = None | Callback | Sequence[Callback]


def run_steps(
    model: Model, loop: Loop, steps: int, callback: MaybeCallback, log_interval: int | None, *, progress_bar: bool
) -> None:
    """Take this many steps, or fewer if a callback stops them.

    :param log_interval: training episodes between two rows of the log; None: no log
    """
    end, episodes = model.num_timesteps + steps, 0
    callbacks = _checked(callback)
    variables: Locals = {"self": model, "total_timesteps": end, "env": model.env, "callback": callback}
    _call(callbacks, "init_callback", model)
    _call(callbacks, "on_training_start", variables, {})
    columns = *Progress.get_default_columns(), MofNCompleteColumn()
    with Progress(*columns, disable=not progress_bar) as bar, interrupt_between_steps() as check_interrupt:
        task = bar.add_task("learning", total=steps)
        while model.num_timesteps < end:
            check_interrupt()
            _call(callbacks, "on_rollout_start")
            actions = loop.next_actions
            record = loop.advance()
            bar.advance(task, loop.envs.count)
            episodes += len(record.episodes)
            if log_interval is not None and record.episodes and episodes % log_interval < len(record.episodes):
                model.dump_logs()
            if callbacks:
                variables |= step_locals(record, loop.envs.spaces.scale(actions), loop.obs.copy(), loop.envs.spaces)
                _call(callbacks, "update_locals", variables)
                results = [  # all are called, whoever stops
                    each.on_step() if hasattr(each, "on_step") else each(variables, {}) for each in callbacks
                ]
                _call(callbacks, "on_rollout_end")
                if not all(map(_continues, results)):
                    break
    loop.check_finite()
    _call(callbacks, "on_training_end")
    if loop.updates == 0:
        warnings.warn(
            f"nothing has been learned yet: the first {loop.config.spec.warmup:,} actions are random; learn for "
            "longer, or give a smaller learning_starts",
            stacklevel=3,
        )


def _checked(callback: MaybeCallback) -> list[Any]:
    """The callbacks, one or several; a UsageError if one of them is none."""
    callbacks = list(callback) if isinstance(callback, list | tuple) else [] if callback is None else [callback]
    for each in callbacks:
        if not hasattr(each, "on_step") and (not callable(each) or isinstance(each, type)):
            shown = f"a {type(each).__name__}" if isinstance(each, Iterable) else repr(each)
            raise UsageError(
                f"a callback is a function of (locals, globals), or an object with a method on_step, not {shown}"
            )
    return callbacks


def _call(callbacks: list[Any], method_name: str, *args: Any) -> None:
    """Call this method of those that have it."""
    for callback in callbacks:
        if (method := getattr(callback, method_name, None)) is not None:
            method(*args)


def _continues(result: object) -> bool:
    """Anything false stops, NumPy's False and 0 too. None continues: it is what a function returns by default."""
    try:
        return result is None or bool(result)
    except Exception as error:  # an array of several
        raise UsageError(
            f"a callback returned a {type(result).__name__}, which is neither true nor false: {error}"
        ) from None


def step_locals(record: Record, actions: npt.NDArray[Any], obs: npt.NDArray[np.float32], spaces: Spaces) -> Locals:
    """What callbacks find in their `locals`: as with Stable-Baselines3's VecEnv, the next episodes have begun."""
    infos, ended = vec_env_infos(record.results, spaces), iter(record.episodes)
    for info, result in zip(infos, record.results, strict=True):
        if result.done:
            total, length = next(ended)
            info.setdefault("episode", {"r": total, "l": length})
    return {
        "actions": actions,
        "new_obs": spaces.unflatten(obs),
        "rewards": np.array([result.reward for result in record.results], np.float32),
        "dones": np.array([result.done for result in record.results]),
        "infos": infos,
    }
