"""Between an environment and the rest of the program, where observations and actions are rows of float32.

An action's row holds a Box's numbers, flat and in [-1, 1], or the index of a Discrete's action, counted from 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError
from mepg.words import many

Row = npt.NDArray[np.float32]  # an observation or an action; several of them have more axes in front
LARGEST = float(np.finfo(np.float32).max)
EXACT = 2**24  # float32 holds every whole number up to here


class StepResult(NamedTuple):
    """What a step in an environment returned, checked."""

    obs: Row  # the last one of an episode that is over, not the first of the next
    reward: float
    alive: bool  # not terminated; a time limit leaves the episode alive (D20)
    over: bool  # terminated, or out of time
    info: Mapping[str, Any] = MappingProxyType({})  # whatever else the environment said


class BoxActions:
    """Numbers between bounds. A row holds A of them, in [-1, 1]."""

    kind = "box"

    def __init__(self, space: gymnasium.spaces.Box, env_id: str) -> None:
        if not np.issubdtype(space.dtype, np.floating):
            raise UsageError(
                f"{env_id} has actions of type {space.dtype}; floats are needed: "
                "give it a Box of floats, and round them, with gymnasium.wrappers.TransformAction"
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UsageError(
                f"{env_id} has infinite action bounds; leave out gymnasium.wrappers.ClipAction, or give it "
                "finite ones with gymnasium.wrappers.TransformAction"
            )
        if not (space.low < space.high).all() or 0 in space.shape:
            raise UsageError(f"{env_id} has an action that cannot vary: {space}")
        self.shape, self.size, self.dtype = space.shape, math.prod(space.shape), space.low.dtype
        self.low, self.high = space.low.flatten(), space.high.flatten()  # [A], the environment's own
        # Halved first: high - low may overflow where either does not.
        self.centre, self.half = self.high / 2 + self.low / 2, self.high / 2 - self.low / 2
        self._unscaled = bool(np.all(self.low == -1) and np.all(self.high == 1))

    def to_json(self) -> dict[str, Any]:
        low, high = (bound.reshape(self.shape).tolist() for bound in (self.low, self.high))
        return {"action_bounds": {"low": low, "high": high}}

    @staticmethod
    def space_from_json(data: Any, size: int) -> gymnasium.spaces.Box:
        if not 1 <= size <= 10**6:  # before memory is taken
            raise ValueError(f"actions of size {size}")
        low, high = (np.array(data["action_bounds"][name], np.float32) for name in ("low", "high"))
        if low.shape != high.shape or low.size != size:
            raise ValueError(f"bounds of shapes {low.shape} and {high.shape} for actions of size {size}")
        return gymnasium.spaces.Box(low, high, low.shape, np.float32)

    def random(self, generator: np.random.Generator) -> npt.NDArray[Any]:
        """A row."""
        return generator.uniform(-1, 1, self.size)

    def scale(self, rows: Row) -> Any:
        """From [..., A] in [-1, 1] to the environment's own bounds and shape.

        A new array, for whoever gets it to write on: actions are remembered, and may be a view of what JAX holds.
        """
        if self._unscaled:
            own = rows.astype(self.dtype)
        else:
            own = np.minimum(np.maximum(self.centre + self.half * rows, self.low), self.high)  # np.clip takes longer
            if own.dtype != self.dtype:
                own = own.astype(self.dtype)
        shape = rows.shape[:-1] + self.shape
        return own if own.shape == shape else own.reshape(shape)

    def scale_in_jax(self, rows: jax.Array) -> jax.Array:
        """The same as JAX's operations, for export."""
        centre, half, low, high = (each.astype(np.float32) for each in (self.centre, self.half, self.low, self.high))
        return jnp.clip(centre + half * rows, low, high).reshape(rows.shape[0], *self.shape)

    def unscale(self, actions: npt.NDArray[Any]) -> Row:
        """Back from the environment's own bounds and shape to [..., A] in [-1, 1]."""
        several = actions.shape[: actions.ndim - len(self.shape)]
        flat = actions.reshape(*several, self.size)
        unscaled: Row = np.clip((flat - self.centre) / self.half, -1, 1).astype(np.float32)
        return unscaled

    def each(self, actions: Any) -> Iterable[Any]:
        """Each of several environments' own actions; one without a shape would leave the array as a plain number."""
        return map(np.asarray, actions)


