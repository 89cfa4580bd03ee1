"""Gymnasium environments, as a run sees them: float32 in, float32 out, actions in [-1, 1]."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs import registration

from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError, at, unknown
from mepg.run.watchdog import Overdue, Watchdog
from mepg.words import many

Vector = npt.NDArray[np.float32]
LARGEST = float(np.finfo(np.float32).max)

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

    obs: Vector  # the last one of an episode that is over, not the first of the next
    reward: float
    alive: bool  # not terminated; a time limit leaves the episode alive (D20)
    over: bool  # terminated, or out of time
    info: Mapping[str, Any] = MappingProxyType({})  # whatever else the environment said


class Spaces:
    """What goes into an environment and comes out of it: checked, float32, actions in [-1, 1]."""

    def __init__(self, env_id: str, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        self.id = env_id
        self.sizes = _check_spaces(observations, actions, env_id)
        assert isinstance(observations, gymnasium.spaces.Box) and isinstance(actions, gymnasium.spaces.Box)  # noqa: PT018
        # Copies: what was agreed on holds, whatever the environment does to its spaces, or a user to these.
        self.observation_space, self.action_space = copy.deepcopy(observations), copy.deepcopy(actions)
        self.action_shape: tuple[int, ...] = actions.shape
        self.low, self.high = actions.low.flatten(), actions.high.flatten()  # [A], the environment's own
        # Halved first: high - low may overflow where either does not.
        self.centre, self.half = self.high / 2 + self.low / 2, self.high / 2 - self.low / 2
        self._unscaled = bool(np.all(self.low == -1) and np.all(self.high == 1))

    @property
    def bounds(self) -> dict[str, Any]:
        """Of actions, the environment's own, as plain numbers; lists of them are nested as an action is."""
        low, high = (bound.reshape(self.action_shape) for bound in (self.low, self.high))
        return {"low": low.tolist(), "high": high.tolist()}

    @classmethod
    def from_json(cls, env_id: str, sizes: Any, bounds: Any) -> Spaces:
        """Those of an environment that need not be there: its `sizes` and `bounds`."""
        obs, action = (int(size) for size in sizes)
        if not (1 <= obs <= 10**6 and 1 <= action <= 10**6):  # before memory is taken
            raise ValueError(f"sizes {obs} and {action}")
        low, high = (np.array(bounds[name], np.float32) for name in ("low", "high"))
        if low.shape != high.shape or low.size != action:
            raise ValueError(f"bounds of shapes {low.shape} and {high.shape} for actions of size {action}")
        box = gymnasium.spaces.Box
        return cls(env_id, box(-np.inf, np.inf, (obs,), np.float32), box(low, high, low.shape, np.float32))

    def scale(self, actions: Vector) -> Any:
        """From [..., A] in [-1, 1] to the environment's own bounds and shape.

        A new array, for whoever gets it to write on: actions are remembered, and may be a view of what JAX holds.
        """
        if self._unscaled:
            own = actions.astype(self.low.dtype)
        else:
            own = np.clip(self.centre + self.half * actions, self.low, self.high).astype(self.low.dtype, copy=False)
        return own.reshape(actions.shape[:-1] + self.action_shape)

    def unscale(self, actions: npt.NDArray[Any]) -> Vector:
        """Back from the environment's own bounds and shape to [..., A] in [-1, 1]."""
        several = actions.shape[: actions.ndim - len(self.action_shape)]
        flat = actions.reshape(*several, self.sizes.action)
        unscaled: Vector = np.clip((flat - self.centre) / self.half, -1, 1).astype(np.float32)
        return unscaled

    def difference(self, other: Spaces) -> str | None:
        """What the other has that these have not, in words; None if they are the same."""
        for what, ours, theirs in (
            ("observations of size", self.sizes.obs, other.sizes.obs),
            ("actions of size", self.sizes.action, other.sizes.action),
            ("actions of shape", self.action_shape, other.action_shape),
            ("actions from", self.bounds["low"], other.bounds["low"]),
            ("actions to", self.bounds["high"], other.bounds["high"]),
        ):
            if np.shape(ours) != np.shape(theirs) or not np.allclose(ours, theirs, rtol=1e-6):
                return f"{what} {ours}, and {other.id} has {theirs}"
        return None

    def obs(self, obs: Any) -> Vector:
        """A copy of an observation, as long as it is one: some environments write the next into the same array.

        Whether it keeps to the space's bounds is nobody's concern: many are a little outside now and then.
        """
        numbers = _real(obs)
        if numbers is None:
            raise RunFailure(f"{self.id} returned {_kind_of(obs)} as an observation, not real numbers")
        if numbers.shape != (self.sizes.obs,):
            raise RunFailure(f"{self.id} returned an observation of shape {numbers.shape}, not ({self.sizes.obs},)")
        # Most are float32, and need no context that costs more than the copy.
        with np.errstate(over="ignore") if numbers.dtype != np.float32 else contextlib.nullcontext():
            vector: Vector = numbers.astype(np.float32)
        if not np.isfinite(vector).all():
            index = int(np.flatnonzero(~np.isfinite(vector))[0])
            number = float(numbers[index])
            raise RunFailure(f"{self.id} returned an observation with {number} at index {index}{_too_large(number)}")
        return vector

    def reward(self, reward: Any) -> float:
        numbers = _real(reward)
        if numbers is None or numbers.shape != ():
            raise RunFailure(f"{self.id} returned {_kind_of(reward)} as a reward, not a real number")
        number = float(numbers)
        if not abs(number) <= LARGEST:
            raise RunFailure(f"{self.id} returned a reward of {number}{_too_large(number)}")
        return number

    def flag(self, value: Any, what: str) -> bool:
        """Whether an episode is `what`: "terminated" or "truncated"."""
        if isinstance(value, bool | np.bool_):
            return bool(value)
        numbers = _real(value)  # some say 0 or 1
        if numbers is None or numbers.shape != () or float(numbers) not in (0, 1):
            raise RunFailure(f"{self.id} returned {_kind_of(value)} as {what!r}, not true or false")
        return bool(numbers)


