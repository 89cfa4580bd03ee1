"""Conversion between an environment's spaces and the float32 arrays that the rest of the program uses.

There, an observation is flat, [S]. An action is flat too, [A]: a Box's numbers scaled to [-1, 1], or the index of a
Discrete's action, counted from 0. Where an environment says which actions are legal, a row is [S + A]: `envs.legal`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.core.types import Sizes
from mepg.envs.observations import (
    Misfit,
    Observations,
    as_real,
    describe_value,
    space_from_json,
    space_to_json,
    too_large,
)
from mepg.errors import RunFailure, UsageError
from mepg.words import many

Observation = npt.NDArray[np.float32]  # [S], or [S + A] with what is legal; several have more axes in front
Action = npt.NDArray[np.float32]  # [A], scaled; several have more axes in front
FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_EXACT = 2**24  # float32 represents every integer up to here


class StepResult(NamedTuple):
    """What an environment's `step` returned, checked."""

    obs: Observation  # at the end of an episode its last one, not the first of the next
    reward: float
    terminated: bool  # false at a time limit, which is no end (D20)
    done: bool  # terminated or truncated
    info: Mapping[str, Any] = MappingProxyType({})


class BoxActions:
    """A Box: numbers between bounds, scaled to [-1, 1]."""

    action_kind = "box"

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
        # Halved first: high - low may overflow.
        self.centre, self.half = self.high / 2 + self.low / 2, self.high / 2 - self.low / 2
        self._unscaled = bool(np.all(self.low == -1) and np.all(self.high == 1))

    def to_json(self) -> dict[str, Any]:
        low, high = (bound.reshape(self.shape).tolist() for bound in (self.low, self.high))
        return {"action_bounds": {"low": low, "high": high}}

    @staticmethod
    def space_from_json(data: Any, size: int) -> gymnasium.spaces.Box:
        if not 1 <= size <= 10**6:  # before memory is allocated
            raise ValueError(f"actions of size {size}")
        low, high = (np.array(data["action_bounds"][name], np.float32) for name in ("low", "high"))
        if low.shape != high.shape or low.size != size:
            raise ValueError(f"bounds of shapes {low.shape} and {high.shape} for actions of size {size}")
        return gymnasium.spaces.Box(low, high, low.shape, np.float32)

    def random(self, generator: np.random.Generator) -> npt.NDArray[Any]:
        """A random action, [A]."""
        return generator.uniform(-1, 1, self.size)

    def scale(self, actions: Action) -> Any:
        """From [..., A] in [-1, 1] to the environment's own bounds and shape.

        Always a new array, because an environment may write to it. The actions themselves are stored, and may be a
        view of an array of JAX's.
        """
        if self._unscaled:
            scaled = actions.astype(self.dtype)
        else:
            scaled = np.minimum(np.maximum(self.centre + self.half * actions, self.low), self.high)  # np.clip is slower
            if scaled.dtype != self.dtype:
                scaled = scaled.astype(self.dtype)
        shape = actions.shape[:-1] + self.shape
        return scaled if scaled.shape == shape else scaled.reshape(shape)

    def scale_in_jax(self, actions: jax.Array) -> jax.Array:
        """`scale` as operations of JAX, for export."""
        centre, half, low, high = (each.astype(np.float32) for each in (self.centre, self.half, self.low, self.high))
        return jnp.clip(centre + half * actions, low, high).reshape(actions.shape[0], *self.shape)

    def unscale(self, actions: npt.NDArray[Any]) -> Action:
        """From the environment's own bounds and shape back to [..., A] in [-1, 1]."""
        batch_shape = actions.shape[: actions.ndim - len(self.shape)]
        flat = actions.reshape(*batch_shape, self.size)
        unscaled: Action = np.clip((flat - self.centre) / self.half, -1, 1).astype(np.float32)
        return unscaled

    def each(self, actions: Any) -> Iterable[Any]:
        """Each environment's action, as an array also where its shape is ()."""
        return map(np.asarray, actions)


