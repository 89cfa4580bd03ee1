"""The defining test, the closed forms, and numbers worked out by hand."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core import bellman, policies
from mepg.core.agent import build
from mepg.core.bellman import critic_gradient
from mepg.core.critics import make_critics
from mepg.core.nets import Layer, LayerNorm, make_network, normalise_rows
from mepg.core.spec import Dropout, Gaussian, Noise, Spec, Temperature
from mepg.core.types import Batch
from tests.conftest import SIZES, draw, jit_quickly, make_batch

KEY = jax.random.key(0)


def networks(spec, seed=0):
    state = jit_quickly(build(spec, SIZES).init)(jax.random.key(seed))
    return state.critic.params, state.actor.params


def critic_loss(theta, theta_target, pi, alpha, batch, key, spec):
    _, metrics = critic_gradient(make_critics(spec, SIZES), spec, theta, theta_target, pi, alpha, batch, key)
    return metrics["critic_loss"], metrics


def pi(spec, phi):
    return partial(policies.make_policy(spec, SIZES).sample, phi)


def still(phi, spec, batch):
    """A batch in which nothing moves: s' = s, a = pi(s), r = 0, and no end."""
    action = policies.make_policy(spec, SIZES).mode(phi, batch.obs)
    return Batch(batch.obs, action, jnp.zeros(len(action)), jnp.ones(len(action)), batch.obs, batch.number)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9, 0.95])
@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("rows", ["sample", "batch"])
def test_defining(p, layers, rows, batch):
    """theta = theta', s = s', a = a', r = 0, gamma = 1: the two sides are one sub-network, so nothing is left."""
    spec = Spec(discount=1, hidden=(64, 64), dropout=Dropout(p=p, layers=layers, rows=rows))
    theta, phi = networks(spec)
    loss, _ = critic_loss(theta, theta, pi(spec, phi), 0.0, still(phi, spec, batch), jax.random.key(1), spec)
    assert loss == 0
    for masks in ("independent", "online"):
        other = replace(spec, dropout=Dropout(p=p, layers=layers, rows=rows, masks=masks))
        loss, _ = critic_loss(theta, theta, pi(spec, phi), 0.0, still(phi, other, batch), jax.random.key(1), other)
        assert loss > 0


def contributions(theta, obs, action):
    """c_j = w_j x_j: what unit j of the last hidden layer adds to Q. [B, H]"""
    layers = jax.tree.map(lambda leaf: leaf[0], theta)
    x = jnp.concatenate([obs, action], axis=-1)
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer.w + layer.b)
    return x * layers[-1].w[:, 0]


@pytest.mark.parametrize("masks", ["consistent", "independent", "online"])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_expected_loss_is_the_closed_form(masks, p):
    """The masks' expected loss: delta^2 plus what their noise adds, with lambda = p / (1 - p)."""
    spec = Spec(hidden=(16, 32), discount=0.9, dropout=Dropout(p=p, masks=masks))
    batch = make_batch(8)
    theta, phi = networks(spec)
    theta_target, _ = networks(spec, seed=1)
    keys = jax.random.split(jax.random.key(2), 20_000)
    losses = np.asarray(
        jax.jit(jax.vmap(lambda k: critic_loss(theta, theta_target, pi(spec, phi), 0.0, batch, k, spec)[0]))(keys)
    )

    next_action = policies.make_policy(spec, SIZES).mode(phi, batch.next_obs)
    c = contributions(theta, batch.obs, batch.action)
    d = (spec.discount * batch.discount)[:, None] * contributions(theta_target, batch.next_obs, next_action)
    critics = make_critics(spec, SIZES)
    y = batch.reward + spec.discount * batch.discount * critics.q(theta_target, batch.next_obs, next_action)[0]
    delta = y - critics.q(theta, batch.obs, batch.action)[0]
    noise = {"consistent": (c - d) ** 2, "independent": c**2 + d**2, "online": c**2}[masks].sum(axis=1)
    expected = float(0.5 * (delta**2 + p / (1 - p) * noise).mean())
    error = losses.std() / np.sqrt(len(losses))
    assert losses.mean() == pytest.approx(expected, abs=4 * error + 1e-5)
    assert 0.5 * (delta**2).mean() < losses.mean() - 5 * error, "the masks must matter for this to be a test"


def test_average_over_masks_is_the_complete_network():
    """Q is linear in the masked layer, so E_m[Q_m] = Q: here over all 2^n masks, not a sample."""
    spec = Spec(hidden=(8, 6))
    theta, _ = networks(spec)
    layers = jax.tree.map(lambda leaf: leaf[0], theta)
    network = make_network((SIZES.obs + SIZES.action, 8, 6, 1), "uniform")
    x = jax.random.normal(jax.random.key(0), (4, SIZES.obs + SIZES.action))
    p = 0.3
    total = 0.0
    for bits in np.ndindex(*(2,) * 6):
        m = np.array(bits, np.float32) / (1 - p)
        total += np.prod(np.where(bits, 1 - p, p)) * network.apply_masked(layers, x, (None, m))[0]
    np.testing.assert_allclose(total, network.apply(layers, x), rtol=1e-5)


