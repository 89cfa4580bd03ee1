"""Gymnasium environments, as a run sees them: float32 in, float32 out, actions in [-1, 1]."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError, unknown

Vector = npt.NDArray[np.float32]

# The paper's eight tasks; their sizes are here so that parameters can be counted without a simulator.
PAPER_TASKS = {
    "AntBulletEnv-v0": Sizes(obs=28, action=8),
    "HalfCheetahBulletEnv-v0": Sizes(obs=26, action=6),
    "HopperBulletEnv-v0": Sizes(obs=15, action=3),
    "Walker2DBulletEnv-v0": Sizes(obs=22, action=6),
    "InvertedPendulumBulletEnv-v0": Sizes(obs=5, action=1),
    "InvertedDoublePendulumBulletEnv-v0": Sizes(obs=9, action=1),
    "InvertedPendulumSwingupBulletEnv-v0": Sizes(obs=5, action=1),
    "ReacherBulletEnv-v0": Sizes(obs=9, action=2),
}


class Outcome(NamedTuple):
    """What came of one action."""

    obs: Vector
    reward: float
    alive: bool  # not terminated; a time limit leaves the episode alive (D20)
    over: bool  # terminated, or out of time


class Env:
    """One environment. `reset(seed)` starts the same episode whatever came before it."""

    def __init__(self, env_id: str) -> None:
        self.id = env_id
        quiet = env_id in PAPER_TASKS
        with _silence() if quiet else contextlib.nullcontext():
            self._env = _make(env_id)
            self.sizes = _check_spaces(self._env, env_id)
            # PyBullet's first reset differs from all later ones: burn it.
            _call("reset", self._env.reset, 2, seed=0)
        self._low = np.asarray(self._env.action_space.low)  # type: ignore[attr-defined]
        self._high = np.asarray(self._env.action_space.high)  # type: ignore[attr-defined]
        # Halved first: high - low may overflow where either does not.
        self._centre, self._half = self._high / 2 + self._low / 2, self._high / 2 - self._low / 2
        self._unscaled = bool(np.all(self._low == -1) and np.all(self._high == 1))

    @property
    def bounds(self) -> dict[str, list[float]]:
        """The environment's own, as plain numbers."""
        return {"low": self._low.tolist(), "high": self._high.tolist()}

    def reset(self, seed: int) -> Vector:
        obs, _ = _call("reset", self._env.reset, 2, seed=seed)
        return self._checked(obs)

    def step(self, action: Vector) -> Outcome:
        obs, reward, terminated, truncated, _ = _call("step", self._env.step, 5, self.scale(action))
        try:
            reward = float(reward)
        except (TypeError, ValueError):
            raise RunFailure(f"{self.id} returned {reward!r} as a reward") from None
        if not np.isfinite(reward):
            raise RunFailure(f"{self.id} returned a reward of {reward}")
        return Outcome(self._checked(obs), reward, not terminated, bool(terminated or truncated))

    def scale(self, action: Vector) -> Any:
        """From [-1, 1] to the environment's own bounds."""
        if self._unscaled:
            return action.astype(self._low.dtype, copy=False)
        return np.clip(self._centre + self._half * action, self._low, self._high).astype(self._low.dtype, copy=False)

    def close(self) -> None:
        self._env.close()

    def _checked(self, obs: Any) -> Vector:
        try:
            vector = np.asarray(obs, np.float32)
        except (TypeError, ValueError):
            raise RunFailure(f"{self.id} returned a {type(obs).__name__} as an observation, not numbers") from None
        if vector.shape != (self.sizes.obs,):
            raise RunFailure(f"{self.id} returned an observation of shape {vector.shape}, not ({self.sizes.obs},)")
        if not np.isfinite(vector).all():
            index = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise RunFailure(f"{self.id} returned an observation with {vector[index]} at index {index}")
        return vector


def _call(what: str, function: Any, length: int, *args: Any, **kwargs: Any) -> Any:
    """Call the environment; whatever goes wrong in there is one line here."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        raise RunFailure(f"the environment's {what} raised {_one_line(error)}") from error
    if not isinstance(result, tuple) or len(result) != length:
        raise RunFailure(f"the environment's {what} must return {length} values, not {type(result).__name__}")
    return result


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _make(env_id: str) -> gymnasium.Env[Any, Any]:
    name = env_id.rpartition(":")[2]
    if name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            import pybullet_envs_gymnasium  # noqa: F401  (registers its tasks)
    if env_id in PAPER_TASKS and env_id not in gymnasium.registry:
        raise UsageError(f"{env_id} needs PyBullet, which is not installed: pip install 'mepg[bullet]'")
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.UnregisteredEnv:
        raise unknown(
            "environment", env_id, gymnasium.registry, hint=" (mepg list names some; module:id imports a module first)"
        ) from None
    except ModuleNotFoundError as error:
        missing = error.name or getattr(error.__cause__, "name", None) or env_id.partition(":")[0]
        package = missing.partition(".")[0]
        raise UsageError(
            f"{env_id} needs the package {package!r}, which is not installed: pip install {package}"
        ) from None
    except gymnasium.error.Error as error:
        raise UsageError(f"environment {env_id!r} cannot be made: {' '.join(str(error).split())}") from None
    except Exception as error:  # the code of the environment, or of the module that registers it
        raise UsageError(f"environment {env_id!r} cannot be made: {_one_line(error)}") from None


def _check_spaces(env: gymnasium.Env[Any, Any], env_id: str) -> Sizes:
    observations, actions = env.observation_space, env.action_space
    if not isinstance(actions, gymnasium.spaces.Box):
        raise UsageError(f"{env_id} has {_kind(actions)} actions; continuous ones (a Box) are needed")
    if len(actions.shape) != 1 or not np.issubdtype(actions.dtype, np.floating):
        raise UsageError(
            f"{env_id} has actions of shape {actions.shape} and type {actions.dtype}; a float vector is needed"
        )
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UsageError(
            f"{env_id} has infinite action bounds; give it finite ones with gymnasium.wrappers.TransformAction"
        )
    if not (actions.low < actions.high).all() or actions.shape[0] == 0:
        raise UsageError(f"{env_id} has an action that cannot vary: {actions}")
    flat = isinstance(observations, gymnasium.spaces.Box) and len(observations.shape) == 1 and observations.shape[0]
    if not flat:
        shape = f" of shape {observations.shape}" if isinstance(observations, gymnasium.spaces.Box) else ""
        raise UsageError(
            f"{env_id} has {_kind(observations)} observations{shape}; a flat Box is needed: "
            "wrap it in gymnasium.wrappers.FlattenObservation"
        )
    return Sizes(obs=int(flat), action=actions.shape[0])


def _kind(space: gymnasium.Space[Any]) -> str:
    return type(space).__name__


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep what a C library prints out of the terminal and of --json's output."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # or it would come out later, from the C library's own buffer
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, nowhere):
            os.close(descriptor)