class DiscreteActions:
    """A Discrete: one of n actions, as its index, counted from 0."""

    action_kind, shape = "discrete", ()

    def __init__(self, space: gymnasium.spaces.Discrete, env_id: str) -> None:
        self.size, self.dtype = int(space.n), np.dtype(space.dtype)
        self.start = self.dtype.type(space.start)
        self.low, self.high = np.array([self.start]), np.array([self.start + self.size - 1])
        if self.size > MAX_EXACT or not -MAX_EXACT <= int(space.start) <= MAX_EXACT - self.size:
            raise UsageError(f"{env_id} has {space} actions; at most 2^24 are possible, counted from -2^24 to 2^24")

    def to_json(self) -> dict[str, Any]:
        return {"action_choices": {"n": self.size, "start": int(self.start)}}

    @staticmethod
    def space_from_json(data: Any, size: int) -> gymnasium.spaces.Discrete:
        n, start = (data["action_choices"][name] for name in ("n", "start"))
        integers = type(n) is int and type(start) is int
        if not integers or n != size or not (0 < n <= MAX_EXACT and abs(start) <= MAX_EXACT):
            raise ValueError(f"a choice of {n!r} from {start!r}, and the size is {size}")
        return gymnasium.spaces.Discrete(n, start=start)

    def random(self, generator: np.random.Generator) -> npt.NDArray[Any]:
        return generator.integers(self.size, size=1)

    def scale(self, actions: Action) -> Any:
        index = actions[..., 0]
        integer = index.astype(self.dtype)
        if not ((integer == index) & (integer >= 0) & (integer < self.size)).all():
            raise RunFailure(f"the policy chose action {index}, not a whole number from 0 to {self.size - 1}")
        return integer + self.start

    def scale_in_jax(self, actions: jax.Array) -> jax.Array:
        return actions.reshape(actions.shape[0]).astype(jnp.int32) + int(self.start)

    def unscale(self, actions: npt.NDArray[Any]) -> Action:
        return np.asarray(actions - self.start, np.float32)[..., None]

    def each(self, actions: Any) -> Iterable[Any]:
        return list(actions)  # numbers, not arrays of shape (): an environment may use them as keys of a dict


def _codec(space: gymnasium.Space[Any], env_id: str) -> BoxActions | DiscreteActions:
    if isinstance(space, gymnasium.spaces.Box):
        return BoxActions(space, env_id)
    if isinstance(space, gymnasium.spaces.Discrete):
        return DiscreteActions(space, env_id)
    raise UsageError(f"{env_id}'s action space is a {type(space).__name__}; a Box or a Discrete is needed")


