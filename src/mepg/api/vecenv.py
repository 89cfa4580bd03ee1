"""A model's environments with the interface of Stable-Baselines3's VecEnv; of that library only the names are used."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg.api.arguments import integer
from mepg.envs.legal import METHOD
from mepg.envs.spaces import Spaces, StepResult
from mepg.envs.vector import Envs
from mepg.errors import UsageError

Indices = None | int | Iterable[int]  # all environments, one, or some


class VecEnv:
    """The environments that a model learns in.

    :param before_use: called before they are reset or stepped, which ends the current episodes
    """

    def __init__(self, envs: Envs, before_use: Callable[[], None]) -> None:
        self._envs, self._before_use = envs, before_use
        self.num_envs = envs.count
        self.observation_space, self.action_space = envs.spaces.observation_space, envs.spaces.action_space
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(envs.count)]
        self._seed: int | None = None  # for the next reset
        self._actions: Any = None
        try:
            self.render_mode = self.get_attr("render_mode")[0]
        except Exception:  # environments without one raise all sorts of errors
            self.render_mode = None
        self.metadata = {"render_modes": [] if self.render_mode is None else [self.render_mode]}

    def seed(self, seed: int | None = None) -> list[int]:
        """Set the seed of the next reset; gives each environment's own."""
        drawn = np.random.SeedSequence().generate_state(1)[0]
        self._seed = int(drawn) if seed is None else integer("seed", seed, least=0)
        return [self._seed + index for index in range(self.num_envs)]

    def reset(self) -> Any:
        """The first observations of new episodes, [E, ...]; of a Dict, a dict of such arrays."""
        self._before_use()
        seed, self._seed = self._seed, None
        self._envs.abandon(seed)
        return self._stack(
            self._envs.begin(index, None if seed is None else seed + index) for index in range(self.num_envs)
        )

    def step(self, actions: npt.ArrayLike) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any], list[Any]]:
        """Observations, rewards, which episodes are over, and infos; where one is over, the next has begun."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: npt.ArrayLike) -> None:
        self._actions = self._envs.spaces.read_own_actions(actions, self.num_envs)

    def step_wait(self) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any], list[Any]]:
        if self._actions is None:
            raise UsageError("there are no actions to wait for: step_async comes first")
        self._before_use()
        actions, self._actions = self._actions, None
        results = self._envs.take(actions)
        obs = self._stack(
            self._envs.begin(index, None) if result.done else result.obs for index, result in enumerate(results)
        )
        rewards = np.array([result.reward for result in results], np.float32)
        return obs, rewards, np.array([result.done for result in results]), vec_env_infos(results, self._envs.spaces)

    def _stack(self, observations: Iterable[npt.NDArray[np.float32]]) -> Any:
        return self._envs.spaces.own_observations(np.stack(list(observations)))

    def close(self) -> None:
        self._envs.close()

    # Attributes and methods of the single environments

    @property
    def _single(self) -> Sequence[gymnasium.Env[Any, Any]] | None:
        """Each environment; None if they are in other processes."""
        original = self._envs.original
        return original if isinstance(original, list) else getattr(original.unwrapped, "envs", None)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        if self._single is None:
            values = self._envs.original.unwrapped.get_attr(attr_name)
            return [values[index] for index in self._get_indices(indices)]
        return [self._single[index].get_wrapper_attr(attr_name) for index in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        if attr_name == METHOD:
            return bool(self._envs.sizes.n_legal)
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        if self._single is None:
            chosen = set(self._get_indices(indices))
            before = [value] * self.num_envs if len(chosen) == self.num_envs else self.get_attr(attr_name)
            values = [value if index in chosen else before[index] for index in range(self.num_envs)]
            self._envs.original.unwrapped.set_attr(attr_name, values)
            return
        for index in self._get_indices(indices):
            self._single[index].set_wrapper_attr(attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        if method_name == METHOD and self._envs.sizes.n_legal:  # also where an environment says it in its info
            return [self._envs.legal(index) for index in self._get_indices(indices)]
        if self._single is None:
            if len(set(self._get_indices(indices))) != self.num_envs:
                raise UsageError("environments in other processes can only be called all together: leave out indices")
            return list(self._envs.original.unwrapped.call(method_name, *args, **kwargs))
        methods = [self._single[index].get_wrapper_attr(method_name) for index in self._get_indices(indices)]
        return [method(*args, **kwargs) for method in methods]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Whether each is wrapped in this class; False in other processes, where we cannot look."""
        chosen, single = self._get_indices(indices), self._single
        return [single is not None and _is_wrapped(single[index], wrapper_class) for index in chosen]

    def get_images(self) -> list[Any]:
        """A picture of each; the environment has to be made with `render_mode="rgb_array"`."""
        if self._single is None:
            return list(self._envs.original.unwrapped.call("render"))
        return [env.render() for env in self._single]

    def render(self, mode: str | None = None) -> Any:
        """The picture, or all of them side by side; None if they are shown in a window of their own."""
        if self.render_mode is None or mode not in (None, self.render_mode):
            warnings.warn(
                f"render_mode is {self.render_mode!r}: give gymnasium.make(..., render_mode={mode or 'rgb_array'!r})",
                stacklevel=2,
            )
            return None
        images = self.get_images()
        return np.concatenate(images, axis=1) if self.render_mode == "rgb_array" else None

    @property
    def unwrapped(self) -> VecEnv:
        return self

    def _get_indices(self, indices: Indices) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return list(indices) if isinstance(indices, Iterable) else [indices]

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Which class hides an attribute: Stable-Baselines3's wrappers call this of the environment that they wrap."""
        return f"{type(self).__module__}.{type(self).__name__}" if already_found and hasattr(self, name) else None


def register_with_stable_baselines(env: object) -> Any:
    """The same environment. If Stable-Baselines3 is loaded, its `isinstance(env, VecEnv)` then holds for ours."""
    library = sys.modules.get("stable_baselines3.common.vec_env.base_vec_env")
    if library is not None:
        library.VecEnv.register(VecEnv)
    return env


def vec_env_infos(results: Iterable[StepResult], spaces: Spaces) -> list[dict[str, Any]]:
    """Infos as in a VecEnv. It begins the next episode at once, so an episode's last observation is in its info."""
    own = spaces.unflatten
    return [
        {**result.info, "terminal_observation": own(result.obs), "TimeLimit.truncated": not result.terminated}
        if result.done
        else dict(result.info)
        for result in results
    ]


def _is_wrapped(env: object, wrapper: type[Any]) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper):
            return True
        env = env.env
    return False


def find_vec_normalize(env: object) -> Any:
    """Stable-Baselines3's VecNormalize, if it is `env` or one of the environments that `env` wraps; or else None."""
    while env is not None and type(env).__name__ != "VecNormalize":
        env = getattr(env, "venv", None)
    return env