def hand_made():
    """One hidden layer of two units, integer weights; the policy says 0 whatever it sees."""
    spec = Spec(hidden=(2,), discount=0.5, dropout=Dropout(p=0.5))
    theta = (
        Layer(w=jnp.array([[[1.0, 2.0], [3.0, -1.0]]]), b=jnp.array([[0.0, 1.0]])),
        Layer(w=jnp.array([[[2.0], [1.0]]]), b=jnp.array([[1.0]])),
    )
    theta_target = (
        Layer(w=jnp.array([[[1.0, 0.0], [0.0, 1.0]]]), b=jnp.array([[0.0, 3.0]])),
        Layer(w=jnp.array([[[1.0], [1.0]]]), b=jnp.array([[-1.0]])),
    )
    phi = (Layer(jnp.zeros((1, 2)), jnp.zeros(2)), Layer(jnp.zeros((2, 1)), jnp.zeros(1)))
    batch = Batch(*(jnp.array(x, jnp.float32) for x in ([[1]], [[1]], [1], [1], [[2]], [0])))
    return spec, theta, theta_target, phi, batch


def test_by_hand(monkeypatch):
    """Hidden units at (s, a) = (1, 1): 4 and 2. With m = (2, 0): Q_m = 2*2*4 + 1 = 17.
    At (s', a') = (2, 0): 2 and 3, so Q'_m = 2*2 - 1 = 3 and y = 1 + 0.5*3 = 2.5.
    Loss (17 - 2.5)^2 / 2 = 105.125; the error 14.5 goes back through the first unit only.
    """
    spec, theta, theta_target, phi, batch = hand_made()
    mask = (jnp.array([[[2.0, 0.0]]]),)
    monkeypatch.setattr(bellman, "draw_masks", lambda *_: (mask, mask))
    critics = make_critics(spec, SIZES)
    gradient, metrics = critic_gradient(critics, spec, theta, theta_target, pi(spec, phi), 0.0, batch, KEY)
    assert metrics["critic_loss"] == 105.125
    assert metrics["q"] == 17
    first, second = gradient
    np.testing.assert_array_equal(second.w[0], [[116.0], [0.0]])  # 14.5 * 2 * 4
    np.testing.assert_array_equal(second.b[0], [14.5])
    np.testing.assert_array_equal(first.w[0], [[58.0, 0.0], [58.0, 0.0]])  # 14.5 * w 2 * m 2 * input 1
    np.testing.assert_array_equal(first.b[0], [58.0, 0.0])


def test_by_hand_without_a_mask_with_an_end():
    """Q = 2*4 + 2 + 1 = 11; the end leaves y = r = 1: loss 50."""
    spec, theta, theta_target, phi, batch = hand_made()
    batch = batch._replace(discount=jnp.zeros(1))
    loss, _ = critic_loss(
        theta, theta_target, pi(spec, phi), 0.0, batch, jax.random.key(0), replace(spec, dropout=None)
    )
    assert loss == 50


def test_minimum_of_two_targets_and_a_loss_for_each_critic():
    """Two critics with 2 and 5 at s' (weights 1 and 0, biases -1 and 4): the minimum 1 counts, for both."""
    spec, theta, theta_target, phi, batch = hand_made()
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), theta_target)
    twice = (twice[0], Layer(w=twice[1].w, b=jnp.array([[-1.0], [4.0]])))
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), theta)
    spec = replace(spec, dropout=None, critics=2)
    loss, _ = critic_loss(both, twice, pi(spec, phi), 0.0, batch, jax.random.key(0), spec)
    y = 1 + 0.5 * (2 + 3 - 1)
    assert loss == 2 * 0.5 * (11 - y) ** 2


def test_subset_minimum_by_hand():
    """Target critics worth 0, 1, 2 and 3 wherever they are asked: the minimum of a random two is 0 in half of
    the draws, 1 in a third and 2 in a sixth, the same for the whole batch.
    """
    spec = Spec(critics=4, subset=2, hidden=(2,), discount=1.0)
    batch = make_batch(8)._replace(reward=jnp.zeros(8), discount=jnp.ones(8))
    zero, phi = networks(spec)
    zero = jax.tree.map(jnp.zeros_like, zero)
    target = (zero[0], zero[1]._replace(b=jnp.array([[0.0], [1.0], [2.0], [3.0]])))
    loss = jax.jit(jax.vmap(lambda k: critic_loss(zero, target, pi(spec, phi), 0.0, batch, k, spec)[0]))
    minimum = np.sqrt(loss(jax.random.split(jax.random.key(0), 6000)) / 2)  # each of 4 critics loses y^2 / 2
    values, counts = np.unique(np.round(minimum, 4), return_counts=True)
    np.testing.assert_array_equal(values, [0, 1, 2])
    np.testing.assert_allclose(counts / 6000, [1 / 2, 1 / 3, 1 / 6], atol=0.03)