class Spaces:
    """An environment's observation and action spaces, and checks of everything that it returns.

    :param legal: whether it says which actions are legal
    """

    def __init__(
        self, env_id: str, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], *, legal: bool = False
    ) -> None:
        self.id = env_id
        self.actions = _codec(actions, env_id)
        # Copies, so that neither the environment nor a user can change them later.
        self.observation_space, self.action_space = copy.deepcopy(observations), copy.deepcopy(actions)
        self.observations = Observations(self.observation_space, env_id)
        self.sizes = Sizes(
            self.observations.size,
            self.actions.size,
            self.actions.action_kind,
            self.observations.entries,
            n_legal=self.actions.size if legal else 0,
        )
        self.scale, self.unscale = self.actions.scale, self.actions.unscale
        self._obs_shape = (self.sizes.obs,)
        # A checked copy of an observation as a row, [S]: some environments write the next one into the same array.
        self.obs = self._flat_obs if self.observations.is_flat else self._flattened_obs

    def with_legal_actions(self) -> Spaces:
        """The same, of an environment that says which actions are legal."""
        return Spaces(self.id, self.observation_space, self.action_space, legal=True)

    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs, besides the environment's id."""
        sizes = [self.sizes.obs, self.sizes.action]
        structure = {} if self.observations.is_flat else {"observations": space_to_json(self.observation_space)}
        legal = {"legal_actions": True} if self.sizes.n_legal else {}
        return {"sizes": sizes, **structure, **self.actions.to_json(), **legal}

    @classmethod
    def from_json(cls, env_id: str, data: Any) -> Spaces:
        """The spaces that `to_json` wrote, without making the environment; other entries of `data` are ignored."""
        obs, action = (int(size) for size in data["sizes"])
        if not 1 <= obs <= 10**6:  # before memory is allocated
            raise ValueError(f"observations of size {obs}")
        codec = DiscreteActions if "action_choices" in data else BoxActions
        space = space_from_json(data.get("observations", {"box": [obs]}))
        legal = data.get("legal_actions", False)
        if type(legal) is not bool or (legal and codec is BoxActions):
            raise ValueError(f"legal actions are not {legal!r:.80}")
        spaces = cls(env_id, space, codec.space_from_json(data, action), legal=legal)
        if spaces.sizes.obs != obs:
            raise ValueError(f"observations of size {obs} with {spaces.sizes.obs} numbers")
        return spaces

    def difference(self, other: Spaces) -> str | None:
        """How the other's spaces differ, as words that follow "had" or "with"; None if they are the same."""
        kind, other_kind = self.actions.action_kind, other.actions.action_kind
        if kind != other_kind:
            return f"an action space of kind {kind}, and {other.id} has one of kind {other_kind}"
        if not self.observations.same(other.observations):
            return f"observations {self.observations}, and {other.id} has {other.observations}"
        if self.sizes.n_legal != other.sizes.n_legal:
            here, there = ("some", "none") if self.sizes.n_legal else ("none", "some")
            return f"{here} of its actions said to be legal, and {other.id} has {there}"
        facts = ("actions of size", "actions of shape", "actions from", "actions to")
        for fact, value, other_value in zip(facts, self._facts(), other._facts(), strict=True):
            if np.shape(value) != np.shape(other_value) or not np.allclose(value, other_value, rtol=1e-6):
                return f"{fact} {value}, and {other.id} has {other_value}"
        return None

    def _facts(self) -> tuple[Any, ...]:
        bounds = (bound.reshape(self.actions.shape).tolist() for bound in (self.actions.low, self.actions.high))
        return self.sizes.action_width, self.actions.shape, *bounds

    def result(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> StepResult:
        """Check what an environment's step returned."""
        if type(terminated) is not bool:
            terminated = self.flag(terminated, "terminated")
        if type(truncated) is not bool:
            truncated = self.flag(truncated, "truncated")
        if type(info) is not dict and not isinstance(info, Mapping):
            raise RunFailure(f"{self.id} returned {describe_value(info)} as info, not a dict")
        return StepResult(self.obs(obs), self.reward(reward), terminated, terminated or truncated, info)

    def _flattened_obs(self, obs: Any) -> Observation:
        try:
            return self.observations.flatten(obs)
        except Misfit as misfit:
            raise RunFailure(f"{self.id} returned {misfit}") from None

    def _flat_obs(self, obs: Any) -> Observation:
        """The space's bounds are not checked, because many environments exceed them slightly now and then."""
        numbers = as_real(obs)
        if numbers is None:
            raise RunFailure(f"{self.id} returned {describe_value(obs)} as an observation, not real numbers")
        if numbers.shape != self._obs_shape:
            raise RunFailure(f"{self.id} returned an observation of shape {numbers.shape}, not {self._obs_shape}")
        if numbers.dtype == np.float32:
            copied: Observation = numbers.copy()
        else:
            with np.errstate(over="ignore"):
                copied = numbers.astype(np.float32)
        if False in np.isfinite(copied).tolist():  # for short arrays faster than all()
            index = int(np.flatnonzero(~np.isfinite(copied))[0])
            number = float(numbers[index])
            raise RunFailure(f"{self.id} returned an observation with {number} at index {index}{too_large(number)}")
        return copied

    def reward(self, reward: Any) -> float:
        if isinstance(reward, float):  # the usual case; NumPy's float64 is one too
            number = float(reward)
        else:
            numbers = as_real(reward)
            if numbers is None or numbers.shape != ():
                raise RunFailure(f"{self.id} returned {describe_value(reward)} as a reward, not a real number")
            number = float(numbers)
        if not abs(number) <= FLOAT32_MAX:
            raise RunFailure(f"{self.id} returned a reward of {number}{too_large(number)}")
        return number

    def flag(self, value: Any, name: str) -> bool:
        """The flag of this name, "terminated" or "truncated", as a bool."""
        numbers = as_real(value)  # some environments return 0 or 1
        if numbers is None or numbers.shape != () or float(numbers) not in (0, 1):
            raise RunFailure(f"{self.id} returned {describe_value(value)} as {name!r}, not true or false")
        return bool(numbers)

    def random(self, generator: np.random.Generator, row: Observation) -> npt.NDArray[Any]:
        """A random action, [A], that is legal in this state."""
        if not self.sizes.n_legal:
            return self.actions.random(generator)
        legal = np.flatnonzero(row[self.sizes.obs :])
        return legal[generator.integers(len(legal), size=1)]

    def any_action(self, row: Observation) -> Action:
        """An action, [A], that is legal in this state."""
        index = row[self.sizes.obs :].argmax() if self.sizes.n_legal else 0
        return np.full(self.sizes.action_width, index, np.float32)

    def unflatten(self, rows: Observation) -> Any:
        """Rows as the environment's own structure: see `Observations.unflatten`."""
        return self.observations.unflatten(rows[..., : self.sizes.obs] if self.sizes.n_legal else rows)

    def own_observations(self, rows: Observation) -> Any:
        """[E, S] as the environment's own structure, with an axis for E in front of each array."""
        own = self.unflatten(rows)
        return own.astype(self.observation_space.dtype, copy=False) if self.observations.is_flat else own

    def read_observations(self, observations: Any, needed: Collection[str] | None = None) -> tuple[Observation, bool]:
        """A user's observation or batch of them as [B, S], and whether it was a single one.

        :param needed: the entries that must be there: others may be missing, and are then 0; None: all
        """
        if self.observations.is_flat:
            return _read(observations, "observation", self._obs_shape)
        try:
            batch = self.observations.count(observations, needed)
            rows = self.observations.flatten(observations, batch, needed)
        except Misfit as misfit:
            raise UsageError(f"{self.id} has observations {self.observations}; this one has {misfit}") from None
        return rows.reshape(-1, self.sizes.obs), not batch

    def read_actions(self, actions: npt.ArrayLike) -> tuple[Action, bool]:
        """A user's action or batch of them, in the environment's bounds, as [B, A]; and whether it was a single one."""
        numbers, single = _read(actions, "action", self.actions.shape)
        low, high = self.actions.low.astype(float), self.actions.high.astype(float)
        discrete, tolerance = self.actions.action_kind == "discrete", 1e-4 * (high - low)
        outside = (numbers < low - tolerance) | (numbers > high + tolerance) | (discrete & (numbers % 1 != 0))
        if outside.any():
            row, index = (int(i) for i in np.argwhere(outside)[0])
            raise UsageError(
                f"the action holds {numbers[row, index]} at index {index if single else (row, index)}, "
                f"which is not {'a whole number ' if discrete else ''}in [{low[index]:g}, {high[index]:g}]"
            )
        return self.unscale(numbers.reshape(-1, *self.actions.shape)), single

    def read_own_actions(self, actions: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
        """A user's action for each of `count` environments, in their own space, as a new array that they may keep."""
        numbers = _numbers(actions, "action", self.actions.shape)
        shape = (count, *self.actions.shape)
        if numbers.shape != shape:
            raise UsageError(f"actions for {many(count, 'environment')} have shape {shape}, not {numbers.shape}")
        _require_finite(numbers, "action")
        converted = numbers.astype(self.actions.dtype)
        if self.actions.action_kind == "discrete" and (converted != numbers).any():
            raise UsageError(f"the action holds {numbers[converted != numbers][0]}, which is not a whole number")
        return converted


def _read(value: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.float32], bool]:
    """A finite array of this shape, or a batch of them, as [B, size]; and whether it was a single one."""
    with np.errstate(over="ignore"):
        array = _numbers(value, name, shape).astype(np.float32)
    single = array.ndim == len(shape)
    if array.shape[not single :] != shape:
        batch = f"({', '.join(map(str, ('n', *shape)))})" if shape else "(n,)"
        raise UsageError(f"an {name} has shape {shape}, or {batch} for several, not {array.shape}")
    _require_finite(array, name)
    return array.reshape(-1, math.prod(shape)), single


def _numbers(value: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A user's numbers as an array. A UsageError for anything else, also for what NumPy would convert to numbers."""
    try:
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "O" else array  # a row of a table, perhaps
    except Exception:  # ragged, or another library's array that cannot be converted
        array = np.asarray("")
    if array.dtype.kind not in "biuf":
        from_reset = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
        hint = ": give the first of the two values that reset() returned" if from_reset else ""
        shown = f"a {type(value).__name__}" + (f" of {array.dtype}" if isinstance(value, np.ndarray) else "")
        raise UsageError(f"an {name} is {many(math.prod(shape), 'number')}, not {shown}{hint}")
    return array


def _require_finite(numbers: npt.NDArray[Any], name: str) -> None:
    if not np.isfinite(numbers).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        where = f" at index {index if len(index) > 1 else index[0]}" if index else ""
        raise UsageError(f"the {name} holds {numbers[index]}{where}")
