"""The paper's evaluation: whole episodes, no exploration, on an environment of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mepg.envs.env import Env
from mepg.envs.spaces import Action, Observation
from mepg.errors import RunFailure
from mepg.words import many

MAX_EPISODE_STEPS = 100_000  # steps: a longer episode without a time limit is taken for endless


class Episode(NamedTuple):
    """The return and the length of an episode."""

    return_: float  # undiscounted
    length: int


def mean_return(episodes: Sequence[Episode]) -> float:
    """The mean of their undiscounted returns."""
    return float(np.mean([episode.return_ for episode in episodes]))


def play(
    act: Callable[[Observation], Action], env: Env, seed: int, on_step: Callable[[], None] | None = None
) -> Episode:
    """The whole episode that begins with this seed; `on_step` is called before each action."""
    return_, length, done, limit = 0.0, 0, False, max(MAX_EPISODE_STEPS, env.time_limit or 0)
    try:
        obs = env.reset(seed)
        while not done:
            if length == limit:
                raise RunFailure(
                    f"it has not ended, and {env.id} has no time limit: give it one with "
                    "gymnasium.register(..., max_episode_steps=1000)"
                )
            if on_step is not None:
                on_step()
            action = act(obs)
            if not np.isfinite(action).all():
                raise RunFailure(f"the policy's action became {action}")
            obs, reward, _, done, _ = env.step(action)
            return_ += reward
            length += 1
    except RunFailure as failure:
        raise RunFailure(f"after {many(length, 'step')} of an evaluation episode: {failure}") from failure
    return Episode(return_, length)
