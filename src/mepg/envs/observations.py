"""Observations of any space of a fixed size as rows of float32, in the order of Gymnasium's `flatten`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from mepg.core.types import Entry
from mepg.errors import UsageError

Rows = npt.NDArray[np.float32]  # [S], or [B, S] for a batch
Path = tuple[str | int, ...]  # keys of Dicts and indices of Tuples, from the outside
LARGEST = 10**6  # numbers in an observation
_DEEPEST = 20  # Dicts and Tuples in each other, in a file


class Misfit(Exception):
    """A value does not have its space's structure. The message follows a verb, as in "the environment returned"."""


class Missing(Misfit):
    """An entry of a Dict or Tuple is not there."""


class Leaf(NamedTuple):
    """A space without others in it, and where its numbers are in a row."""

    path: Path
    start: int
    end: int
    shape: tuple[int, ...]  # of a single value
    dtype: np.dtype[Any]
    # Of a one-hot code: how many columns each number has, and which number each column stands for. None: no such code.
    counts: npt.NDArray[Any] | None = None
    choices: npt.NDArray[Any] | None = None

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))

    @property
    def label(self) -> str:
        """How one would write it in Python."""
        return _label(self.path)

    def find(self, obs: Any) -> npt.NDArray[Any]:
        """Its numbers in an observation, which may be a batch."""
        value = obs
        for depth, key in enumerate(self.path):
            try:
                value = value[key]
            except (LookupError, TypeError):
                if isinstance(value, Mapping if isinstance(key, str) else list | tuple):
                    raise Missing(f"no {_label(self.path[: depth + 1])}") from None
                kind = "Dict" if isinstance(key, str) else "Tuple"
                raise Misfit(f"{describe_value(value)} as {_label(self.path[:depth])}, not a {kind}") from None
        numbers = as_real(value)
        if numbers is None:
            raise Misfit(f"{describe_value(value)} as {self.label}, not real numbers")
        return numbers

    def encode(self, numbers: npt.NDArray[Any], batch: tuple[int, ...]) -> npt.NDArray[Any]:
        """As columns of rows."""
        if numbers.shape != batch + self.shape:
            raise Misfit(f"{self.label} of shape {numbers.shape}, not {batch + self.shape}")
        flat = numbers.reshape(*batch, -1)
        if self.counts is None:
            return flat
        hot: npt.NDArray[Any] = np.repeat(flat, self.counts, axis=-1) == self.choices
        if np.count_nonzero(hot) != flat.size:
            known = np.logical_or.reduceat(hot, self._firsts, axis=-1)
            index = tuple(int(i) for i in np.argwhere(~known)[0])
            ends = np.cumsum(self.counts)[index[-1]] - 1
            assert self.choices is not None
            low, high = self.choices[self._firsts[index[-1]]], self.choices[ends]
            raise Misfit(f"{flat[index]} as {self.label}, not a whole number from {low} to {high}")
        return hot

    def decode(self, rows: Rows) -> Any:
        """The inverse of `encode`, in the environment's own type."""
        numbers: npt.NDArray[Any] = rows[..., self.start : self.end]
        if self.counts is not None:
            numbers = np.add.reduceat(numbers * self.choices, self._firsts, axis=-1)
        own = numbers.reshape(rows.shape[:-1] + self.shape).astype(self.dtype)
        return own if self.counts is None else own[()]  # a single Discrete is a number

    @property
    def _firsts(self) -> npt.NDArray[Any]:
        """The column in which each number's code begins, counted from this leaf's first."""
        assert self.counts is not None
        firsts: npt.NDArray[Any] = np.cumsum(self.counts) - self.counts
        return firsts


