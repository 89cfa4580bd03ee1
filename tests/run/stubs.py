"""An agent and an environment small enough to know all about."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import jax.numpy as jnp
import numpy as np

from mepg.core.types import Agent, Metric, Sizes
from mepg.envs.spaces import Spaces, StepResult
from mepg.envs.vector import SerialEnvs
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.replay import Replay
from tests.envs.own import Box as Box

SIZES = Sizes(obs=1, action=1)


class CountingEnv:
    """Observes how far it is; ends after `ends_after` steps (terminated or truncated), never otherwise. Reward 1."""

    def __init__(self, ends_after=None, terminal=True):
        numbers = gymnasium.spaces.Box(-1, 1, (1,))
        self.spaces, self.id, self.time_limit = Spaces("Counting-v0", numbers, numbers), "Counting-v0", None
        self.original, self.sizes = None, self.spaces.sizes
        self.ends_after, self.terminal = ends_after, terminal
        self.seeds: list[int] = []
        self.taken: list[float] = []

    def reset(self, seed):
        self.seeds.append(seed)
        self.at = 0
        return np.array([0.0], np.float32)

    def step(self, action):
        self.taken.append(float(action[0]))
        self.at += 1
        done = self.at == self.ends_after
        return StepResult(np.array([self.at], np.float32), 1.0, done and self.terminal, done)


def stub_agent(seen=None):
    """Counts updates; acts 0.5 while exploring and -0.5 otherwise. Its loss is the updates so far."""

    def update(state, batch, key):
        if seen is not None:
            seen.append(batch.obs.shape)
        state = {"updates": state["updates"] + 1.0, "last": batch.reward.sum()}
        return state, {"loss": Metric(state["updates"], jnp.float32(1))}

    return Agent(
        init=lambda key: {"updates": jnp.float32(0), "last": jnp.float32(0)},
        explore=lambda state, memory, obs, key: (jnp.full((len(obs), 1), 0.5), memory),
        exploit=lambda state, obs: jnp.full((len(obs), 1), -0.5),
        update=update,
    )


def make_loop(
    *,
    steps=20,
    warmup=5,
    batch_size=4,
    replay_size=100,
    updates_per_step=1,
    ahead=None,
    eval_every=10,
    env=None,
    envs=None,
    eval_env=None,
    agent=None,
):
    """In one environment, or in several that were made. `ahead`: n and gamma of n-step returns."""
    spec = SimpleNamespace(
        warmup=warmup, batch_size=batch_size, replay_size=replay_size, updates_per_step=updates_per_step
    )
    if ahead is not None:
        spec.n_step, spec.discount = ahead
    envs = envs or SerialEnvs([env or CountingEnv(7)])
    config = Config(
        algorithm="stub",
        spec=spec,
        env="Counting-v0",
        steps=steps,
        eval_every=eval_every,
        eval_episodes=3,
        envs=envs.count,
    )
    eval_env = None if envs.count > 1 else eval_env or CountingEnv(3)
    program = Program(config, agent or stub_agent(), envs.sizes)
    return Loop(config, program, envs, eval_env, Replay(replay_size, envs.sizes))
