"""What `model.learn` does: a loop of steps, with callbacks, a log and a progress bar."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from rich.progress import MofNCompleteColumn, Progress

from mepg.api.callbacks import Callbacks, MaybeCallback, step_locals
from mepg.signals import interrupt_between_steps
from mepg.training.loop import Loop

if TYPE_CHECKING:
    from mepg.api.model import Model


def run_steps(
    model: Model, loop: Loop, steps: int, callback: MaybeCallback, log_interval: int | None, *, progress_bar: bool
) -> None:
    """Take this many steps, or fewer if a callback stops them.

    :param log_interval: training episodes between two rows of the log; None: no log
    """
    end, episodes = model.num_timesteps + steps, 0
    callbacks = Callbacks(callback)
    variables: dict[str, Any] = {"self": model, "total_timesteps": end, "env": model.env, "callback": callback}
    callbacks.begin(model, variables)
    columns = *Progress.get_default_columns(), MofNCompleteColumn()
    with Progress(*columns, disable=not progress_bar) as bar, interrupt_between_steps() as check_interrupt:
        task = bar.add_task("learning", total=steps)
        while model.num_timesteps < end:
            check_interrupt()
            callbacks.before_step()
            actions = loop.actions
            record = loop.advance()
            bar.advance(task, loop.envs.count)
            episodes += len(record.episodes)
            if log_interval is not None and record.episodes and episodes % log_interval < len(record.episodes):
                model.dump_logs()
            if callbacks:
                variables |= step_locals(record, loop.envs.spaces.scale(actions), loop.obs.copy(), loop.envs.spaces)
                if not callbacks.after_step(variables):
                    break
    loop.check_finite()
    callbacks.end()


def warn_if_untrained(loop: Loop) -> None:
    """Warn if there was no update yet, because all steps so far belong to the warm-up."""
    if loop.updates == 0:
        warnings.warn(
            f"nothing has been learned yet: the first {loop.config.spec.warmup:,} actions are random; learn for "
            "longer, or give a smaller learning_starts",
            stacklevel=3,
        )
