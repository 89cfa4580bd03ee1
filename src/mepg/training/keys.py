"""Random numbers, derived from the run's seed, a stream's name and a counter, and never carried along.

So no random state has to be saved, and a new use of random numbers in one stream changes no other.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import numpy as np
import numpy.typing as npt

from mepg.core.threefry import new_key
from mepg.jax_defaults import with_jax_defaults

Stream = Literal["init", "act", "update", "warmup", "replay", "train", "eval", "episode", "predict", "belief"]

_STREAMS: dict[str, int] = {name: number for number, name in enumerate(get_args(Stream))}


@with_jax_defaults
def jax_key(seed: int, stream: Stream) -> jax.Array:
    """The stream's key; fold the step into it, inside the compiled function."""
    return new_key(seed, _STREAMS[stream])


def generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    """NumPy's counterpart of a key."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAMS[stream], *counters))))


class UniformStream:
    """Uniform numbers in [0, 1), `size` for each step, drawn for many steps at a time.

    Making a generator takes ten times as long as using it.
    """

    STEPS = 64

    def __init__(self, seed: int, stream: Stream, size: int) -> None:
        self._seed, self._stream, self._size = seed, stream, size
        self._block = -1

    def __call__(self, step: int) -> npt.NDArray[np.float64]:
        block, row = divmod(step, self.STEPS)
        if block != self._block:
            self._block = block
            self._drawn = generator(self._seed, self._stream, block).random((self.STEPS, self._size))
        fractions: npt.NDArray[np.float64] = self._drawn[row]
        return fractions


def episode_seed(seed: int, stream: Literal["train", "eval"], *counters: int) -> int:
    """A seed for `env.reset`. Training's are even and evaluation's odd, so none is ever in both."""
    draw = int(generator(seed, stream, *counters).integers(2**30))
    return 2 * draw + (stream == "eval")
