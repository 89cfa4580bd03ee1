"""The environments that a run collects its experience in: one, several stepped together, or the user's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError
from mepg.run.envs import Env, Outcome, Spaces, Vector, call, name_of, quiet
from mepg.run.watchdog import Watchdog

Actions = npt.NDArray[np.float32]  # [E, A], in [-1, 1]


class Envs(Protocol):
    """E environments, each at a place of its own. Who steps them begins the episodes, so none crosses its end."""

    count: int  # E
    spaces: Spaces
    sizes: Sizes

    @property
    def original(self) -> Any:
        """As others know it: what the user has made, or a list of Gymnasium's environments."""

    def begin(self, place: int, seed: int | None) -> Vector:
        """The first observation of a new episode; without a seed, it follows from those before."""

    def step(self, actions: Actions) -> list[Outcome]:
        """One action in each."""

    def take(self, actions: Any) -> list[Outcome]:
        """The same with actions within the environments' own bounds, which become theirs."""

    def abandon(self, seed: int | None = None) -> None:
        """Leave the episodes under way, which are not over, so that new ones can begin at every place."""

    def close(self) -> None: ...


class InTurn:
    """Our own, a single one or several that are stepped one after the other."""

    def __init__(self, envs: Sequence[Env]) -> None:
        self.count, self.spaces, self.sizes = len(envs), envs[0].spaces, envs[0].sizes
        self._envs = envs

    @property
    def original(self) -> list[gymnasium.Env[Any, Any]]:
        return [env.original for env in self._envs]

    def begin(self, place: int, seed: int | None) -> Vector:
        return self._envs[place].reset(seed)

    def step(self, actions: Actions) -> list[Outcome]:
        return [env.step(action) for env, action in zip(self._envs, actions, strict=True)]

    def take(self, actions: Any) -> list[Outcome]:
        # np.asarray: of actions without a shape, what comes out of the array is no longer one.
        return [env.take(np.asarray(action)) for env, action in zip(self._envs, actions, strict=True)]

    def abandon(self, seed: int | None = None) -> None:
        pass  # `begin` resets

    def close(self) -> None:
        for env in self._envs:
            env.close()


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
        self.original, self._resets_itself = env, mode is AutoresetMode.SAME_STEP
        with quiet(env_id):
            # PyBullet's first reset differs from all later ones: burn it.
            self.abandon(0)

    def begin(self, place: int, seed: int | None) -> Vector:
        if not self._resets_itself:
            # Also with AutoresetMode.NEXT_STEP: a reset in time spares the step that would only have reset.
            here = np.arange(self.count) == place
            self._next, _ = call(
                self.spaces.id, self.original, "reset", 2, seed=[seed] * self.count, options={"reset_mask": here}
            )
        with one_for_each(self.spaces.id, self.count):
            return self.spaces.obs(self._next[place])

    def step(self, actions: Actions) -> list[Outcome]:
        return self.take(self.spaces.scale(actions))

    def take(self, actions: Any) -> list[Outcome]:
        self._next, rewards, ends, limits, infos = call(self.spaces.id, self.original, "step", 5, actions)
        with one_for_each(self.spaces.id, self.count):
            last = self._next if not self._resets_itself else _last_observations(self._next, infos)
            return [
                self._outcome(
                    last[place],
                    rewards[place],
                    ends[place],
                    limits[place],
                    {name: values[place] for name, values in infos.items() if _is_of_each(values, self.count)},
                )
                for place in range(self.count)
            ]

    def _outcome(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]) -> Outcome:
        check = self.spaces
        terminated, truncated = check.flag(terminated, "terminated"), check.flag(truncated, "truncated")
        return Outcome(check.obs(obs), check.reward(reward), not terminated, terminated or truncated, info)

    def abandon(self, seed: int | None = None) -> None:
        self._next, _ = call(self.spaces.id, self.original, "reset", 2, seed=seed)

    def close(self) -> None:
        self.original.close()


