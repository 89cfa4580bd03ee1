"""Random numbers, derived from the run's seed, a stream's name and a counter, and never carried along.

So no random state has to be saved, and a new use of random numbers in one stream changes no other.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.jax_defaults import with_jax_defaults

Stream = Literal["init", "act", "update", "warmup", "replay", "train", "eval", "episode", "predict", "belief"]

_STREAMS: dict[str, int] = {name: number for number, name in enumerate(get_args(Stream))}


@with_jax_defaults
def jax_key(seed: int, stream: Stream) -> jax.Array:
    """The stream's key; fold the step into it, inside the compiled function.

    `jax.random.fold_in(jax.random.key(seed), number)`, computed by NumPy: for a single key, JAX would first compile a
    program.
    """
    words = _threefry(np.array([0, seed], np.uint32), np.array([0, _STREAMS[stream]], np.uint32))
    key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    return key


def _threefry(key: npt.NDArray[np.uint32], counter: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011)."""
    schedule = np.array([key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)])
    x, y = counter[:1] + schedule[0], counter[1:] + schedule[1]  # arrays of one: they wrap around without a warning
    for i in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x, y = x + schedule[(i + 1) % 3], y + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return np.concatenate([x, y])


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