class DiscreteActions:
    """A choice of n. A row holds the index of the one that is taken, counted from 0."""

    kind, shape = "discrete", ()

    def __init__(self, space: gymnasium.spaces.Discrete, env_id: str) -> None:
        self.size, self.dtype = int(space.n), np.dtype(space.dtype)
        self.start = self.dtype.type(space.start)
        self.low, self.high = np.array([self.start]), np.array([self.start + self.size - 1])
        if self.size > EXACT or not -EXACT <= int(space.start) <= EXACT - self.size:
            raise UsageError(f"{env_id} has {space} actions; at most 2^24 are possible, counted from -2^24 to 2^24")

    def to_json(self) -> dict[str, Any]:
        return {"action_choices": {"n": self.size, "start": int(self.start)}}

    @staticmethod
    def space_from_json(data: Any, size: int) -> gymnasium.spaces.Discrete:
        n, start = (data["action_choices"][name] for name in ("n", "start"))
        if type(n) is not int or type(start) is not int or n != size or not (0 < n <= EXACT and abs(start) <= EXACT):
            raise ValueError(f"a choice of {n!r} from {start!r}, and the size is {size}")
        return gymnasium.spaces.Discrete(n, start=start)

    def random(self, generator: np.random.Generator) -> npt.NDArray[Any]:
        return generator.integers(self.size, size=1)

    def scale(self, rows: Row) -> Any:
        index = rows[..., 0]
        own = index.astype(self.dtype)
        if not ((own == index) & (own >= 0) & (own < self.size)).all():
            raise RunFailure(f"the policy chose action {index}, not a whole number from 0 to {self.size - 1}")
        return own + self.start

    def scale_in_jax(self, rows: jax.Array) -> jax.Array:
        return rows.reshape(rows.shape[0]).astype(jnp.int32) + int(self.start)

    def unscale(self, actions: npt.NDArray[Any]) -> Row:
        return np.asarray(actions - self.start, np.float32)[..., None]

    def each(self, actions: Any) -> Iterable[Any]:
        return list(actions)  # numbers, not arrays without a shape: an environment may look them up in a dict


def _codec(space: gymnasium.Space[Any], env_id: str) -> BoxActions | DiscreteActions:
    if isinstance(space, gymnasium.spaces.Box):
        return BoxActions(space, env_id)
    if isinstance(space, gymnasium.spaces.Discrete):
        return DiscreteActions(space, env_id)
    raise UsageError(f"{env_id}'s action space is a {type(space).__name__}; a Box or a Discrete is needed")