class Observations:
    """How the observations of a space are flattened."""

    def __init__(self, space: gymnasium.Space[Any], env_id: str) -> None:
        self.space = space
        self.leaves: list[Leaf] = []
        self.size = 0
        for path, leaf_space in _leaf_spaces(space, env_id):
            leaf = _leaf(path, leaf_space, self.size)
            self.size = leaf.end
            self.leaves.append(leaf)
        if not self.size:
            raise UsageError(f"{env_id} has empty observations: there is nothing to learn from")
        if self.size > LARGEST:
            raise UsageError(f"{env_id} has observations of {self.size:,} numbers; at most {LARGEST:,} are possible")
        self.is_flat = isinstance(space, Box) and len(space.shape) == 1  # then there is nothing to do
        self.is_nested = isinstance(space, Dict | Tuple)
        images = [leaf for leaf in self.leaves if leaf.dtype == np.uint8 and len(leaf.shape) > 1]
        shown = ", ".join(f"{leaf.label} of shape {leaf.shape}" for leaf in images)
        self.note = f"{env_id} has images ({shown}): they are plain numbers here, without convolution" if images else ""

    def same(self, other: Observations) -> bool:
        """Whether the other's observations mean the same."""
        return space_to_json(self.space) == space_to_json(other.space)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of a Dict; nothing else has names."""
        if not isinstance(self.space, Dict):
            return ()
        return tuple(Entry(leaf.name, leaf.start, leaf.end) for leaf in self.leaves)

    def __str__(self) -> str:
        if self.is_flat:
            return f"of size {self.size}"
        return ", ".join(f"{leaf.name or 'of shape '}{list(leaf.shape)}" for leaf in self.leaves)

    def flatten(self, obs: Any, batch: tuple[int, ...] = (), needed: Collection[str] | None = None) -> Rows:
        """An observation as a new row, or a batch as several; a `Misfit` says what is wrong with it.

        Bounds are not checked, because many environments exceed them slightly now and then.

        :param needed: names of the leaves that must be there: others may be missing, and are then 0; None: all
        """
        rows = np.zeros((*batch, self.size), np.float32)
        with np.errstate(over="ignore"):
            for leaf in self.leaves:
                try:
                    numbers = leaf.find(obs)
                except Missing:
                    if needed is None or leaf.name in needed:
                        raise
                    continue
                rows[..., leaf.start : leaf.end] = leaf.encode(numbers, batch)
        if not np.isfinite(rows).all():
            raise self._not_finite(obs, rows)
        return rows

    def count(self, obs: Any, needed: Collection[str] | None) -> tuple[int, ...]:
        """() for a single observation, (B,) for a batch: by the first leaf that is needed."""
        leaf = next(leaf for leaf in self.leaves if needed is None or leaf.name in needed)
        shape = leaf.find(obs).shape
        return shape[: max(0, len(shape) - len(leaf.shape))][:1]

    def unflatten(self, rows: Rows) -> Any:
        """What `flatten` was given: [S] -> an observation, [B, S] -> a batch of them."""
        if self.is_flat:
            return rows
        leaves = iter(self.leaves)

        def build(space: gymnasium.Space[Any]) -> Any:
            if isinstance(space, Dict):
                return {key: build(inner) for key, inner in space.spaces.items()}
            if isinstance(space, Tuple):
                return tuple(map(build, space.spaces))
            return next(leaves).decode(rows)

        return build(self.space)

    def _not_finite(self, obs: Any, rows: Rows) -> Misfit:
        *at, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        leaf = next(leaf for leaf in self.leaves if leaf.start <= column < leaf.end)
        number = float(leaf.find(obs).reshape(*rows.shape[:-1], -1)[(*at, column - leaf.start)])
        index = np.unravel_index(column - leaf.start, leaf.shape)
        where = f" at index {', '.join(map(str, (*at, *index)))}" if at or index else ""
        return Misfit(f"{leaf.label} with {number}{where}{too_large(number)}")


def entry(batch: Any, index: int) -> Any:
    """One environment's observation, of what a vector environment returned for all."""
    if isinstance(batch, Mapping):
        return {key: entry(inner, index) for key, inner in batch.items()}
    if isinstance(batch, tuple):
        return tuple(entry(inner, index) for inner in batch)
    return batch[index]


def _label(path: Path) -> str:
    return "observation" + "".join(f"[{key!r}]" for key in path)


