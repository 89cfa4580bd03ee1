"""The environments in which a run collects transitions: one, several stepped together, or the user's own."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers.vector import NormalizeObservation

from mepg.envs.env import Env, call, name_of
from mepg.envs.legal import METHOD, Ask, LegalActions
from mepg.envs.observations import entry
from mepg.envs.simulators import quiet
from mepg.envs.spaces import Action, Observation, Spaces, StepResult
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError
from mepg.words import many


class Envs:
    """E environments, each with an index. The caller starts the episodes, so no transition spans two of them."""

    original: Any  # the user's object, or a list of Gymnasium's environments

    def __init__(self, count: int, spaces: Spaces) -> None:
        self.count, self.spaces, self.sizes = count, spaces, spaces.sizes
        self._legal: LegalActions | None = None  # None for a Box: all its actions are legal
        # One environment's observation, of those that a vector environment returned.
        self._entry = entry if spaces.observations.is_nested else operator.getitem

    def begin(self, index: int, seed: int | None) -> Observation:
        """Start a new episode in one environment and return its first observation. Without a seed, it draws its own."""
        raise NotImplementedError

    def step(self, actions: Action) -> list[StepResult]:
        """One step in each environment, with actions [E, A]."""
        scaled = self.spaces.scale(actions)
        if self._legal is not None:
            self._legal.require(actions)
        return self.take(scaled)

    def take(self, actions: Any) -> list[StepResult]:
        """`step` with actions of the environments' own space, which they may keep and change."""
        raise NotImplementedError

    def abandon(self, seed: int | None = None) -> None:
        """Abandon the current episodes, so that new ones can start in every environment."""

    def legal(self, index: int) -> npt.NDArray[np.bool_]:
        """Which actions are legal in the present state of one environment. [A]"""
        assert self._legal is not None
        legal: npt.NDArray[np.bool_] = self._legal.now[index].astype(bool)
        return legal

    def _find_legal_actions(self, ask: Ask | None, info: Any, *, resets_itself: bool) -> None:
        """How a vector environment with discrete actions says which are legal, if it does."""
        self._legal = LegalActions(self.spaces, self.count, ask, info, resets_itself=resets_itself)
        self.spaces, self.sizes = self._legal.spaces, self._legal.spaces.sizes

    def close(self) -> None:
        self.original.close()


class SerialEnvs(Envs):
    """Environments of this process: one, or several that are stepped one after the other."""

    def __init__(self, envs: Sequence[Env]) -> None:
        super().__init__(len(envs), envs[0].spaces)
        self._envs, self.original = envs, [env.original for env in envs]

    def begin(self, index: int, seed: int | None) -> Observation:
        return self._envs[index].reset(seed)

    def step(self, actions: Action) -> list[StepResult]:
        return [env.step(action) for env, action in zip(self._envs, actions, strict=True)]

    def legal(self, index: int) -> npt.NDArray[np.bool_]:
        return self._envs[index].legal

    def take(self, actions: Any) -> list[StepResult]:
        each = self.spaces.actions.each(actions)
        return [env.take(action) for env, action in zip(self._envs, each, strict=True)]

    def close(self) -> None:
        for env in self._envs:
            env.close()


