"""One Gymnasium environment, as a run sees it: rows of float32 in, rows of float32 out."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg.envs import simulators
from mepg.envs.spaces import Row, Spaces, StepResult, as_real, kind_of
from mepg.envs.watchdog import Overdue, Watchdog
from mepg.errors import RunFailure, UsageError, failures_at, one_line
from mepg.process import foreign_code
from mepg.words import many


class Env:
    """One environment, by its id or ready-made. `reset(seed)` starts the same episode whatever came before it."""

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
                what = f"{self.id} has no usable observation_space and action_space"
                raise UsageError(f"{what}: {one_line(error)}") from None
            self.spaces = Spaces(self.id, *spaces)
            self.sizes = self.spaces.sizes
            with failures_at("first reset"):
                # PyBullet's first reset differs from all later ones: use it up. It also checks the space.
                self.reset(0)

    def reset(self, seed: int | None) -> Row:
        obs, _ = self._call("reset", 2, seed=seed)
        return self.spaces.obs(obs)

    def step(self, action: Row) -> StepResult:
        return self.take(self.spaces.scale(action))

    def take(self, action: Any) -> StepResult:
        """The same for an action in the environment's own space, which the environment may keep and change."""
        return self.spaces.result(*self._call("step", 5, action))

    def _call(self, what: str, length: int, *args: Any, **kwargs: Any) -> Any:
        if self._watchdog is None:
            return call(self.id, self.original, what, length, *args, **kwargs)
        try:
            with self._watchdog:
                return call(self.id, self.original, what, length, *args, **kwargs)
        except Overdue:
            raise RunFailure(
                f"{self.id}'s {what} did not return within {self._watchdog.seconds:g} s (--step-timeout)"
            ) from None

    @property
    def time_limit(self) -> int | None:
        """The time limit that it was registered with, whether or not it is applied here."""
        return None if self.original.spec is None else simulators.time_limit_of(self.original.spec.id)

    @property
    def fps(self) -> float:
        """How many steps make a second of its own time; 30 if it does not say."""
        said = as_real(self.original.metadata.get("render_fps"))
        return float(said) if said is not None and said.shape == () and 0 < said <= 1000 else 30.0

    def picture(self) -> npt.NDArray[np.uint8]:
        """What it looks like now, [height, width, 3]; made with `render_mode="rgb_array"`."""
        simulators.prepare_picture(self.id)
        try:
            with foreign_code:
                return np.asarray(self.original.render(), np.uint8)
        except Exception as error:  # the simulator's, or the graphics library's
            raise simulators.cannot_be_drawn(self.id, error) from None

    @property
    def statistics(self) -> list[str]:
        """Names of those of its wrappers that scale by what they have seen: nothing of ours saves that."""
        names: list[str] = []
        env, kinds = self.original, (gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward)
        while isinstance(env, gymnasium.Wrapper):
            names = [type(env).__name__] * isinstance(env, kinds) + names
            env = env.env
        return names

    def close(self) -> None:
        """Close it, once: some environments fail at the second time."""
        if self._closed:
            return
        self._closed = True
        # Its work is done: an error now must not hide an earlier one.
        suppressed = contextlib.suppress(Exception, SystemExit, Overdue)
        with suppressed, self._watchdog or contextlib.nullcontext(), foreign_code:
            self.original.close()


def name_of(env: Any) -> str:
    """An environment's id, or what its class is called."""
    known = getattr(getattr(env, "spec", None), "id", None)
    return str(known) if known else type(getattr(env, "unwrapped", env)).__name__


def call(env_id: str, env: Any, what: str, length: int | None, *args: Any, **kwargs: Any) -> Any:
    """An environment's `reset` or `step`, which returns `length` values; whatever it raises becomes one line."""
    try:
        with foreign_code:
            result = getattr(env, what)(*args, **kwargs)
    except (KeyboardInterrupt, Overdue):
        raise
    except (EOFError, ConnectionError) as error:
        raise RunFailure(f"{env_id}'s {what} failed: one of its processes has ended ({one_line(error)})") from error
    except BaseException as error:  # sys.exit() too: the run would look finished
        raise RunFailure(f"{env_id}'s {what} raised {one_line(error)}") from error
    if length is not None and (not isinstance(result, tuple) or len(result) != length):
        returned = many(len(result), "value") if isinstance(result, tuple) else kind_of(result)
        raise RunFailure(f"{env_id}'s {what} returned {returned}, not {length} values")
    return result