def _leaf_spaces(space: gymnasium.Space[Any], env_id: str, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every space without others in it, in the order of `flatten`; one that has no fixed size is refused."""
    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            if not isinstance(key, str):
                raise UsageError(f"{env_id}'s {_label((*path, key))}: an entry of a Dict has to have a text as its key")
            yield from _leaf_spaces(inner, env_id, (*path, key))
    elif isinstance(space, Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _leaf_spaces(inner, env_id, (*path, index))
    elif isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        yield path, space
    else:
        raise UsageError(
            f"{env_id}'s {_label(path)} is a {type(space).__name__}, which is not a fixed number of numbers: make it a "
            "Box with gymnasium.wrappers.TransformObservation"
        )


def _leaf(path: Path, space: Any, start: int) -> Leaf:
    if isinstance(space, Discrete):
        counts, firsts = np.array([space.n]), np.array([space.start])
    elif isinstance(space, MultiDiscrete):
        counts, firsts = space.nvec.reshape(-1), space.start.reshape(-1)
    else:
        return Leaf(path, start, start + math.prod(space.shape), space.shape, np.dtype(space.dtype))
    width = int(counts.sum())
    if width > LARGEST:  # before memory is allocated
        return Leaf(path, start, start + width, space.shape, np.dtype(space.dtype))
    choices = np.concatenate([first + np.arange(count) for first, count in zip(firsts, counts, strict=True)])
    return Leaf(path, start, start + width, space.shape, np.dtype(space.dtype), counts, choices)


def as_real(value: Any) -> npt.NDArray[Any] | None:
    """As an array of real numbers, or None. NumPy alone accepts text, None as NaN, and half of a complex number."""
    try:
        array = np.asarray(value)
    except Exception:  # ragged, or another library's array that cannot be converted
        return None
    return array if array.dtype.kind in "biuf" else None


def describe_value(value: Any) -> str:
    """A value or its type, for messages."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def too_large(number: float) -> str:
    """The end of a message about a number that is infinite as a float32."""
    return "" if not math.isfinite(number) else ", which is more than float32 holds: scale it down"


# A space as JSON: its structure alone, because bounds are not checked.


def space_to_json(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """All that `space_from_json` needs."""
    if isinstance(space, Dict):
        return {"dict": [[key, space_to_json(inner)] for key, inner in space.spaces.items()]}
    if isinstance(space, Tuple):
        return {"tuple": [space_to_json(inner) for inner in space.spaces]}
    if isinstance(space, Discrete):
        return {"discrete": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        return {"multi_discrete": space.nvec.tolist(), "start": space.start.tolist()}
    assert isinstance(space, Box | MultiBinary)
    return {"box" if isinstance(space, Box) else "multi_binary": list(space.shape)}


def space_from_json(data: Any) -> gymnasium.Space[Any]:
    """The space that `space_to_json` wrote; its numbers are float32 and have no bounds. Else a ValueError."""
    try:
        return _space_from_json(data, 0)
    except (AssertionError, OverflowError, TypeError) as error:  # of Gymnasium's or NumPy's own checks
        raise ValueError(f"an observation space is not {data!r:.80}: {error!r:.200}") from None


def _space_from_json(data: Any, depth: int) -> gymnasium.Space[Any]:
    if not isinstance(data, dict) or depth > _DEEPEST:
        raise ValueError(f"an observation space is not {data!r:.80}")
    match data:
        case {"dict": [*entries]}:
            return Dict([(key, _space_from_json(inner, depth + 1)) for key, inner in entries])
        case {"tuple": [*entries]}:
            return Tuple([_space_from_json(inner, depth + 1) for inner in entries])
        case {"discrete": int(n), "start": int(start)}:
            _require_size(n)
            return Discrete(n, start=start)
        case {"multi_discrete": [*nvec], "start": [*start]}:
            counts, firsts = np.array(nvec, np.int64), np.array(start, np.int64)
            _require_size(sum(counts.reshape(-1).tolist()))
            return MultiDiscrete(counts, start=firsts)
        case {"box": [*shape]}:
            _require_size(_product(shape))
            return Box(-np.inf, np.inf, tuple(shape), np.float32)
        case {"multi_binary": [*shape]}:
            _require_size(_product(shape))
            return MultiBinary(shape)
    raise ValueError(f"an observation space is not {data!r:.80}")


def _product(shape: list[Any]) -> int:
    if not all(type(length) is int and length >= 0 for length in shape) or len(shape) > _DEEPEST:
        raise ValueError(f"a shape is not {shape!r:.80}")
    return math.prod(shape)


def _require_size(size: int) -> None:
    if not 0 <= size <= LARGEST:  # before memory is allocated
        raise ValueError(f"observations of size {size}")
