"""The replay memory: a ring of transitions, one contiguous row of float32 for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mepg.core.types import Array, Batch, Sizes

Numbers = npt.NDArray[np.uint32]  # [n]
Rows = npt.NDArray[np.float32]  # [n, S + A + 1 + 1 + S]


class Replay:
    """The last `capacity` of the `count` transitions that were added.

    Row number i, counted from the first ever added, lies at i % capacity. Memory is taken from the
    system only as rows are written.
    """

    def __init__(self, capacity: int, sizes: Sizes) -> None:
        self.capacity = capacity
        self.sizes = sizes
        self.count = 0
        self.width = row_width(sizes)
        self._rows: Rows = np.zeros((capacity, self.width), np.float32)

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    @property
    def oldest(self) -> int:
        """The number of the first row that is still there."""
        return self.count - len(self)

    def add(self, obs: Rows, action: Rows, reward: float, alive: bool, next_obs: Rows) -> None:
        row = self._rows[self.count % self.capacity]
        s, a = self.sizes
        row[:s] = obs
        row[s : s + a] = action
        row[s + a] = reward
        row[s + a + 1] = alive
        row[s + a + 2 :] = next_obs
        self.count += 1

    def sample(self, fractions: npt.NDArray[np.float64]) -> tuple[Rows, Numbers]:
        """The rows at these fractions of the memory, which lie in [0, 1), and their numbers."""
        places = (fractions * len(self)).astype(np.int64)
        newest = self.count - 1
        numbers = newest - (newest - places) % self.capacity
        return self._rows.take(places, axis=0), numbers.astype(np.uint32)

    def read(self, start: int, stop: int) -> Rows:
        """A copy of rows number `start` to `stop`, which must still be there."""
        assert self.oldest <= start <= stop <= self.count
        return self._rows.take(np.arange(start, stop) % self.capacity, axis=0)

    def restore(self, start: int, rows: Rows) -> None:
        """Put back rows number `start` and on, as `read` gave them; later ones overwrite earlier ones."""
        keep = rows[-self.capacity :]
        first = start + len(rows) - len(keep)
        self._rows[np.arange(first, first + len(keep)) % self.capacity] = keep
        self.count = start + len(rows)

    def restore_from(self, other: Replay) -> None:
        """Put in the rows of another."""
        self.restore(other.oldest, other.read(other.oldest, other.count))


def row_width(sizes: Sizes) -> int:
    """The numbers in one transition: s, a, r, alive, s'."""
    return 2 * sizes.obs + sizes.action + 2


def unpack(rows: Array, numbers: Array, sizes: Sizes) -> Batch:
    """The transitions in a block of rows; inside a compiled function this costs nothing."""
    s, a = sizes
    return Batch(
        obs=rows[:, :s],
        action=rows[:, s : s + a],
        reward=rows[:, s + a],
        alive=rows[:, s + a + 1],
        next_obs=rows[:, s + a + 2 :],
        number=numbers,
    )
