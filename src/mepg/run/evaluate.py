"""The paper's evaluation: whole episodes, no exploration, on an environment of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from mepg.run.envs import Env, Vector


class Episode(NamedTuple):
    """An episode that ended: what it added up to, and how long it was."""

    total: float  # the undiscounted return
    length: int


def evaluate(act: Callable[[Vector], Vector], env: Env, seeds: Iterable[int]) -> list[Episode]:
    """One episode for each seed."""
    return [play(act, env, seed) for seed in seeds]


def play(act: Callable[[Vector], Vector], env: Env, seed: int) -> Episode:
    """The whole episode that begins with this seed."""
    obs, total, length, over = env.reset(seed), 0.0, 0, False
    while not over:
        obs, reward, _, over = env.step(act(obs))
        total += reward
        length += 1
    return Episode(total, length)
