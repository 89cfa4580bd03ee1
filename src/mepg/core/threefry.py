"""Keys: JAX's own, bit for bit, at a fraction of the price.

JAX computes Threefry on a CPU in a loop over its rounds. For the two words of a key such a loop costs
far more than they do, and an update derives a dozen keys. Here the rounds are written out, and
the compiler merges them with what uses them.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.core.types import Array, Key

Words = TypeVar("Words", Array, npt.NDArray[Any])  # JAX's or NumPy's

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def new_key(seed: int, stream: int) -> Key:
    """What `jax.random.fold_in(jax.random.key(seed), stream)` gives, with the implementation below.

    NumPy computes it: for a single key, JAX would first compile a program.
    """
    x, y = _threefry(np.array([0, seed], np.uint32), *np.array([[0], [stream]], np.uint32))
    return wrap_key(jnp.asarray(np.concatenate([x, y])))


def wrap_key(data: Array) -> Key:
    """A key from what `jax.random.key_data` gave."""
    key: Key = jax.random.wrap_key_data(data, impl=_PRNG_IMPL)
    return key


def random_bits16(key: Key, shape: tuple[int, ...]) -> Array:
    """Uniform 16-bit integers, four from each hash: JAX's older scheme takes both words, and a word has two in it."""
    *rows, columns = shape
    with jax.threefry_partitionable(False):
        words = jax.random.bits(as_jax_key(key), (*rows, (columns + 1) // 2), jnp.uint32)
    return jnp.concatenate([words % 2**16, words // 2**16], axis=-1)[..., :columns]


def _threefry(key: Words, x: Words, y: Words) -> tuple[Words, Words]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counters (x, y)."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    x, y = x + schedule[0], y + schedule[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x, y = x + schedule[(i + 1) % 3], y + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """64-bit counters as two words; no draw here comes near 2^32."""
    low = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Array) -> Array:
    low = jnp.asarray(seed).astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(low), low])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_threefry(key, *_counters(shape)), axis=-1)


def _fold_in(key: Array, number: Array | int) -> Array:
    return jnp.stack(_threefry(key, *_seed(jnp.asarray(number))))


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    # Here JAX's loop is the better way: what it computes is stored, not computed again wherever it is used.
    bits: Array = jax.random.bits(as_jax_key(key), shape, f"uint{width}")
    return bits


def as_jax_key(key: Array) -> Key:
    """The same key, from which JAX derives others in its loops: less to compile."""
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    wrapped: Key = jax.random.wrap_key_data(data, impl="threefry2x32")
    return wrapped


_PRNG_IMPL = jax.extend.random.define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="mepg-threefry", tag="mt"
)
