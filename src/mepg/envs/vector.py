"""The environments that a run collects its experience in: one, several stepped together, or the user's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from mepg.envs.env import Env, call, name_of
from mepg.envs.simulators import quiet
from mepg.envs.spaces import Row, Spaces, StepResult
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError
from mepg.words import many


class Envs:
    """E environments, each with an index. The caller begins the episodes: no transition crosses the end of one."""

    original: Any  # what the user gave, or a list of Gymnasium's environments

    def __init__(self, count: int, spaces: Spaces) -> None:
        self.count, self.spaces, self.sizes = count, spaces, spaces.sizes

    def begin(self, index: int, seed: int | None) -> Row:
        """The first observation of a new episode; without a seed, one that the environment draws."""
        raise NotImplementedError

    def step(self, actions: Row) -> list[StepResult]:
        """One action in each: [E, ...]."""
        return self.take(self.spaces.scale(actions))

    def take(self, actions: Any) -> list[StepResult]:
        """The same with actions in the environments' own space, which they may keep and change."""
        raise NotImplementedError

    def abandon(self, seed: int | None = None) -> None:
        """Abandon the current episodes, so that new ones can begin in every environment."""

    def close(self) -> None:
        self.original.close()


class SerialEnvs(Envs):
    """Environments of this process: one, or several that are stepped one after the other."""

    def __init__(self, envs: Sequence[Env]) -> None:
        super().__init__(len(envs), envs[0].spaces)
        self._envs, self.original = envs, [env.original for env in envs]

    def begin(self, index: int, seed: int | None) -> Row:
        return self._envs[index].reset(seed)

    def step(self, actions: Row) -> list[StepResult]:
        return [env.step(action) for env, action in zip(self._envs, actions, strict=True)]

    def take(self, actions: Any) -> list[StepResult]:
        each = self.spaces.actions.each(actions)
        return [env.take(action) for env, action in zip(self._envs, each, strict=True)]

    def close(self) -> None:
        for env in self._envs:
            env.close()


class GymnasiumEnvs(Envs):
    """Gymnasium's vector API, whichever way it starts the next episode."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        env_id, mode = name_of(env), env.metadata.get("autoreset_mode")
        ours = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        if mode is not AutoresetMode.SAME_STEP and not ours:
            raise UsageError(
                f"{env_id} begins its episodes by {mode}, and only Gymnasium's own vector environments are known to "
                "begin one of several on demand: make it with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        super().__init__(env.num_envs, Spaces(env_id, env.single_observation_space, env.single_action_space))
        self.original, self._resets_itself = env, mode is AutoresetMode.SAME_STEP
        with quiet(env_id):
            # PyBullet's first reset differs from all later ones: use it up.
            self.abandon(0)

    def begin(self, index: int, seed: int | None) -> Row:
        if not self._resets_itself:
            # Also with AutoresetMode.NEXT_STEP: a reset in time spares the step that would only have reset.
            here = np.arange(self.count) == index
            self._next, _ = call(
                self.spaces.id, self.original, "reset", 2, seed=[seed] * self.count, options={"reset_mask": here}
            )
        with one_for_each(self.spaces.id, self.count):
            return self.spaces.obs(self._next[index])

    def take(self, actions: Any) -> list[StepResult]:
        self._next, rewards, ends, limits, infos = call(self.spaces.id, self.original, "step", 5, actions)
        with one_for_each(self.spaces.id, self.count):
            last = self._next
            if self._resets_itself and "final_obs" in infos:  # where an episode is over, `_next` is the next one's
                ends_with = zip(last, infos["final_obs"], infos["_final_obs"], strict=True)
                last = [end if over else obs for obs, end, over in ends_with]
            of_each = {k: v for k, v in infos.items() if isinstance(v, np.ndarray) and len(v) == self.count}
            return [
                self.spaces.result(
                    last[i], rewards[i], ends[i], limits[i], {name: values[i] for name, values in of_each.items()}
                )
                for i in range(self.count)
            ]

    def abandon(self, seed: int | None = None) -> None:
        self._next, _ = call(self.spaces.id, self.original, "reset", 2, seed=seed)


class StableBaselinesEnvs(Envs):
    """A VecEnv of Stable-Baselines3, which begins its episodes by itself; of that library only the names are used."""

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(int(env.num_envs), Spaces(name_of(env), env.observation_space, env.action_space))
        self.original = env
        self.abandon(seed)

    def begin(self, index: int, seed: int | None) -> Row:  # noqa: ARG002
        with one_for_each(self.spaces.id, self.count):
            return self.spaces.obs(self._next[index])

    def take(self, actions: Any) -> list[StepResult]:
        self._next, rewards, ends, infos = call(self.spaces.id, self.original, "step", 4, actions)
        with one_for_each(self.spaces.id, self.count):
            return [self._result(index, rewards[index], ends[index], infos[index]) for index in range(self.count)]

    def _result(self, index: int, reward: Any, done: Any, info: Any) -> StepResult:
        over = self.spaces.flag(done, "done")
        obs = info["terminal_observation"] if over else self._next[index]
        truncated = over and bool(info.get("TimeLimit.truncated"))
        return self.spaces.result(obs, reward, over and not truncated, truncated, info)

    def abandon(self, seed: int | None = None) -> None:
        if seed is not None:
            self.original.seed(seed)
        self._next = self.original.reset()


def make_envs(env: Any, count: int = 1, seed: int = 0, watchdog: Watchdog | None = None) -> Envs:
    """`count` environments of an id, which a watchdog may watch, or what the user has made."""
    if isinstance(env, str):
        if not 1 <= count <= 1_000:
            raise UsageError(f"envs must be in [1, 1000], not {count}")
        envs = [Env(env, watchdog=watchdog) for _ in range(count)]
        for other in envs:
            require_same_spaces(envs[0].spaces, other.spaces)
        return SerialEnvs(envs)
    if count != 1:
        raise UsageError(f"n_envs={count} makes copies of an environment by its id; this one is ready-made")
    if isinstance(env, VectorEnv):
        return GymnasiumEnvs(env)
    if isinstance(env, gymnasium.Env):
        return SerialEnvs([Env(env)])
    if all(hasattr(env, name) for name in ("num_envs", "step_async", "step_wait", "reset")):
        return StableBaselinesEnvs(env, seed)
    raise UsageError(
        f"{type(env).__name__} is not a kind of environment: give an id, a gymnasium.Env, a gymnasium.vector.VectorEnv "
        "or a VecEnv of Stable-Baselines3"
    )


def require_same_spaces(one: Spaces, other: Spaces) -> None:
    """Refuse an id that makes environments with different spaces."""
    if difference := one.difference(other):
        raise UsageError(f"{one.id} is not the same each time that it is made: it had {difference} now")


@contextlib.contextmanager
def one_for_each(env_id: str, count: int) -> Iterator[None]:
    """Errors of indexing what a vector environment returned, as one line: an entry is missing."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise RunFailure(
            f"{env_id} returned something that has no entry for each of {many(count, 'environment')}: {error!r:.200}"
        ) from None
