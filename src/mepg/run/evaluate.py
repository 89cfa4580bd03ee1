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


def play(act: Callable[[Vector], Vector], env: Env, seed: int, watch: Callable[[], None] | None = None) -> Episode:
    """The whole episode that begins with this seed; `watch` is called whenever there is something new to see."""
    obs, total, length, over = env.reset(seed), 0.0, 0, False
    while not over:
        if watch is not None:
            watch()
        obs, reward, _, over, _ = env.step(act(obs))
        total += reward
        length += 1
    return Episode(total, length)
