"""An estimate of how long runs take on this machine, from a few of their steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from mepg.envs.simulators import time_limit_of
from mepg.training.assembly import open_loop
from mepg.training.config import Config

WARMUP = 30  # steps
MAX_SECONDS = 3.0  # for each measurement


class Speed(NamedTuple):
    """Seconds that the parts of a run take."""

    startup: float  # environments, networks and compiling, without imports
    warmup_step: float  # with random actions, without updates
    step: float  # with its updates
    evaluation_step: float

    def seconds(self, config: Config) -> float:
        """How long the whole run takes, if no evaluation episode ends early."""
        warmup = min(config.spec.warmup, config.steps)
        limit = time_limit_of(config.env) or 1_000
        evaluation_steps = -(-config.steps // config.eval_every) * config.eval_episodes * limit
        training = (config.steps - warmup) * self.step
        return float(self.startup + warmup * self.warmup_step + training + evaluation_steps * self.evaluation_step)


def measure(config: Config) -> Speed:
    """Time a few steps of this run, without any data; nothing is written."""
    spec = replace(config.spec, warmup=WARMUP, replay_size=10_000)
    config = replace(config, spec=spec, steps=10**9, eval_every=10**9, data=None, data_share=None, data_sha256=None)
    start = time.perf_counter()
    with open_loop(config) as loop:
        loop.advance()
        warmup_step = _seconds_per_call(loop.advance, max_calls=WARMUP - 1)
        for _ in range(WARMUP - loop.step + 2):  # the first steps with an update compile it
            loop.advance()
        env = loop.eval_env
        assert env is not None
        obs = env.reset(0)
        loop.exploit(obs)
        startup = time.perf_counter() - start
        step = _seconds_per_call(loop.advance)
        evaluation_step = _seconds_per_call(lambda: env.step(loop.exploit(obs)), max_calls=20)
    return Speed(startup, warmup_step, step, evaluation_step)


def _seconds_per_call(function: Callable[[], object], max_calls: int = 100) -> float:
    start, calls = time.perf_counter(), 0
    while calls < max_calls and time.perf_counter() - start < MAX_SECONDS:
        function()
        calls += 1
    return (time.perf_counter() - start) / calls


def cost_key(config: Config) -> str:
    """The same for runs that cost about the same: the mask's p, the seed and the task change little."""
    return f"{config.algorithm}, {config.spec.hidden}, {config.spec.batch_size}"