class FromStableBaselines:
    """A VecEnv of Stable-Baselines3, which begins its episodes by itself; of that library only the names are used."""

    def __init__(self, env: Any, seed: int) -> None:
        self.count = int(env.num_envs)
        self.spaces = Spaces(name_of(env), env.observation_space, env.action_space)
        self.sizes = self.spaces.sizes
        self.original = env
        self.abandon(seed)

    def begin(self, place: int, seed: int | None) -> Vector:  # noqa: ARG002
        with one_for_each(self.spaces.id, self.count):
            return self.spaces.obs(self._next[place])

    def step(self, actions: Actions) -> list[Outcome]:
        return self.take(self.spaces.scale(actions))

    def take(self, actions: Any) -> list[Outcome]:
        self._next, rewards, ends, infos = call(self.spaces.id, self.original, "step", 4, actions)
        with one_for_each(self.spaces.id, self.count):
            return [self._outcome(place, rewards[place], ends[place], infos[place]) for place in range(self.count)]

    def _outcome(self, place: int, reward: Any, done: Any, info: Any) -> Outcome:
        over = self.spaces.flag(done, "done")
        obs = info["terminal_observation"] if over else self._next[place]
        alive = not over or bool(info.get("TimeLimit.truncated"))
        return Outcome(self.spaces.obs(obs), self.spaces.reward(reward), alive, over, info)

    def abandon(self, seed: int | None = None) -> None:
        if seed is not None:
            self.original.seed(seed)
        self._next = self.original.reset()

    def close(self) -> None:
        self.original.close()


def gather(env: Any, count: int = 1, seed: int = 0, watchdog: Watchdog | None = None) -> Envs:
    """`count` environments of an id, which a watchdog may watch, or what the user has made."""
    if isinstance(env, str):
        return _in_turn(env, count, watchdog)
    if count != 1:
        raise UsageError(f"n_envs={count} makes copies of an environment by its id; this one is ready-made")
    if isinstance(env, VectorEnv):
        return Together(env, name_of(env))
    if isinstance(env, gymnasium.Env):
        return InTurn([Env(env)])
    if all(hasattr(env, name) for name in ("num_envs", "step_async", "step_wait", "reset")):
        return FromStableBaselines(env, seed)
    raise UsageError(
        f"a {type(env).__name__} is no environment: give an id, a gymnasium.Env, a gymnasium.vector.VectorEnv "
        "or a VecEnv of Stable-Baselines3"
    )


def _in_turn(env_id: str, count: int, watchdog: Watchdog | None) -> Envs:
    if not 1 <= count <= 1_000:
        raise UsageError(f"envs must be in [1, 1000], not {count}")
    envs = [Env(env_id, watchdog=watchdog)]
    for _ in range(count - 1):
        envs.append(Env(env_id, watchdog=watchdog))
        require_same_spaces(envs[0].spaces, envs[-1].spaces)
    return InTurn(envs)


def require_same_spaces(one: Spaces, other: Spaces) -> None:
    """Of two environments with the same id, made one after the other."""
    if difference := one.difference(other):
        raise UsageError(f"{one.id} is not the same each time that it is made: it had {difference} now")


@contextlib.contextmanager
def one_for_each(env_id: str, count: int) -> Iterator[None]:
    """Whatever a vector environment returns should have an entry for each of its environments."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise RunFailure(f"{env_id} returned something that has no entry for each of {count}: {error!r:.200}") from None


def _last_observations(following: Any, infos: dict[str, Any]) -> Any:
    """Where an episode is over, `following` is already the next one's; its own last one is among the infos."""
    if "final_obs" not in infos:
        return following
    return [
        end if over else obs for obs, end, over in zip(following, infos["final_obs"], infos["_final_obs"], strict=True)
    ]


def _is_of_each(values: Any, count: int) -> bool:
    return isinstance(values, np.ndarray) and len(values) == count
