"""JAX computes by our settings while it computes for us, and by the user's elsewhere."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg import jax_defaults
from mepg.errors import UsageError
from mepg.jax_defaults import _SETTINGS, start_jax, with_jax_defaults

OTHERS = [
    ("jax_enable_x64", True),
    ("jax_default_matmul_precision", "bfloat16"),
    ("jax_default_prng_impl", "rbg"),
    ("jax_threefry_partitionable", False),
    ("jax_numpy_dtype_promotion", "strict"),
    ("jax_numpy_rank_promotion", "raise"),
]


@with_jax_defaults
def something():
    """Depends on each of the settings, or fails by them."""
    x = jax.random.normal(jax.random.key(0), (3,)) + jnp.arange(3)  # two types
    return (x + jnp.ones((2, 3))) @ jnp.ones((3, 2)) / 3  # two ranks; and a product


@pytest.fixture
def setting():
    """Sets one of JAX's settings, and in the end what it was before."""
    before = {name: jax.config.values[name] for name, _ in OTHERS}
    yield jax.config.update
    for name, value in before.items():
        jax.config.update(name, value)


def test_every_setting_that_we_rely_on_is_tried():
    assert len(OTHERS) == len(_SETTINGS)


@pytest.mark.parametrize(("name", "value"), OTHERS)
def test_no_setting_of_the_users_changes_a_bit(name, value, setting):
    expected = np.asarray(something())
    setting(name, value)
    found = np.asarray(something())
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    assert jax.config.values[name] == value, "it is theirs again"


def test_theirs_again_even_if_it_fails(setting):
    setting("jax_enable_x64", True)

    @with_jax_defaults
    def fail():
        assert jnp.arange(3.0).dtype == jnp.float32
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        fail()
    assert jnp.arange(3.0).dtype == jnp.float64


@pytest.mark.parametrize(("asked", "says"), [("cuda", "JAX_PLATFORMS asks for 'cuda'"), ("", "JAX cannot start: gone")])
def test_without_a_device_there_is_a_word_about_it(asked, says, monkeypatch):
    def gone():
        raise AssertionError("gone\naway")

    config = SimpleNamespace(values={"jax_platforms": asked})
    monkeypatch.setattr(jax_defaults, "jax", SimpleNamespace(devices=gone, config=config))
    with pytest.raises(UsageError, match=says) as error:
        start_jax.__wrapped__()
    assert "\n" not in str(error.value)