def test_a_chosen_critic_keeps_its_own_mask(monkeypatch):
    """One critic of two is asked, with hidden units (1, 1) and output weights (1, 10): its mask tells which."""
    spec = Spec(critics=2, subset=1, hidden=(2,), discount=1.0, dropout=Dropout(p=0.5))
    theta = (
        Layer(jnp.zeros((2, 5, 2)), jnp.ones((2, 2))),
        Layer(jnp.array([[[1.0], [0.0]], [[0.0], [10.0]]]), jnp.zeros((2, 1))),
    )
    batch = make_batch(4)._replace(reward=jnp.zeros(4), discount=jnp.ones(4))
    _, phi = networks(spec)
    mask = (jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]]),)  # the other critic's mask would make either worth 0
    monkeypatch.setattr(bellman, "draw_masks", lambda *_: (mask, mask))
    zero = jax.tree.map(jnp.zeros_like, theta)
    losses = {float(critic_loss(zero, theta, pi(spec, phi), 0.0, batch, k, spec)[0]) for k in jax.random.split(KEY, 20)}
    assert losses == {1.0, 100.0}  # two critics, each y^2 / 2 with y = 1 or 10


def test_layer_normalisation_has_the_derivative_of_its_formula():
    def formula(z, scale, shift):
        return (z - z.mean(axis=-1, keepdims=True)) / jnp.sqrt(z.var(axis=-1, keepdims=True) + 1e-5) * scale + shift

    arguments = 2 + 3 * draw(6, 11), 1 + draw(11, seed=1), draw(11, seed=2)
    weight = draw(6, 11, seed=3)

    def value_and_gradient(function):
        return jax.value_and_grad(lambda *a: (weight * function(*a)).sum(), argnums=(0, 1, 2))(*arguments)

    for found, wanted in zip(*map(jax.tree.leaves, map(value_and_gradient, (normalise_rows, formula))), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_layer_normalisation_by_hand():
    """z = (1, 3) becomes (-1, 1); scaled by 2 and shifted by 1: (-1, 3); ReLU and weights 1 leave 3."""
    layers = (
        Layer(jnp.array([[1.0, 3.0]]), jnp.zeros(2), LayerNorm(jnp.full(2, 2.0), jnp.ones(2))),
        Layer(jnp.ones((2, 1)), jnp.zeros(1)),
    )
    after, before = (make_network((1, 2, 1), "uniform", mask_place=place) for place in ("after", "before"))
    x, m = jnp.ones((1, 1)), (jnp.array([0.0, 2.0]),)
    assert after.apply(layers, x)[0, 0] == pytest.approx(3, abs=1e-4)
    assert after.apply_masked(layers, x, m)[0][0, 0] == pytest.approx(6, abs=1e-4)
    assert before.apply_masked(layers, x, m)[0][0, 0] == pytest.approx(3, abs=1e-4)  # (0, 6) -> (-1, 1)


def test_entropy_term_is_inside_the_discount(batch):
    """Eq. (7), D5: y changes by -gamma * alive * alpha * log pi."""
    spec = Spec(gaussian=Gaussian(), temperature=Temperature(), hidden=(8,), discount=0.7)
    theta, phi = networks(spec)
    key = jax.random.key(3)
    _, k_action, _ = jax.random.split(key, 3)
    _, log_prob = policies.make_policy(spec, SIZES).sample(phi, batch.next_obs, k_action)
    q = make_critics(spec, SIZES).q(theta, batch.obs, batch.action)[0]

    def y(alpha):  # the loss is a square with its minimum where Q = y; two shifts of r find it
        def loss(shift):
            return critic_loss(
                theta, theta, pi(spec, phi), alpha, batch._replace(reward=batch.reward + shift), key, spec
            )[0]

        return jax.jacobian(loss)(jnp.zeros(len(q))) * len(q) + q

    np.testing.assert_allclose(y(0.5) - y(0.0), -0.7 * batch.discount * 0.5 * log_prob, rtol=1e-4, atol=1e-5)


def test_smoothing_moves_the_next_action_within_its_clip(batch):
    spec = Spec(hidden=(8,), smoothing=Noise(std=5.0, clip=0.25))
    theta, phi = networks(spec)
    seen, critics = [], make_critics(spec, SIZES)
    asked = critics._replace(values=lambda *args: (seen.append(args[2]), critics.values(*args))[1])
    critic_gradient(asked, spec, theta, theta, pi(spec, phi), 0.0, batch, KEY)
    moved = np.abs(seen[0] - policies.make_policy(spec, SIZES).mode(phi, batch.next_obs))
    assert moved.max() == pytest.approx(0.25, abs=1e-6)
    assert np.abs(seen[0]).max() <= 1
