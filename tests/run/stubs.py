"""An agent and an environment small enough to know all about."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import jax.numpy as jnp
import numpy as np

from mepg.core.types import Agent, Metric, Sizes
from mepg.envs.spaces import Spaces, StepResult
from mepg.envs.vector import SerialEnvs
from mepg.run.config import Config
from mepg.run.loop import Loop
from mepg.run.program import Program
from mepg.run.replay import Replay

SIZES = Sizes(obs=1, action=1)


class CountingEnv:
    """Observes how far it is; ends after `ends_after` steps (alive or not), never otherwise. Reward 1."""

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
        over = self.at == self.ends_after
        return StepResult(np.array([self.at], np.float32), 1.0, not (over and self.terminal), over)


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


class Box(gymnasium.Env):
    """A Gymnasium environment with whatever spaces and whatever faults a test asks for."""

    def __init__(self, low=-1.0, high=1.0, actions=None, observations=None, fault=None, at=0, dtype=np.float32):
        box = gymnasium.spaces.Box
        self.action_space = actions or box(low, high, (2,), dtype)
        self.observation_space = observations or box(-np.inf, np.inf, (3,), np.float32)
        self.fault, self.at = fault, at
        self.last_action = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.standard_normal(3).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.last_action = action
        self.steps += 1
        obs, reward = self.np_random.standard_normal(3).astype(np.float32), float(np.sum(action))
        if self.steps == self.at:
            match self.fault:
                case "nan observation":
                    obs[1] = np.nan
                case "infinite reward":
                    reward = float("inf")
                case "wrong shape":
                    obs = obs[:2]
                case "exception":
                    raise RuntimeError("the simulator is gone")
                case "huge reward":
                    reward = 1e30
        return obs, reward, False, self.steps >= 50 and self.fault != "no end", {}


for name, kwargs in {
    "Plain": {},
    "Scaled": {"low": -3.0, "high": 5.0},
    "Double": {"dtype": np.float64},
    "Unbounded": {"low": -np.inf, "high": np.inf},
    "Discrete": {"actions": gymnasium.spaces.Discrete(3)},
    "MultiBinary": {"actions": gymnasium.spaces.MultiBinary(3)},
    "TooMany": {"actions": gymnasium.spaces.Discrete(2**24 + 1)},
    "IntegerBox": {"actions": gymnasium.spaces.Box(0, 3, (2,), np.int64)},
    "DictObs": {"observations": gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(-1, 1, (1,))})},
    "ImageObs": {"observations": gymnasium.spaces.Box(0, 1, (8, 8))},
    "NanObs": {"fault": "nan observation", "at": 30},
    "InfReward": {"fault": "infinite reward", "at": 30},
    "WrongShape": {"fault": "wrong shape", "at": 30},
    "Raises": {"fault": "exception", "at": 30},
    "HugeReward": {"fault": "huge reward", "at": 30},
    "Endless": {"fault": "no end"},
}.items():
    if f"Stub{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Stub{name}-v0", entry_point=Box, kwargs=kwargs)
