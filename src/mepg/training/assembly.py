"""A loop from a config: the one place where agent, program, environments and replay buffer come together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from mepg.algos import n_step_and_discount
from mepg.core.types import Agent, Sizes
from mepg.envs.env import Env
from mepg.envs.spaces import Spaces
from mepg.envs.vector import Envs, make_envs, require_same_spaces
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError, one_line
from mepg.native.build import CannotBuild, CompilerDisabled
from mepg.native.check import Disagrees
from mepg.native.graph import Unsupported
from mepg.system import release_free_memory
from mepg.training.config import Config
from mepg.training.data import Data
from mepg.training.loop import Loop
from mepg.training.native_program import NativeProgram
from mepg.training.program import Program
from mepg.training.replay import MixedReplay, Replay
from mepg.words import many


def assemble(config: Config, envs: Envs, eval_env: Env | None = None, data: Data | None = None) -> Loop:
    """A loop in existing environments. Without `eval_env` nothing is evaluated.

    `loop.config.backend` is the backend that was chosen.

    :param data: the config's, if it has any
    """
    replay = make_replay(config, envs.spaces, data)
    program, note = make_program(config, config.build(envs.sizes), envs.sizes)
    release_free_memory()  # compiling takes hundreds of megabytes, which the run will not need
    return Loop(replace(config, backend=program.backend), program, envs, eval_env, replay, note)


@contextlib.contextmanager
def open_loop(config: Config, watchdog: Watchdog | None = None, data: Data | None = None) -> Iterator[Loop]:
    """A loop in environments of its own, which are closed at the end; `data`: see `assemble`."""
    with (
        contextlib.closing(make_envs(config.env, config.envs, watchdog=watchdog)) as envs,
        contextlib.closing(Env(config.env, watchdog=watchdog)) as eval_env,
    ):
        require_same_spaces(envs.spaces, eval_env.spaces)
        yield assemble(config, envs, eval_env, data)


def make_replay(config: Config, spaces: Spaces, data: Data | None) -> Replay:
    """The replay buffer, with the config's data in it or beside it."""
    assert (data is None) == (config.data is None)
    spec = config.spec
    if data is None:
        return Replay(spec.replay_size, spaces.sizes)
    n_step, discount = n_step_and_discount(spec)
    rows = data.to_rows(spaces, n_step, discount)
    if config.data_share is not None:
        from_data = round(config.data_share * spec.batch_size)
        if not 0 < from_data < spec.batch_size:
            raise UsageError(
                f"data-share {config.data_share:g} of a batch of {spec.batch_size} is {from_data}: "
                f"choose one that leaves at least one transition of each kind"
            )
        return MixedReplay(spec.replay_size, spaces.sizes, rows, spec.batch_size, from_data)
    if len(rows) > spec.replay_size:
        raise UsageError(
            f"{data.name} has {many(len(rows), 'transition')}, more than fit into the replay buffer: "
            f"--set replay_size={len(rows)} or more, or --data-share 0.5, which keeps them beside it"
        )
    return Replay(spec.replay_size, spaces.sizes, rows)


def make_program(config: Config, agent: Agent, sizes: Sizes) -> tuple[Program, str]:
    """The program on the config's backend. If `auto` had to choose XLA, also a line that says why; else "".

    This is where "auto" is decided: native code if it can be had for this agent, or else XLA.
    """
    if config.backend == "xla":
        return Program(config, agent, sizes), ""
    try:
        return NativeProgram(config, agent, sizes), ""
    except (UsageError, RunFailure):
        raise
    except Exception as error:  # of any kind: XLA computes the run, or meets the same error and raises it
        reason = _reason(error)
        if config.backend == "native":
            raise UsageError(
                f"--backend native cannot be used: {reason}; --backend xla works everywhere, in a new run"
            ) from None
        note = "" if isinstance(error, CompilerDisabled) else f"computing with XLA, not with native code: {reason}"
        return Program(config, agent, sizes), note


def _reason(error: Exception) -> str:
    """Why there is no native code."""
    if isinstance(error, Unsupported):
        return f"there is no C++ for {error}"
    return str(error) if isinstance(error, CannotBuild | Disagrees) else f"it failed with {one_line(error)}"
