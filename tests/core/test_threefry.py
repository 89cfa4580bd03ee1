"""Keys are JAX's own, whatever is done with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.threefry import new_key, random_bits16, wrap_key

USES = {
    "key": jax.random.key_data,
    "split": lambda key: jax.random.key_data(jax.random.split(key, 5)),
    "split in two ways": lambda key: jax.random.key_data(jax.random.split(key, (3, 2))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 + 7)),
    "normal": lambda key: jax.random.normal(key, (7, 3)),
    "uniform": jax.random.uniform,
    "bits": lambda key: jax.random.bits(key, (9,), jnp.uint16),
    "choice": lambda key: jax.random.choice(key, 10, (2,), replace=False),
    "randint": lambda key: jax.random.randint(key, (), 0, 5),
    "vmap": lambda key: jax.vmap(lambda one: jax.random.normal(one, (3,)))(jax.random.split(key, 4)),
    "random_bits16": lambda key: random_bits16(key, (3, 5)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (1, 9), (2**32 - 1, 2**32 - 1)])
def test_the_same_numbers_as_jax(use, seed, stream):
    theirs = use(jax.random.fold_in(jax.random.key(np.uint32(seed)), np.uint32(stream)))
    np.testing.assert_array_equal(use(new_key(seed, stream)), theirs)
    np.testing.assert_array_equal(jax.jit(use)(new_key(seed, stream)), theirs)


def test_a_key_can_be_stored_as_numbers():
    key = jax.random.fold_in(new_key(3, 0), 4)
    again = wrap_key(jax.random.key_data(key))
    np.testing.assert_array_equal(jax.random.normal(key, (4,)), jax.random.normal(again, (4,)))


def test_16_bit_numbers_are_uniform_and_independent_of_their_neighbours():
    numbers = np.asarray(random_bits16(new_key(0, 0), (256, 255)), np.float64) / 2**16
    assert numbers.shape == (256, 255)
    assert numbers.mean() == pytest.approx(0.5, abs=0.005)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.002)
    for one, other in (
        (numbers[:, 1:], numbers[:, :-1]),
        (numbers[1:], numbers[:-1]),
        (numbers[:, 128:], numbers[:, :127]),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
