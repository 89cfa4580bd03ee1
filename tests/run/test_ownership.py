"""What is handed to an environment is its own to write on, and so is what it has handed over: nothing is read again."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from mepg.envs.vector import make_envs
from mepg.training.loop import Loop
from tests.conftest import all_but_slow, leaves_equal
from tests.envs.own import Scribbles, ScribblesWide, Tidy, TidyWide
from tests.run.stubs import CountingEnv, make_loop

STEPS, WARMUP, SAVED_AT = 60, 20, 44


class LikeStableBaselines:
    """A VecEnv in whose arrays everything is written again and again."""

    num_envs = 2

    def __init__(self, kind):
        self.envs = [kind() for _ in range(2)]
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.obs = np.zeros((2, 2), np.float32)
        self.rewards, self.ends = np.zeros(2), np.zeros(2, bool)

    def seed(self, seed):
        self.seeds = [seed, seed + 1]

    def reset(self):
        self.obs[:] = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self.seeds, strict=True)]
        return self.obs

    def step(self, actions):
        infos = [{}, {}]
        for place, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, self.rewards[place], _, self.ends[place], _ = env.step(action)
            if self.ends[place]:
                infos[place] = {"terminal_observation": obs.copy(), "TimeLimit.truncated": True}
                obs, _ = env.reset()
            self.obs[place] = obs
        return self.obs, self.rewards, self.ends, infos

    step_async = step_wait = close = lambda self: None


for kind in (Tidy, Scribbles, TidyWide, ScribblesWide):
    gymnasium.register(f"Own{kind.__name__}-v0", entry_point=kind)

HELD = {
    "one": lambda kind: make_envs(kind()),
    "two of an id": lambda kind: make_envs(f"Own{kind.__name__}-v0", 2),
    "vector": lambda kind: make_envs(SyncVectorEnv([kind] * 2)),
    "vector, reset in the same step": lambda kind: make_envs(
        SyncVectorEnv([kind] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    ),
    "vector without copies": lambda kind: make_envs(SyncVectorEnv([kind] * 2, copy=False)),
    "processes": lambda kind: make_envs(AsyncVectorEnv([kind] * 2, context="spawn")),
    "like Stable-Baselines3": lambda kind: make_envs(LikeStableBaselines(kind)),
}


def make(held, kind) -> Loop:
    return make_loop(steps=STEPS, warmup=WARMUP, envs=HELD[held](kind), eval_every=10 * STEPS, eval_env=CountingEnv(3))


def record(loop):
    end = loop.snapshot()
    rows = loop.replay.read(0, STEPS)
    loop.envs.close()
    return rows, end.episode_actions, end.next_actions, end.state, end.recent_episodes


@pytest.mark.parametrize(("tidy", "scribbles"), [(Tidy, Scribbles), (TidyWide, ScribblesWide)])
@pytest.mark.parametrize("held", all_but_slow(HELD, HELD.keys() - {"processes"}))
def test_an_environment_may_write_on_what_it_gets(held, tidy, scribbles):
    expected, given = make(held, tidy), make(held, scribbles)
    list(expected)
    list(given)
    assert leaves_equal(record(given), record(expected))


@pytest.mark.parametrize("held", ["one", "two of an id", "vector", "processes"])
def test_its_run_resumes(held):
    whole = make(held, Scribbles)
    for step in whole:
        if step.step == SAVED_AT:
            saved, rows = whole.snapshot(), whole.replay.read(0, SAVED_AT)
            saved = saved._replace(state={name: np.array(leaf) for name, leaf in saved.state.items()})
    resumed = make(held, Scribbles)
    resumed.replay.restore(0, rows)
    assert resumed.restore(saved), "its episode is repeated from the actions that were recorded"
    list(resumed)
    assert leaves_equal(record(resumed), record(whole))
