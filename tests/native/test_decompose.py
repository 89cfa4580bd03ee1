"""JAX's own lowering of one equation, read back as a jaxpr of old primitives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from mepg.native.decompose import decompose, input_variables
from mepg.native.graph import Unsupported

X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
EQUATIONS = {
    "cumsum": lambda x: lax.cumsum(x, axis=1),
    "cummax": lambda x: lax.cummax(x, axis=0, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=1),
    "erf_inv": lambda x: lax.erf_inv(x / 4),
    "digamma": lambda x: lax.digamma(x + 3),
    "logistic": jax.nn.sigmoid,
    "sort": lambda x: lax.sort((x.astype(jnp.int32), x), num_keys=2, dimension=0),
    "windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), ((0, 1), (1, 0))),
    "convolution": lambda x: lax.conv_general_dilated(
        x[None, None], x[None, None, :2, :2], (1, 1), "SAME", rhs_dilation=(1, 2)
    ),
    "scan": lambda x: lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), x[0], x),
    "while": lambda x: lax.while_loop(lambda x: (x < 50).all(), lambda x: x * x + 2, x),
    "cond": lambda x: lax.cond(x[0, 0] < 0, lambda x: x + 1, lambda x: x - 1, x),
    "gather": lambda x: x[jnp.array([2, 0]), jnp.array([1, 3])],
    "scatter-add": lambda x: x.at[jnp.array([2, 0])].add(1.0),
    "dot_general": lambda x: x @ x.T,
    "reduce": lambda x: lax.reduce(x, 1.0, lambda a, b: a + b + a * b, (1,)),
    "pad": lambda x: lax.pad(x, 1.0, ((1, 2, 1), (-1, 0, 0))),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_it_computes_the_same(name):
    """Each equation of a function, one after the other, computed by its decomposition."""

    def decomposed(x):
        closed = jax.make_jaxpr(EQUATIONS[name])(x)
        values = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, x], strict=True))
        for equation in closed.jaxpr.eqns:
            inputs = [values[variable] for variable in input_variables(equation)]
            values.update(zip(equation.outvars, core.jaxpr_as_fun(decompose(equation))(*inputs), strict=True))
        return [values[variable] for variable in closed.jaxpr.outvars]

    both = jax.jit(lambda x: (decomposed(x), jax.tree.leaves(EQUATIONS[name](x))))(X)
    for got, want in zip(*both, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_each_variable_is_an_input_once():
    (equation,) = jax.make_jaxpr(lambda x: lax.add(x, x))(X).eqns
    assert len(equation.invars) == 2
    assert len(input_variables(equation)) == 1
    assert len(decompose(equation).jaxpr.invars) == 1


def test_a_random_key_is_two_words():
    (equation,) = jax.make_jaxpr(lambda key: jax.random.key_data(key))(jax.random.key(0)).eqns
    assert decompose(equation).in_avals[0].shape == (2,)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (jnp.linalg.cholesky, "cholesky|custom_call"),
        (lambda x: jnp.fft.fft(x), "complex|fft"),
        (lambda x: x.astype(jnp.bfloat16), "bf16"),
    ],
)
def test_an_operation_without_a_rule_is_named(function, name):
    closed = jax.make_jaxpr(function)(jnp.eye(3))
    with pytest.raises(Unsupported, match=name):
        for equation in closed.eqns:
            decompose(equation)
