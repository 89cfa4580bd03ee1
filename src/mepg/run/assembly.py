"""A loop from a config: the one place where agent, environments and replay memory are put together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mepg.envs.env import Env
from mepg.envs.vector import Envs, make_envs, require_same_spaces
from mepg.envs.watchdog import Watchdog
from mepg.run.config import Config
from mepg.run.loop import Loop
from mepg.run.replay import Replay


def assemble(config: Config, envs: Envs, eval_env: Env | None = None) -> Loop:
    """In environments that are there. Without `eval_env` nothing is evaluated."""
    agent, replay = config.build(envs.sizes), Replay(config.spec.replay_size, envs.sizes)
    return Loop(config, agent, envs, eval_env, replay)


@contextlib.contextmanager
def open_loop(config: Config, watchdog: Watchdog | None = None) -> Iterator[Loop]:
    """In environments of its own, which are closed in the end."""
    with (
        contextlib.closing(make_envs(config.env, config.envs, watchdog=watchdog)) as envs,
        contextlib.closing(Env(config.env, watchdog=watchdog)) as eval_env,
    ):
        require_same_spaces(envs.spaces, eval_env.spaces)
        yield assemble(config, envs, eval_env)
