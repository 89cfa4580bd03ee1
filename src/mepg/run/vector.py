"""The environments that a run collects its experience in: one, several stepped together, or the user's own."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from mepg.core.types import Sizes
from mepg.errors import UsageError
from mepg.run.envs import Env, Outcome, Spaces, Vector, call, make, name_of, quiet

Actions = npt.NDArray[np.float32]  # [E, A], in [-1, 1]


class Envs(Protocol):
    """E environments, each at a place of its own. Who steps them begins the episodes, so none crosses its end."""

    count: int  # E
    spaces: Spaces
    sizes: Sizes

    def begin(self, place: int, seed: int) -> Vector:
        """The first observation of a new episode."""

    def step(self, actions: Actions) -> list[Outcome]:
        """One action in each."""

    def close(self) -> None: ...


class Alone:
    """A single environment."""

    def __init__(self, env: Env) -> None:
        self.count, self.spaces, self.sizes = 1, env.spaces, env.sizes
        self._env = env

    def begin(self, place: int, seed: int) -> Vector:  # noqa: ARG002
        return self._env.reset(seed)

    def step(self, actions: Actions) -> list[Outcome]:
        return [self._env.step(actions[0])]

    def close(self) -> None:
        self._env.close()


class Together:
    """Gymnasium's vector API, whichever way it starts the next episode."""

    def __init__(self, env: VectorEnv[Any, Any, Any], env_id: str) -> None:
        mode = env.metadata.get("autoreset_mode")
        ours = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        if mode is not AutoresetMode.SAME_STEP and not ours:
            raise UsageError(
                f"{env_id} begins its episodes by {mode}, and only Gymnasium's own vector environments are known to "
                "begin one of several on demand: make it with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self.count = env.num_envs
        self.spaces = Spaces(env_id, env.single_observation_space, env.single_action_space)
        self.sizes = self.spaces.sizes
        self._env, self._resets_itself = env, mode is AutoresetMode.SAME_STEP
        with quiet(env_id):
            # PyBullet's first reset differs from all later ones: burn it.
            self._next, _ = call("reset", env.reset, 2, seed=0)

    def begin(self, place: int, seed: int) -> Vector:
        if not self._resets_itself:
            # Also with AutoresetMode.NEXT_STEP: a reset in time spares the step that would only have reset.
            here = np.arange(self.count) == place
            self._next, _ = call("reset", self._env.reset, 2, seed=[seed] * self.count, options={"reset_mask": here})
        return self.spaces.obs(self._next[place])

    def step(self, actions: Actions) -> list[Outcome]:
        self._next, rewards, ends, limits, infos = call("step", self._env.step, 5, self.spaces.scale(actions))
        last = self._next if not self._resets_itself else _last_observations(self._next, infos)
        return [
            Outcome(
                self.spaces.obs(last[place]),
                self.spaces.reward(rewards[place]),
                not ends[place],
                bool(ends[place] or limits[place]),
                {name: values[place] for name, values in infos.items() if _is_of_each(values, self.count)},
            )
            for place in range(self.count)
        ]

    def close(self) -> None:
        self._env.close()


class FromStableBaselines:
    """A VecEnv of Stable-Baselines3, which begins its episodes by itself; of that library only the names are used."""

    def __init__(self, env: Any, seed: int) -> None:
        self.count = int(env.num_envs)
        self.spaces = Spaces(name_of(env), env.observation_space, env.action_space)
        self.sizes = self.spaces.sizes
        self._env = env
        env.seed(seed)
        self._next = env.reset()

    def begin(self, place: int, seed: int) -> Vector:  # noqa: ARG002
        return self.spaces.obs(self._next[place])

    def step(self, actions: Actions) -> list[Outcome]:
        self._next, rewards, ends, infos = call("step", self._env.step, 4, self.spaces.scale(actions))
        outcomes = []
        for place, (reward, over, info) in enumerate(zip(rewards, ends, infos, strict=True)):
            obs = info["terminal_observation"] if over else self._next[place]
            alive = not over or bool(info.get("TimeLimit.truncated"))
            outcomes.append(Outcome(self.spaces.obs(obs), self.spaces.reward(reward), alive, bool(over), info))
        return outcomes

    def close(self) -> None:
        self._env.close()


def gather(env: Any, count: int = 1, seed: int = 0) -> Envs:
    """`count` environments of an id, or what the user has made."""
    if isinstance(env, str):
        return Alone(Env(env)) if count == 1 else _together(env, count)
    if count != 1:
        raise UsageError(f"n_envs={count} makes copies of an environment by its id; this one is ready-made")
    if isinstance(env, VectorEnv):
        return Together(env, name_of(env))
    if isinstance(env, gymnasium.Env):
        return Alone(Env(env))
    if all(hasattr(env, name) for name in ("num_envs", "step_async", "step_wait", "reset")):
        return FromStableBaselines(env, seed)
    raise UsageError(
        f"a {type(env).__name__} is no environment: give an id, a gymnasium.Env, a gymnasium.vector.VectorEnv "
        "or a VecEnv of Stable-Baselines3"
    )


def _together(env_id: str, count: int) -> Envs:
    if not 1 <= count <= 1_000:
        raise UsageError(f"envs must be in [1, 1000], not {count}")
    Env(env_id).close()  # says what is wrong with it, before there are many
    with quiet(env_id):
        envs = SyncVectorEnv([partial(make, env_id)] * count, autoreset_mode=AutoresetMode.DISABLED)
    return Together(envs, env_id)


def _last_observations(following: Any, infos: dict[str, Any]) -> Any:
    """Where an episode is over, `following` is already the next one's; its own last one is among the infos."""
    if "final_obs" not in infos:
        return following
    return [
        end if over else obs for obs, end, over in zip(following, infos["final_obs"], infos["_final_obs"], strict=True)
    ]


def _is_of_each(values: Any, count: int) -> bool:
    return isinstance(values, np.ndarray) and len(values) == count