class Spaces:
    """An environment's observations and actions, and a check of all that it returns."""

    def __init__(self, env_id: str, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        self.id = env_id
        self.actions = _codec(actions, env_id)
        self.sizes = Sizes(_observation_size(observations, env_id), self.actions.size, self.actions.kind)
        # Copies: what was agreed on holds, whatever the environment does to its spaces, or a user to these.
        self.observation_space, self.action_space = copy.deepcopy(observations), copy.deepcopy(actions)
        self.scale, self.unscale = self.actions.scale, self.actions.unscale
        self._obs_shape = (self.sizes.obs,)

    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs, besides the environment's id."""
        return {"sizes": [self.sizes.obs, self.sizes.action], **self.actions.to_json()}

    @classmethod
    def from_json(cls, env_id: str, data: Any) -> Spaces:
        """What `to_json` wrote, without making the environment; other entries of `data` are ignored."""
        obs, action = (int(size) for size in data["sizes"])
        if not 1 <= obs <= 10**6:  # before memory is taken
            raise ValueError(f"observations of size {obs}")
        codec = DiscreteActions if "action_choices" in data else BoxActions
        box = gymnasium.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        return cls(env_id, box, codec.space_from_json(data, action))

    def difference(self, other: Spaces) -> str | None:
        """How the other's spaces differ, in words that follow "had" or "with"; None if they are the same."""
        if self.actions.kind != other.actions.kind:
            return f"an action space of kind {self.actions.kind}, and {other.id} has one of kind {other.actions.kind}"
        facts = ("observations of size", "actions of size", "actions of shape", "actions from", "actions to")
        for what, ours, theirs in zip(facts, self._facts(), other._facts(), strict=True):
            if np.shape(ours) != np.shape(theirs) or not np.allclose(ours, theirs, rtol=1e-6):
                return f"{what} {ours}, and {other.id} has {theirs}"
        return None

    def _facts(self) -> tuple[Any, ...]:
        bounds = (bound.reshape(self.actions.shape).tolist() for bound in (self.actions.low, self.actions.high))
        return self.sizes.obs, self.sizes.action_width, self.actions.shape, *bounds

    def result(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> StepResult:
        """What an environment's step returned."""
        if type(terminated) is not bool:
            terminated = self.flag(terminated, "terminated")
        if type(truncated) is not bool:
            truncated = self.flag(truncated, "truncated")
        if type(info) is not dict and not isinstance(info, Mapping):
            raise RunFailure(f"{self.id} returned {kind_of(info)} as info, not a dict")
        return StepResult(self.obs(obs), self.reward(reward), not terminated, terminated or truncated, info)

    def obs(self, obs: Any) -> Row:
        """A checked copy of an observation: some environments write the next one into the same array.

        The space's bounds are not checked: many environments leave them a little now and then.
        """
        numbers = as_real(obs)
        if numbers is None:
            raise RunFailure(f"{self.id} returned {kind_of(obs)} as an observation, not real numbers")
        if numbers.shape != self._obs_shape:
            raise RunFailure(f"{self.id} returned an observation of shape {numbers.shape}, not {self._obs_shape}")
        if numbers.dtype == np.float32:
            row: Row = numbers.copy()
        else:
            with np.errstate(over="ignore"):
                row = numbers.astype(np.float32)
        if False in np.isfinite(row).tolist():  # for short rows quicker than all()
            index = int(np.flatnonzero(~np.isfinite(row))[0])
            number = float(numbers[index])
            raise RunFailure(f"{self.id} returned an observation with {number} at index {index}{_too_large(number)}")
        return row

    def reward(self, reward: Any) -> float:
        if isinstance(reward, float):  # most are, NumPy's float64 too
            number = float(reward)
        else:
            numbers = as_real(reward)
            if numbers is None or numbers.shape != ():
                raise RunFailure(f"{self.id} returned {kind_of(reward)} as a reward, not a real number")
            number = float(numbers)
        if not abs(number) <= LARGEST:
            raise RunFailure(f"{self.id} returned a reward of {number}{_too_large(number)}")
        return number

    def flag(self, value: Any, what: str) -> bool:
        """Whether an episode is `what`: "terminated" or "truncated"."""
        numbers = as_real(value)  # some say 0 or 1
        if numbers is None or numbers.shape != () or float(numbers) not in (0, 1):
            raise RunFailure(f"{self.id} returned {kind_of(value)} as {what!r}, not true or false")
        return bool(numbers)

    def read_observations(self, given: npt.ArrayLike) -> tuple[Row, bool]:
        """A user's observation, or several: [B, S], and whether it was a single one."""
        return _read(given, "observation", self._obs_shape)

    def read_actions(self, given: npt.ArrayLike) -> tuple[Row, bool]:
        """A user's action, or several, as `scale` gives them: rows, and whether it was a single one."""
        numbers, alone = _read(given, "action", self.actions.shape)
        low, high = self.actions.low.astype(float), self.actions.high.astype(float)
        whole, slack = self.actions.kind == "discrete", 1e-4 * (high - low)
        outside = (numbers < low - slack) | (numbers > high + slack) | (whole & (numbers % 1 != 0))
        if outside.any():
            row, index = (int(i) for i in np.argwhere(outside)[0])
            raise UsageError(
                f"the action holds {numbers[row, index]} at index {index if alone else (row, index)}, "
                f"which is not {'a whole number ' if whole else ''}in [{low[index]:g}, {high[index]:g}]"
            )
        return self.unscale(numbers.reshape(-1, *self.actions.shape)), alone

    def read_own_actions(self, given: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
        """A user's action for each of `count` environments, in their own space: a new array, which becomes theirs."""
        numbers = _numbers(given, "action", self.actions.shape)
        shape = (count, *self.actions.shape)
        if numbers.shape != shape:
            raise UsageError(f"actions for {many(count, 'environment')} have shape {shape}, not {numbers.shape}")
        _require_finite(numbers, "action")
        own = numbers.astype(self.actions.dtype)
        if self.actions.kind == "discrete" and (own != numbers).any():
            raise UsageError(f"the action holds {numbers[own != numbers][0]}, which is not a whole number")
        return own


def _observation_size(space: gymnasium.Space[Any], env_id: str) -> int:
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        shape = f" of shape {space.shape}" if isinstance(space, gymnasium.spaces.Box) else ""
        flattens = getattr(space, "is_np_flattenable", False)
        way_out = ": wrap it in gymnasium.wrappers.FlattenObservation" if flattens else ""
        raise UsageError(f"{env_id} has {type(space).__name__} observations{shape}; a flat Box is needed{way_out}")
    if space.shape[0] == 0:
        raise UsageError(f"{env_id} has empty observations: there is nothing to learn from")
    return space.shape[0]


def _read(given: npt.ArrayLike, what: str, shape: tuple[int, ...]) -> tuple[Row, bool]:
    """Finite numbers, a row for each that has this shape, and whether it was a single one."""
    with np.errstate(over="ignore"):
        rows = _numbers(given, what, shape).astype(np.float32)
    alone = rows.ndim == len(shape)
    if rows.shape[not alone :] != shape:
        several = f"({', '.join(map(str, ('n', *shape)))})" if shape else "(n,)"
        raise UsageError(f"an {what} has shape {shape}, or {several} for several, not {rows.shape}")
    _require_finite(rows, what)
    return rows.reshape(-1, math.prod(shape)), alone


def _numbers(given: npt.ArrayLike, what: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A user's numbers as an array; a UsageError if they are something else that NumPy would take for numbers."""
    try:
        array = np.asarray(given)
        array = array.astype(np.float64) if array.dtype.kind == "O" else array  # a row of a table, perhaps
    except Exception:  # ragged, or another library's array that will not be one of NumPy's
        array = np.asarray("")
    if array.dtype.kind not in "biuf":
        from_reset = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)
        way_out = ": the first of the two that reset() returned" if from_reset else ""
        kind = f"a {type(given).__name__}" + (f" of {array.dtype}" if isinstance(given, np.ndarray) else "")
        raise UsageError(f"an {what} is {many(math.prod(shape), 'number')}, not {kind}{way_out}")
    return array


def _require_finite(numbers: npt.NDArray[Any], what: str) -> None:
    if not np.isfinite(numbers).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        where = f" at index {index if len(index) > 1 else index[0]}" if index else ""
        raise UsageError(f"the {what} holds {numbers[index]}{where}")


def as_real(value: Any) -> npt.NDArray[Any] | None:
    """As an array of real numbers, or None. NumPy alone would accept text, None as NaN, half of a complex number."""
    try:
        array = np.asarray(value)
    except Exception:  # ragged, or another library's array that will not be one of NumPy's
        return None
    return array if array.dtype.kind in "biuf" else None


def kind_of(value: Any) -> str:
    """A value in a few words, for messages."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _too_large(number: float) -> str:
    return "" if not math.isfinite(number) else ", which is more than float32 holds: scale it down"
