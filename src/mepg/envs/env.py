"""One Gymnasium environment, with float32 observations and actions as a run uses them."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg.envs import simulators
from mepg.envs.legal import METHOD, LegalActions
from mepg.envs.observations import as_real, describe_value
from mepg.envs.spaces import Action, Observation, Spaces, StepResult
from mepg.envs.watchdog import StepTimeout, Watchdog
from mepg.errors import RunFailure, UsageError, failures_at, one_line
from mepg.process import foreign_code
from mepg.words import many


class Env:
    """One environment, by its id or ready-made. An episode depends only on the seed of its `reset`."""

    def __init__(
        self,
        env: str | gymnasium.Env[Any, Any],
        render_mode: str | None = None,
        *,
        time_limit: bool = True,
        watchdog: Watchdog | None = None,
    ) -> None:
        env = simulators.full_id(env) if isinstance(env, str) else env
        self.id = env if isinstance(env, str) else name_of(env)
        self._watchdog, self._closed = watchdog, False
        with simulators.quiet(self.id):
            self.original = simulators.make(env, render_mode, time_limit=time_limit) if isinstance(env, str) else env
            try:
                with foreign_code:
                    spaces = self.original.observation_space, self.original.action_space
            except (Exception, SystemExit) as error:
                problem = f"{self.id} has no usable observation_space and action_space"
                raise UsageError(f"{problem}: {one_line(error)}") from None
            self.spaces = Spaces(self.id, *spaces)
            self._legal: LegalActions | None = None  # None for a Box: all its actions are legal
            with failures_at("first reset"):
                # PyBullet's first reset differs from all later ones, so it is not used. It also checks the space.
                obs, info = self._reset(0)
                if self.spaces.actions.action_kind == "discrete":
                    owner = _owner(self.original, METHOD)
                    ask = None if owner is None else lambda: [self._call(METHOD, None, of=owner)]
                    self._legal = LegalActions(self.spaces, 1, ask, info)
                    self.spaces = self._legal.spaces
                    self._legal.begin(0, obs, info)
            self.sizes = self.spaces.sizes

    def reset(self, seed: int | None) -> Observation:
        obs, info = self._reset(seed)
        if self._legal is None:
            return obs
        self._legal.forget()
        return self._legal.begin(0, obs, info)

    def _reset(self, seed: int | None) -> tuple[Observation, Any]:
        obs, info = self._call("reset", 2, seed=seed)
        return self.spaces.obs(obs), info

    def step(self, action: Action) -> StepResult:
        scaled = self.spaces.scale(action)
        if self._legal is not None:
            self._legal.require(action[None])
        return self.take(scaled)

    def take(self, action: Any) -> StepResult:
        """A step with an action of the environment's own space, which the environment may keep and change."""
        result = self.spaces.result(*self._call("step", 5, action))
        if self._legal is None:
            return result
        self._legal.forget()
        return self._legal.after(0, result)

    @property
    def legal(self) -> npt.NDArray[np.bool_]:
        """Which actions are legal in the present state. [A]"""
        assert self._legal is not None
        legal: npt.NDArray[np.bool_] = self._legal.now[0].astype(bool)
        return legal

    def _call(self, method: str, length: int | None, *args: Any, of: Any = None, **kwargs: Any) -> Any:
        env = self.original if of is None else of
        if self._watchdog is None:
            return call(self.id, env, method, length, *args, **kwargs)
        try:
            with self._watchdog:
                return call(self.id, env, method, length, *args, **kwargs)
        except StepTimeout:
            raise RunFailure(
                f"{self.id}'s {method} did not return within {self._watchdog.seconds:g} s (--step-timeout)"
            ) from None

    @property
    def time_limit(self) -> int | None:
        """The time limit that it was registered with, even if it is not applied here."""
        return None if self.original.spec is None else simulators.time_limit_of(self.original.spec.id)

    @property
    def fps(self) -> float:
        """How many steps make a second of its own time; 30 if its metadata has no usable `render_fps`."""
        fps = as_real(self.original.metadata.get("render_fps"))
        return float(fps) if fps is not None and fps.shape == () and 0 < fps <= 1000 else 30.0

    def render(self) -> npt.NDArray[np.uint8]:
        """A frame, [height, width, 3]. Needs `render_mode="rgb_array"`."""
        simulators.connect_first_client(self.id)
        try:
            with foreign_code:
                return np.asarray(self.original.render(), np.uint8)
        except Exception as error:  # the simulator's, or the graphics library's
            raise simulators.render_error(self.id, error) from None

    @property
    def normalizing_wrappers(self) -> list[str]:
        """Names of its wrappers that scale by running statistics, which a checkpoint does not contain."""
        names: list[str] = []
        env, normalizing = self.original, (gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward)
        while isinstance(env, gymnasium.Wrapper):
            names = [type(env).__name__] * isinstance(env, normalizing) + names
            env = env.env
        return names

    def close(self) -> None:
        """Close it, only once: some environments fail when they are closed twice."""
        if self._closed:
            return
        self._closed = True
        # An error in closing must not hide an earlier one.
        suppressed = contextlib.suppress(Exception, SystemExit, StepTimeout)
        with suppressed, self._watchdog or contextlib.nullcontext(), foreign_code:
            self.original.close()


def _owner(env: Any, method: str) -> Any:
    """The environment or the wrapper around it that has this method, the outermost; None if none has."""
    while isinstance(env, gymnasium.Wrapper) and not hasattr(env, method):
        env = env.env
    return env if hasattr(env, method) else None


def name_of(env: Any) -> str:
    """An environment's id, or the name of its class."""
    env_id = getattr(getattr(env, "spec", None), "id", None)
    return str(env_id) if env_id else type(getattr(env, "unwrapped", env)).__name__


def call(env_id: str, env: Any, method: str, length: int | None, *args: Any, **kwargs: Any) -> Any:
    """Call `reset` or `step`, which returns `length` values. Whatever it raises becomes a one-line RunFailure."""
    try:
        with foreign_code:
            result = getattr(env, method)(*args, **kwargs)
    except (KeyboardInterrupt, StepTimeout):
        raise
    except (EOFError, ConnectionError) as error:
        raise RunFailure(f"{env_id}'s {method} failed: one of its processes has ended ({one_line(error)})") from error
    except BaseException as error:  # sys.exit() too: the run would look finished
        raise RunFailure(f"{env_id}'s {method} raised {one_line(error)}") from error
    if length is not None and (not isinstance(result, tuple) or len(result) != length):
        returned = many(len(result), "value") if isinstance(result, tuple) else describe_value(result)
        raise RunFailure(f"{env_id}'s {method} returned {returned}, not {length} values")
    return result