class GymnasiumEnvs(Envs):
    """Gymnasium's vector API, whichever way it starts the next episode."""

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        env_id, mode = name_of(env), env.metadata.get("autoreset_mode")
        _require_episodes_on_demand(env, env_id, mode)
        super().__init__(env.num_envs, Spaces(env_id, env.single_observation_space, env.single_action_space))
        self.original, self._resets_itself = env, mode is AutoresetMode.SAME_STEP
        with quiet(env_id):
            # PyBullet's first reset differs from all later ones, so it is not used. An environment that resets itself
            # gets no other seed.
            self.abandon(seed if self._resets_itself else 0)
        if self.spaces.actions.action_kind == "discrete":
            with indexing_errors(env_id, self.count):
                info = info_of(self._infos, 0, self.count)
            self._find_legal_actions(self._ask_legal(), info, resets_itself=self._resets_itself)

    def _ask_legal(self) -> Ask | None:
        """How to ask all environments for their `action_masks()`, if they have them."""
        vector = self.original.unwrapped
        known = isinstance(vector, SyncVectorEnv | AsyncVectorEnv)
        if not known or not all(self._call("call", None, "has_wrapper_attr", METHOD, of=vector)):
            return None
        return lambda: self._call("call", None, METHOD, of=vector)

    def begin(self, index: int, seed: int | None) -> Observation:
        if not self._resets_itself:
            # Also with AutoresetMode.NEXT_STEP: it saves the step that would only have reset the environment.
            mask = ResetMask(np.arange(self.count) == index)
            self._next, self._infos = self._call("reset", 2, seed=[seed] * self.count, options=mask)
            if self._legal is not None:
                self._legal.forget()
        with indexing_errors(self.spaces.id, self.count):
            obs = self.spaces.obs(self._entry(self._next, index))
            if self._legal is None:
                return obs
            return self._legal.begin(index, obs, info_of(self._infos, index, self.count))

    def take(self, actions: Any) -> list[StepResult]:
        self._next, rewards, terminated, truncated, self._infos = self._call("step", 5, actions)
        with indexing_errors(self.spaces.id, self.count):
            results = [
                self._result(
                    self._entry(self._next, i),
                    rewards[i],
                    terminated[i],
                    truncated[i],
                    info_of(self._infos, i, self.count),
                )
                for i in range(self.count)
            ]
            return results if self._legal is None else self._legal.after_all(results)

    def _result(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> StepResult:
        if not self._resets_itself:
            return self.spaces.result(obs, reward, terminated, truncated, info)
        # At the end of an episode, `obs` and most of `info` are the next one's.
        final_obs, final_info = info.pop("final_obs", None), info.pop("final_info", info)
        if final_obs is None and self.spaces.flag(truncated, "truncated"):
            raise RunFailure(f"{self.spaces.id} ended an episode by its time limit without 'final_obs' in its infos")
        last_obs = obs if final_obs is None else final_obs
        return self.spaces.result(last_obs, reward, terminated, truncated, final_info)

    def abandon(self, seed: int | None = None) -> None:
        self._next, self._infos = self._call("reset", 2, seed=seed)
        if self._legal is not None:
            self._legal.forget()

    def _call(self, method: str, length: int | None, *args: Any, of: Any = None, **kwargs: Any) -> Any:
        self._responds = False
        env = self.original if of is None else of
        result = call(self.spaces.id, env, method, length, *args, **kwargs)
        self._responds = True
        return result

    def close(self) -> None:
        vector = self.original.unwrapped
        if not self._responds and isinstance(vector, AsyncVectorEnv):
            # A process may be dead, and Gymnasium would wait for its response.
            for process in vector.processes:
                process.terminate()
            with contextlib.suppress(EOFError, OSError):
                self.original.close(terminate=True)
            vector.closed = True
        else:
            super().close()


def _require_episodes_on_demand(env: VectorEnv[Any, Any, Any], env_id: str, mode: Any) -> None:
    """Refuse a vector environment that neither starts single episodes on demand nor resets itself in the same step."""
    if mode is AutoresetMode.SAME_STEP:
        return
    if not isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        raise UsageError(
            f"{env_id} begins its episodes by {mode}, and only SyncVectorEnv and AsyncVectorEnv are known to begin "
            "one of several on demand: use one of these, as gymnasium.make_vec(..., vectorization_mode='sync') does, "
            "or make it with autoreset_mode=AutoresetMode.SAME_STEP"
        )
    if mode is AutoresetMode.NEXT_STEP and getattr(env.unwrapped, "shared_memory", True) is False:
        # Gymnasium's workers then forget that they were reset, and reset themselves again in the next step.
        raise UsageError(
            f"{env_id}: an AsyncVectorEnv with shared_memory=False and {mode} resets twice at the end of an episode; "
            "make it with autoreset_mode=AutoresetMode.SAME_STEP"
        )
    while isinstance(env, VectorWrapper):
        if isinstance(env, NormalizeObservation) and env.num_envs > 1:
            raise UsageError(
                f"{env_id}: gymnasium.wrappers.vector.NormalizeObservation cannot begin one of several episodes; "
                "leave it out and give normalize_obs=True"
            )
        env = env.env


class ResetMask(dict[str, Any]):
    """Options for `reset` that start single episodes: a dict that holds only `reset_mask`, which `pop` does not remove.

    A vector environment pops the mask before its wrappers read it. With a plain dict, RecordEpisodeStatistics would
    find no mask, and count all episodes from 0 again.
    """

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        super().__init__()
        self._mask = mask

    def __contains__(self, name: object) -> bool:
        return name == "reset_mask"

    def __getitem__(self, name: str) -> Any:
        return self._mask if name in self else super().__getitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        return self._mask if name in self else super().pop(name, *default)

    def __reduce__(self) -> Any:
        return dict, ()  # for an environment in another process, and its copies


def info_of(infos: Any, index: int, count: int) -> dict[str, Any]:
    """The info of one environment. Gymnasium has an array for each key, and a mask of the environments that have it."""
    if isinstance(infos, list):  # gymnasium.wrappers.vector.DictInfoToList
        return dict(infos[index])
    info = {}
    for name, column in infos.items():
        mask = infos.get(f"_{name}")
        if (name.startswith("_") and name[1:] in infos) or (mask is not None and not mask[index]):
            continue
        if isinstance(column, dict):
            info[name] = info_of(column, index, count)
        elif isinstance(column, np.ndarray) and column.shape[:1] == (count,):
            info[name] = column[index]
    return info


class StableBaselinesEnvs(Envs):
    """A VecEnv of Stable-Baselines3, which resets itself. That library is not imported."""

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(int(env.num_envs), Spaces(name_of(env), env.observation_space, env.action_space))
        self.original = env
        self.abandon(seed)
        if self.spaces.actions.action_kind == "discrete":
            has_method = hasattr(env, "has_attr") and env.has_attr(METHOD)
            ask = (lambda: call(self.spaces.id, env, "env_method", None, METHOD)) if has_method else None
            self._find_legal_actions(ask, self._reset_info(0), resets_itself=True)

    def _reset_info(self, index: int) -> Any:
        """What one environment said when its episode began; a wrapper of these environments does not know it."""
        infos = getattr(getattr(self.original, "unwrapped", self.original), "reset_infos", None)
        return infos[index] if infos else {}

    def begin(self, index: int, seed: int | None) -> Observation:  # noqa: ARG002
        with indexing_errors(self.spaces.id, self.count):
            obs = self.spaces.obs(self._entry(self._next, index))
            return obs if self._legal is None else self._legal.begin(index, obs, self._reset_info(index))

    def take(self, actions: Any) -> list[StepResult]:
        self._next, rewards, dones, infos = call(self.spaces.id, self.original, "step", 4, actions)
        with indexing_errors(self.spaces.id, self.count):
            results = [self._result(index, rewards[index], dones[index], infos[index]) for index in range(self.count)]
            return results if self._legal is None else self._legal.after_all(results)

    def _result(self, index: int, reward: Any, done: Any, info: Any) -> StepResult:
        done = self.spaces.flag(done, "done")
        obs = info["terminal_observation"] if done else self._entry(self._next, index)
        truncated = done and bool(info.get("TimeLimit.truncated"))
        return self.spaces.result(obs, reward, done and not truncated, truncated, info)

    def abandon(self, seed: int | None = None) -> None:
        if seed is not None:
            self.original.seed(seed)
        self._next = call(self.spaces.id, self.original, "reset", None)
        if self._legal is not None:
            self._legal.forget()


def make_envs(env: Any, count: int = 1, seed: int = 0, watchdog: Watchdog | None = None) -> Envs:
    """`count` environments of an id, under a watchdog if there is one, or a user's ready-made environment."""
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
        return GymnasiumEnvs(env, seed)
    if isinstance(env, gymnasium.Env):
        return SerialEnvs([Env(env)])
    if all(hasattr(env, name) for name in ("num_envs", "step_async", "step_wait", "reset")):
        return StableBaselinesEnvs(env, seed)
    raise UsageError(
        f"{type(env).__name__} is not a kind of environment: give an id, a gymnasium.Env, a gymnasium.vector.VectorEnv "
        "or a VecEnv of Stable-Baselines3"
    )


def require_same_spaces(first: Spaces, second: Spaces) -> None:
    """Refuse an id that makes environments with different spaces."""
    if difference := first.difference(second):
        raise UsageError(f"{first.id} is not the same each time that it is made: it had {difference} now")


@contextlib.contextmanager
def indexing_errors(env_id: str, count: int) -> Iterator[None]:
    """Turn errors of indexing what a vector environment returned into a one-line RunFailure."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise RunFailure(
            f"{env_id} returned something that has no entry for each of {many(count, 'environment')}: {error!r:.200}"
        ) from None
