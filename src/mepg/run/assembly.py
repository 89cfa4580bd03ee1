"""A loop from a config: the one place where agent, program, environments and replay memory are put together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from mepg.core.types import Agent, Sizes
from mepg.envs.env import Env
from mepg.envs.vector import Envs, make_envs, require_same_spaces
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError, one_line
from mepg.native.build import CannotBuild, CompilerDisabled
from mepg.native.check import Disagrees
from mepg.native.graph import Unsupported
from mepg.run.config import Config
from mepg.run.loop import Loop
from mepg.run.native_program import NativeProgram
from mepg.run.program import Program
from mepg.run.replay import Replay


def assemble(config: Config, envs: Envs, eval_env: Env | None = None) -> Loop:
    """In existing environments. Without `eval_env` nothing is evaluated. The loop's config says its backend."""
    program, note = make_program(config, config.build(envs.sizes), envs.sizes)
    replay = Replay(config.spec.replay_size, envs.sizes)
    return Loop(replace(config, backend=program.backend), program, envs, eval_env, replay, note)


@contextlib.contextmanager
def open_loop(config: Config, watchdog: Watchdog | None = None) -> Iterator[Loop]:
    """In environments of its own, which are closed in the end."""
    with (
        contextlib.closing(make_envs(config.env, config.envs, watchdog=watchdog)) as envs,
        contextlib.closing(Env(config.env, watchdog=watchdog)) as eval_env,
    ):
        require_same_spaces(envs.spaces, eval_env.spaces)
        yield assemble(config, envs, eval_env)


def make_program(config: Config, agent: Agent, sizes: Sizes) -> tuple[Program, str]:
    """On the config's backend. If that is `auto` and XLA had to be chosen, also a line that says why."""
    if config.backend == "xla":
        return Program(config, agent, sizes), ""
    try:
        return NativeProgram(config, agent, sizes), ""
    except (UsageError, RunFailure):
        raise
    except Exception as error:  # whatever it is: XLA computes the run, or meets the same error and says so
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
