"""What a policy and a temperature learn from, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.policies import make_policy
from mepg.core.spec import Spec
from mepg.core.types import Sizes
from mepg.core.update import policy_loss, temperature_loss

ONE = Sizes(obs=1, action=1)


def built(spec):
    return make_policy(spec, ONE), make_critics(spec, ONE)


def test_policy_gradient_by_hand():
    """Q(s, a) = 3a + 1 near a > 0 and pi = tanh(b): the gradient is -3 (1 - tanh(b)^2) (Eq. 5)."""
    spec = Spec(hidden=(1,))
    theta = (Layer(jnp.array([[[0.0], [1.0]]]), jnp.array([[1.0]])), Layer(jnp.array([[[3.0]]]), jnp.array([[-2.0]])))
    phi = (Layer(jnp.zeros((1, 1)), jnp.zeros(1)), Layer(jnp.zeros((1, 1)), jnp.array([0.5])))
    gradient = jax.grad(
        lambda f: policy_loss(*built(spec), f, theta, None, 0.0, jnp.ones((4, 1)), jax.random.key(0))[0]
    )(phi)
    assert gradient[1].b[0] == pytest.approx(-3 * (1 - np.tanh(0.5) ** 2), rel=1e-5)


@pytest.mark.parametrize(("improve_on", "expected"), [("first", -7.0), ("min", -4.0), ("mean", -5.5)])
def test_which_critics_the_policy_sees(improve_on, expected):
    spec = Spec(hidden=(1,), critics=2, improve_on=improve_on)
    theta = (Layer(jnp.zeros((2, 2, 1)), jnp.zeros((2, 1))), Layer(jnp.zeros((2, 1, 1)), jnp.array([[7.0], [4.0]])))
    phi = (Layer(jnp.zeros((1, 1)), jnp.zeros(1)), Layer(jnp.zeros((1, 1)), jnp.zeros(1)))
    loss, _ = policy_loss(*built(spec), phi, theta, None, 0.0, jnp.ones((3, 1)), jax.random.key(0))
    assert loss == expected


def test_temperature_loss_by_hand():
    """Eq. (8) with log pi = -2, H = -1: -0.5 * (-2 - 1) = 1.5; entropy above the target pulls alpha down."""
    assert temperature_loss(jnp.float32(0.5), jnp.array([-2.0, -2.0]), -1.0) == 1.5
    assert jax.grad(temperature_loss)(jnp.float32(0.5), jnp.array([-2.0]), -1.0) == 3.0
