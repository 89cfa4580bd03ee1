"""Numbers worked out by hand, and what the distances have in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.losses import doubled_huber_loss, doubled_quantile_huber_loss, doubled_td_loss, smallest_quantiles
from mepg.core.spec import Quantiles, Spec
from tests.conftest import draw


def test_hubers_by_hand():
    """1/2 x^2 within 1, |x| - 1/2 beyond; the distance is twice that."""
    x, y = jnp.array([0.5, 3.0, -1.0, -2.0]), jnp.zeros(4)
    np.testing.assert_allclose(doubled_huber_loss(1.0, x, y), [0.25, 5.0, 1.0, 3.0])
    np.testing.assert_allclose(doubled_huber_loss(2.0, x, y), [0.25, 8.0, 1.0, 4.0])
    np.testing.assert_allclose(doubled_huber_loss(None, x, y), [0.25, 9.0, 1.0, 4.0])


def test_the_quantile_loss_by_hand():
    """Quantiles 0 and 2 at tau = 1/4 and 3/4, y of 1 and 4: weights 2 tau, but 2 (1 - tau) where y is below.

    z = 0: y - z is 1 and 4, h is 1 and 7, weights 1/2: 0.5 and 3.5. z = 2: y - z is -1 and 2, h is 1 and 3, weights 1/2
    and 3/2: 0.5 and 4.5. The mean of all four is 2.25.
    """
    z, y = jnp.array([[0.0, 2.0]]), jnp.array([[1.0, 4.0]])
    np.testing.assert_allclose(doubled_quantile_huber_loss(1.0, z, y), [2.25])
    # h without a line is 1, 16, 1, 4: 0.5 + 8 + 0.5 + 6
    np.testing.assert_allclose(doubled_quantile_huber_loss(None, z, y), [15 / 4])


@pytest.mark.parametrize("huber", [None, 1.0])
def test_with_one_quantile_it_is_the_distance_of_numbers(huber):
    value, y = 3 * draw(20), draw(20, seed=1)
    np.testing.assert_array_equal(
        doubled_quantile_huber_loss(huber, value[:, None], y[:, None]), doubled_huber_loss(huber, value, y)
    )


def test_its_minimum_is_at_the_quantiles():
    """Of the numbers 1 to 100, those at 1/8, 3/8, 5/8 and 7/8 are 13, 38, 63 and 88, if the line begins early."""
    y = jnp.arange(1.0, 101.0)[None]
    spec = Spec(quantiles=Quantiles(count=4), huber=0.01)
    slope = jax.jit(jax.grad(lambda z: doubled_td_loss(spec, z[None], y).sum()))
    z = jnp.full(4, 50.0)
    for i in range(2000):
        z = z - (300 / (1 + i / 100)) * slope(z)
    np.testing.assert_allclose(z, [13, 38, 63, 88], atol=0.7)


def test_the_smallest_by_hand_and_by_sorting():
    np.testing.assert_array_equal(smallest_quantiles(jnp.array([[3.0, 1.0, 2.0, 1.0]]), 3), [[1.0, 1.0, 2.0]])
    rows = np.round(draw(50, 12), 1)  # some are equal
    for kept in (1, 5, 12):
        np.testing.assert_array_equal(smallest_quantiles(rows, kept), np.sort(rows, axis=1)[:, :kept])
