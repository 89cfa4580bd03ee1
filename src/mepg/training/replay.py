"""The replay buffer: a ring of transitions, one contiguous row of float32 for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.core.types import Batch, Sizes

Numbers = npt.NDArray[np.uint32]  # of transitions, [n]
FloatArray = npt.NDArray[np.float32]


def layout(sizes: Sizes) -> tuple[slice | int, ...]:
    """Where s, a, r, discount and s' are in a row."""
    s, a = sizes.obs, sizes.obs + sizes.action_width  # where either ends
    return slice(s), slice(s, a), a, a + 1, slice(a + 2, None)


def row_width(sizes: Sizes) -> int:
    """How many numbers one transition has."""
    return 2 * sizes.obs + sizes.action_width + 2


def pack(row: FloatArray, fields: tuple[slice | int, ...], *transition: Any) -> None:
    """Write a transition into a row, whose `layout` is known; or several into the columns of a transposed block."""
    obs, action, reward, discount, next_obs = fields
    row[obs], row[action], row[reward], row[discount], row[next_obs] = transition


def unpack(rows: Any, numbers: Any, sizes: Sizes) -> Batch:
    """The transitions in a block of rows, NumPy's or JAX's; inside a compiled function this costs nothing."""
    obs, action, reward, discount, next_obs = (rows[:, field] for field in layout(sizes))
    return Batch(obs, action, reward, discount, next_obs, numbers)


class Replay:
    """The last `capacity` of the `count` transitions that were added.

    Row number i, counted from the first ever added, lies at i % capacity. Memory is taken from the
    system only as rows are written. Rows before number `dirty_from` are as they were last restored or saved.
    """

    def __init__(self, capacity: int, sizes: Sizes, first: FloatArray | None = None) -> None:
        """`first`: rows that it begins with."""
        self.capacity = capacity
        self.sizes = sizes
        self.width = row_width(sizes)
        self._layout = layout(sizes)
        self._rows: FloatArray = np.zeros((capacity, self.width), np.float32)
        self._first = np.zeros((0, self.width), np.float32) if first is None else first
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self.restore(0, self._first)
        self.dirty_from = 0

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    @property
    def oldest(self) -> int:
        """The number of the oldest row in the buffer."""
        return self.count - len(self)

    def add(self, obs: FloatArray, action: FloatArray, reward: float, discount: float, next_obs: FloatArray) -> None:
        pack(self._rows[self.count % self.capacity], self._layout, obs, action, reward, discount, next_obs)
        self.dirty_from = min(self.dirty_from, self.count)
        self.count += 1

    def set_n_step(self, number: int, reward: float, discount: float, next_obs: FloatArray) -> None:
        """Make a transition one of several steps, for n-step returns, if it is still in the buffer."""
        if number >= self.oldest:
            row, (_, _, *fields) = self._rows[number % self.capacity], self._layout
            for field, value in zip(fields, (reward, discount, next_obs), strict=True):
                row[field] = value
            self.dirty_from = min(self.dirty_from, number)

    def sample(self, fractions: npt.NDArray[np.float64]) -> tuple[FloatArray, Numbers]:
        """The rows at these fractions of the buffer, which lie in [0, 1), and their numbers."""
        rows, slots, numbers = self.sample_slots(fractions)
        return rows.take(slots, axis=0), numbers

    def sample_slots(self, fractions: npt.NDArray[np.float64]) -> tuple[FloatArray, npt.NDArray[np.int64], Numbers]:
        """The same without a copy: all rows, and which of them."""
        slots = (fractions * len(self)).astype(np.int64)
        newest = self.count - 1
        numbers = newest - (newest - slots) % self.capacity
        return self._rows, slots, numbers.astype(np.uint32)

    def read(self, start: int, stop: int) -> FloatArray:
        """A copy of rows number `start` to `stop`, which must still be in the buffer."""
        assert self.oldest <= start <= stop <= self.count
        return self._rows.take(np.arange(start, stop) % self.capacity, axis=0)

    def transition(self, number: int) -> Batch:
        """The single transition with this number."""
        return unpack(self.read(number, number + 1), np.array([number]), self.sizes)

    def restore(self, start: int, rows: FloatArray) -> None:
        """Put back rows number `start` and on, as `read` gave them; later ones overwrite earlier ones."""
        keep = rows[-self.capacity :]
        first = start + len(rows) - len(keep)
        self._rows[np.arange(first, first + len(keep)) % self.capacity] = keep
        self.count = self.dirty_from = start + len(rows)

    def restore_from(self, other: Replay) -> None:
        """Put in the rows of another buffer."""
        self.restore(other.oldest, other.read(other.oldest, other.count))


class MixedReplay(Replay):
    """A replay buffer beside fixed data: the first `from_data` transitions of each batch are drawn from the data.

    The data lies behind the ring, so a batch is still a selection of rows of one array. Transition number i of the data
    has the number i, and those that are added follow.
    """

    def __init__(self, capacity: int, sizes: Sizes, data: FloatArray, batch_size: int, from_data: int) -> None:
        super().__init__(capacity, sizes)
        self._rows = np.zeros((capacity + len(data), self.width), np.float32)
        self._rows[capacity:] = data
        self._data_count, self._batch_size, self._from_data = len(data), batch_size, from_data

    def sample_slots(self, fractions: npt.NDArray[np.float64]) -> tuple[FloatArray, npt.NDArray[np.int64], Numbers]:
        rows, slots, numbers = super().sample_slots(fractions)
        numbers += np.uint32(self._data_count)
        shape, of_data = (-1, self._batch_size), np.s_[:, : self._from_data]
        in_data = (fractions.reshape(shape)[of_data] * self._data_count).astype(np.int64)
        slots.reshape(shape)[of_data] = self.capacity + in_data
        numbers.reshape(shape)[of_data] = in_data
        return rows, slots, numbers
