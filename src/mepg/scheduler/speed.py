"""How long a run takes on this machine, estimated from a few of its steps."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from mepg.envs.simulators import time_limit_of
from mepg.training.assembly import open_loop
from mepg.training.config import Config

WARMUP, TRY = 30, 3.0  # steps; seconds at most


class Speed(NamedTuple):
    """Seconds that parts of a run take."""

    beginning: float  # imports aside: environments, networks, compiling
    random_step: float
    step: float  # with its updates
    evaluation_step: float

    def seconds(self, config: Config) -> float:
        """How long the whole run takes, if no evaluation episode ends early."""
        warmup = min(config.spec.warmup, config.steps)
        limit = time_limit_of(config.env) or 1_000
        evaluations = -(-config.steps // config.eval_every) * config.eval_episodes * limit
        learning = (config.steps - warmup) * self.step
        return float(self.beginning + warmup * self.random_step + learning + evaluations * self.evaluation_step)


def measure(config: Config) -> Speed:
    """Time a few steps of this run; nothing is written."""
    spec = replace(config.spec, warmup=WARMUP, replay_size=10_000)
    config = replace(config, spec=spec, steps=10**9, eval_every=10**9)
    began = time.perf_counter()
    with open_loop(config) as loop:
        loop.advance()
        random = _time_of(loop.advance, at_most=WARMUP - 1)
        for _ in range(WARMUP - loop.step + 2):  # the first steps with an update compile it
            loop.advance()
        env = loop.eval_env
        assert env is not None
        obs = env.reset(0)
        loop.exploit(obs)
        beginning = time.perf_counter() - began
        step = _time_of(loop.advance)
        evaluation = _time_of(lambda: env.step(loop.exploit(obs)), at_most=20)
    return Speed(beginning, random, step, evaluation)


def _time_of(act: Any, at_most: int = 100) -> float:
    began, count = time.perf_counter(), 0
    while count < at_most and time.perf_counter() - began < TRY:
        act()
        count += 1
    return (time.perf_counter() - began) / count


def kind(config: Config) -> str:
    """One name for runs that cost the same: a mask's p, the seed and the task change little."""
    return f"{config.algorithm}, {config.spec.hidden}, {config.spec.batch_size}"