def _real(value: Any) -> npt.NDArray[Any] | None:
    """The array that it is, or None. NumPy alone would take text for a number, None for NaN, a complex one by half."""
    try:
        array = np.asarray(value)
    except Exception:  # ragged, or another library's array that will not be one of NumPy's
        return None
    return array if array.dtype.kind in "biuf" else None


def _kind_of(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _too_large(number: float) -> str:
    return "" if not math.isfinite(number) else ", which is more than float32 holds: scale it down"


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
        env = full_id(env) if isinstance(env, str) else env
        self.id = env if isinstance(env, str) else name_of(env)
        self._watchdog, self._closed = watchdog, False
        with quiet(self.id):
            if render_mode == "rgb_array" and not has_screen():
                os.environ.setdefault("MUJOCO_GL", "egl")  # drawn by the processor, if there is nothing better
            self._env = make(env, render_mode, time_limit=time_limit) if isinstance(env, str) else env
            self.spaces = _spaces_of(self._env, self.id)
            self.sizes = self.spaces.sizes
            with at("first reset"):
                # PyBullet's first reset differs from all later ones: burn it. And a space that lies is found out.
                self.reset(0)

    @property
    def original(self) -> gymnasium.Env[Any, Any]:
        """As Gymnasium knows it."""
        return self._env

    def reset(self, seed: int | None) -> Vector:
        obs, _ = self._call("reset", 2, seed=seed)
        return self.spaces.obs(obs)

    def step(self, action: Vector) -> Outcome:
        return self.take(self.spaces.scale(action))

    def take(self, action: Any) -> Outcome:
        """An action within its own bounds, which becomes its own."""
        obs, reward, terminated, truncated, info = self._call("step", 5, action)
        terminated, truncated = self.spaces.flag(terminated, "terminated"), self.spaces.flag(truncated, "truncated")
        if not isinstance(info, Mapping):
            raise RunFailure(f"{self.id} returned {_kind_of(info)} as info, not a dict")
        return Outcome(self.spaces.obs(obs), self.spaces.reward(reward), not terminated, terminated or truncated, info)

    def _call(self, what: str, length: int, *args: Any, **kwargs: Any) -> Any:
        if self._watchdog is None:
            return call(self.id, self._env, what, length, *args, **kwargs)
        try:
            with self._watchdog:
                return call(self.id, self._env, what, length, *args, **kwargs)
        except Overdue:
            raise RunFailure(
                f"{self.id}'s {what} did not come back within {self._watchdog.seconds:g} s, which is its --step-timeout"
            ) from None

    @property
    def time_limit(self) -> int | None:
        """The steps after which its registration says that an episode is cut, whether that is done here or not."""
        return None if self._env.spec is None else time_limit_of(self._env.spec.id)

    @property
    def fps(self) -> float:
        """Steps in a second of its own time, as far as it says."""
        said = _real(self._env.metadata.get("render_fps"))
        return float(said) if said is not None and said.shape == () and 0 < said <= 1000 else 30.0

    def picture(self) -> npt.NDArray[np.uint8]:
        """What it looks like now, [height, width, 3]; made with `render_mode="rgb_array"`."""
        if self.id in PAPER_TASKS:
            _hold_first_client()
        try:
            return np.asarray(self._env.render(), np.uint8)
        except Exception as error:  # the simulator's, or the graphics library's
            if _is_mujoco(self.id):
                raise UsageError(_without_graphics(self.id, error)) from None
            raise RunFailure(f"{self.id} cannot be drawn: {_one_line(error)}") from None

    def close(self) -> None:
        """Once: not every environment bears it twice."""
        if self._closed:
            return
        self._closed = True
        # Its work is done: what goes wrong now must not hide what went wrong before.
        with contextlib.suppress(Exception, SystemExit, Overdue), self._watchdog or contextlib.nullcontext():
            self._env.close()


def _hold_first_client() -> None:
    """PyBullet's camera asks the first client of the process, whichever it is asked for: so there has to be one."""
    import pybullet

    if not pybullet.isConnected(0):
        pybullet.connect(pybullet.DIRECT)


def has_screen() -> bool:
    """Whether a window can be opened here."""
    return os.name == "nt" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def name_of(env: Any) -> str:
    """An environment's id, or what its class is called."""
    known = getattr(getattr(env, "spec", None), "id", None)
    return str(known) if known else type(getattr(env, "unwrapped", env)).__name__


def call(env_id: str, env: Any, what: str, length: int, *args: Any, **kwargs: Any) -> Any:
    """An environment's `reset` or `step`, which return so many values; what goes wrong in there is one line here."""
    try:
        result = getattr(env, what)(*args, **kwargs)
    except (KeyboardInterrupt, Overdue):
        raise
    except BaseException as error:  # sys.exit() among them: a run that ends without a word would look finished
        raise RunFailure(f"{env_id}'s {what} raised {_one_line(error)}") from error
    if not isinstance(result, tuple) or len(result) != length:
        returned = many(len(result), "value") if isinstance(result, tuple) else _kind_of(result)
        raise RunFailure(f"{env_id}'s {what} returned {returned}, not {length} values")
    return result


def _one_line(error: BaseException) -> str:
    try:
        said = " ".join(str(error).split())[:500]
    except Exception:
        said = "(no message)"
    return f"{type(error).__name__}: {''.join(c for c in said if c.isprintable())}"


def _spaces_of(env: Any, env_id: str) -> Spaces:
    try:
        spaces = env.observation_space, env.action_space
    except (Exception, SystemExit) as error:
        raise UsageError(f"{env_id} does not say what its observations and actions are: {_one_line(error)}") from None
    return Spaces(env_id, *spaces)


def make(env_id: str, render_mode: str | None = None, *, time_limit: bool = True) -> gymnasium.Env[Any, Any]:
    """A Gymnasium environment by its id, or by module:id; a UsageError says what is missing."""
    # Not every environment knows the word.
    drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    with _one_line_errors(env_id, drawn=bool(drawn)):
        _register(env_id)
        return gymnasium.make(env_id, max_episode_steps=None if time_limit else -1, disable_env_checker=True, **drawn)


def full_id(env_id: str) -> str:
    """With its version; the newest if none is said, which next year may be another."""
    parts = registration.ENV_ID_RE.fullmatch(env_id.rpartition(":")[2])
    if parts is None or parts["version"]:  # what is no id is said when it is made
        return env_id
    with _one_line_errors(env_id):
        _register(env_id)
        newest = registration.find_highest_version(parts["namespace"], parts["name"])
        return env_id if newest is None else f"{env_id}-v{newest}"


def time_limit_of(env_id: str) -> int | None:
    """The steps after which an id's registration says that an episode is cut."""
    with _one_line_errors(env_id):
        _register(env_id)
        return gymnasium.spec(env_id.rpartition(":")[2]).max_episode_steps


def _register(env_id: str) -> None:
    """Import what registers it."""
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    if name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            import pybullet_envs_gymnasium  # noqa: F401  (registers its tasks)
    if name.partition("-")[0].endswith("BulletEnv") and "HopperBulletEnv-v0" not in gymnasium.registry:
        raise UsageError(_without_pybullet(name))


@contextlib.contextmanager
def _one_line_errors(env_id: str, *, drawn: bool = False) -> Iterator[None]:
    """What goes wrong in Gymnasium, in an environment, or in the module that registers it."""
    module, _, name = env_id.rpartition(":")
    try:
        yield
    except UsageError:
        raise
    except gymnasium.error.UnregisteredEnv:
        raise unknown(
            "environment", env_id, gymnasium.registry, hint=" (mepg list names some; module:id imports a module first)"
        ) from None
    except ModuleNotFoundError as error:
        missing = error.name or getattr(error.__cause__, "name", None) or env_id.partition(":")[0]
        package = missing.partition(".")[0]
        if package == module.partition(".")[0]:
            raise UsageError(
                f"{env_id} names the module {package!r}, which is neither in this folder nor installed: "
                "go to where it is, or name that folder in PYTHONPATH"
            ) from None
        raise UsageError(
            f"{env_id} needs the package {package!r}, which is not installed: pip install {package}"
        ) from None
    except gymnasium.error.DependencyNotInstalled as error:
        if _is_mujoco(name):
            raise UsageError(f"{env_id} needs MuJoCo, which is not installed: pip install 'mepg[mujoco]'") from None
        raise UsageError(f"environment {env_id!r} cannot be made: {_one_line(error)}") from None
    except gymnasium.error.Error as error:
        raise UsageError(f"environment {env_id!r} cannot be made: {' '.join(str(error).split())}") from None
    except (Exception, SystemExit) as error:  # the code of the environment, or of the module that registers it
        if drawn and _is_mujoco(name):  # it looks for a graphics library as soon as it is imported
            raise UsageError(_without_graphics(env_id, error)) from None
        raise UsageError(f"environment {env_id!r} cannot be made: {_one_line(error)}") from None


def _is_mujoco(name: str) -> bool:
    known = gymnasium.registry.get(name)
    return known is not None and str(known.entry_point).startswith("gymnasium.envs.mujoco")


def _without_graphics(env_id: str, error: BaseException) -> str:
    return (
        f"{env_id} cannot be drawn without a screen here ({_one_line(error)}): "
        "on Debian, apt-get install libegl1 libgl1-mesa-dri"
    )


def _without_pybullet(name: str) -> str:
    if sys.version_info < (3, 12):
        return f"{name} needs PyBullet, which is not installed: pip install 'mepg[bullet]'"
    return (
        f"{name} needs PyBullet, which is made for Python 3.11 at most, and this is {sys.version_info[0]}."
        f"{sys.version_info[1]}: use Python 3.11, or a MuJoCo task such as Hopper-v5 (pip install 'mepg[mujoco]')"
    )


def _check_spaces(observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], env_id: str) -> Sizes:
    if not isinstance(actions, gymnasium.spaces.Box):
        raise UsageError(f"{env_id} has {_kind(actions)} actions; continuous ones (a Box) are needed")
    if not np.issubdtype(actions.dtype, np.floating):
        raise UsageError(
            f"{env_id} has actions of type {actions.dtype}; floats are needed: "
            "give it a Box of floats, and round them, with gymnasium.wrappers.TransformAction"
        )
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UsageError(
            f"{env_id} has infinite action bounds; give it finite ones with gymnasium.wrappers.TransformAction"
        )
    if not (actions.low < actions.high).all() or 0 in actions.shape:
        raise UsageError(f"{env_id} has an action that cannot vary: {actions}")
    if not isinstance(observations, gymnasium.spaces.Box) or len(observations.shape) != 1:
        shape = f" of shape {observations.shape}" if isinstance(observations, gymnasium.spaces.Box) else ""
        flattens = getattr(observations, "is_np_flattenable", False)
        way_out = ": wrap it in gymnasium.wrappers.FlattenObservation" if flattens else ""
        raise UsageError(f"{env_id} has {_kind(observations)} observations{shape}; a flat Box is needed{way_out}")
    if observations.shape[0] == 0:
        raise UsageError(f"{env_id} has observations without a single number, and nothing can be learned from those")
    return Sizes(obs=observations.shape[0], action=math.prod(actions.shape))


def _kind(space: gymnasium.Space[Any]) -> str:
    return type(space).__name__


@contextlib.contextmanager
def quiet(env_id: str) -> Iterator[None]:
    """Keep what PyBullet prints when it starts out of the terminal and of --json's output."""
    try:
        saved = [os.dup(1), os.dup(2)] if "BulletEnv" in env_id else []
    except OSError:  # closed, and so quiet already
        saved = []
    if not saved:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
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
