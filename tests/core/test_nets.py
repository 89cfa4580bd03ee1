"""Layers: their gradients, which are written by hand, and mixed precision."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.agent import build
from mepg.core.nets import affine, make_network, matmul_bfloat16
from tests.conftest import SIZES, all_but_slow, draw, jit_quickly, make_batch


@pytest.mark.parametrize("outputs", [1, 5])
def test_gradients_of_a_layer_are_those_of_calculus(outputs):
    w, b, x, weight = draw(7, outputs), draw(outputs), draw(6, 7, seed=1), draw(6, outputs, seed=2)

    def plain(w, b, x):
        return (jnp.sin(x @ w + b) * weight).sum()

    def ours(w, b, x):
        return (jnp.sin(affine(jnp.matmul, w, b, x)) * weight).sum()

    for one, other in zip(jax.grad(ours, (0, 1, 2))(w, b, x), jax.grad(plain, (0, 1, 2))(w, b, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("leading", [(), (1,), (3,)])
def test_mixed_precision_rounds_the_inputs_and_adds_up_in_float32(leading):
    """Against products of rounded numbers in float64; alone, and along an axis of networks."""
    a, b = draw(*leading, 32, 300), draw(*leading, 300, 16, seed=1)
    rounded = [np.asarray(jnp.asarray(m).astype(jnp.bfloat16).astype(jnp.float32), np.float64) for m in (a, b)]
    product = matmul_bfloat16(a, b)
    assert product.dtype == jnp.float32
    np.testing.assert_allclose(product, rounded[0] @ rounded[1], atol=2e-5)
    assert np.abs(product - a @ b).max() > 1e-2, "without rounding it would be this close"


def test_mixed_precision_is_for_hidden_layers_in_both_passes():
    x = draw(8, 4)

    def text(precision):
        network = make_network((4, 32, 32, 2), "uniform", precision=precision)
        gradient = jax.grad(lambda layers: network.apply(layers, x).sum())
        return str(jax.make_jaxpr(gradient)(network.init(jax.random.key(0))))

    # Two hidden layers: forward two, to weights two, to inputs two, two numbers each; the output layer none. What goes
    # to the first layer's inputs is asked for by nobody, and dropped later.
    assert text("mixed").count("reduce_precision[") == 2 * (2 + 2 + 2)
    assert "reduce_precision" not in text("full")


@pytest.mark.parametrize(
    "name", all_but_slow(["me-ddpg", "me-sac", "redq", "sunrise", "ace-flat"], ["me-sac", "ace-flat"])
)
def test_an_update_in_mixed_precision_is_close_to_one_in_full(name):
    spec = replace(algorithms()[name].spec, hidden=(16, 16))
    states = {}
    for precision in ("full", "mixed"):
        agent = algorithms()[name].build(replace(spec, precision=precision), SIZES)
        state = jit_quickly(agent.init)(jax.random.key(0))
        states[precision], metrics = jit_quickly(agent.update)(state, make_batch(), jax.random.key(1))
        assert all(leaf.dtype != jnp.bfloat16 for leaf in jax.tree.leaves(states[precision]))
        assert all(np.isfinite(metric.value) for metric in metrics.values())
    full, mixed = (jax.tree.leaves(states[precision]) for precision in ("full", "mixed"))
    assert any(not np.array_equal(a, b) for a, b in zip(full, mixed, strict=True))
    # One step of Adam is at most the learning rate, wherever it goes.
    for a, b in zip(full, mixed, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), atol=2e-2)


def test_build_uses_the_precision():
    text = {}
    for precision in ("full", "mixed"):
        agent = build(replace(algorithms()["me-sac"].spec, hidden=(8, 8), precision=precision), SIZES)
        state = jax.eval_shape(agent.init, jax.random.key(0))
        text[precision] = str(jax.make_jaxpr(agent.update)(state, make_batch(), jax.random.key(0)))
    assert text["full"] != text["mixed"]
