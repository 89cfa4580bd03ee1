"""Functions and losses as users write them: each compiles, and computes what XLA's does."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.check import difference
from mepg.native.library import compile_function
from mepg.native.processor import KNOWN

from .conftest import HERE

pytestmark = pytest.mark.usefixtures("compiler")

RNG = np.random.default_rng(0)
ATOMS = np.linspace(-3, 3, 21).astype(np.float32)
TABLE = RNG.standard_normal((9, 5)).astype(np.float32)
WHOLE = RNG.integers(-9, 9, (4, 7)).astype(np.int32)


class Given(NamedTuple):
    """A batch of 14 with 35 features, a network, actions among 6."""

    x: Any
    w: Any
    v: Any
    q: Any
    action: Any
    reward: Any
    done: Any
    key: Any
    step: Any


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


GIVEN = Given(
    draw(14, 35), draw(35, 20) / 6, draw(20, 6) / 5, draw(14, 6), RNG.integers(0, 6, 14).astype(np.int32), draw(14),
    RNG.random(14) < 0.3, jax.random.key(3), np.int32(4),
)  # fmt: skip


def network(w, v, x):
    return jnp.tanh(x @ w) @ v


LOSSES = {}


def gradients(loss):
    """The loss and its gradient with respect to both layers."""
    LOSSES[loss.__name__] = lambda g: jax.value_and_grad(lambda w, v: loss(w, v, g), argnums=(0, 1))(g.w, g.v)


def gradient_of(function):
    """An array's function, and its gradient with respect to the batch."""
    return lambda g: jax.value_and_grad(
        lambda x: (function(x) * (1 + jnp.arange(35.0)[: function(x).shape[-1]])).sum()
    )(g.x)


# Losses


@gradients
def dqn(w, v, g):
    q = jnp.take_along_axis(network(w, v, g.x), g.action[:, None], axis=1)[:, 0]
    return jnp.square(q - g.reward).mean()


@gradients
def double_dqn(w, v, g):
    q, rows = network(w, v, g.x), jnp.arange(len(g.x))
    target = g.reward + 0.9 * jnp.where(g.done, 0.0, g.q[rows, jnp.argmax(lax.stop_gradient(q), axis=1)])
    return jnp.where(jnp.abs(q[rows, g.action] - target) < 1, 0.5 * (q[rows, g.action] - target) ** 2, 0.3).sum()


@gradients
def categorical_dqn(w, v, g):
    """C51: the target distribution is projected on a table of atoms."""
    atoms = jnp.asarray(ATOMS)
    p = jax.nn.softmax(g.x[:, :21])
    moved = jnp.clip(g.reward[:, None] + 0.9 * (1 - g.done[:, None]) * atoms, -3, 3)
    place = (moved + 3) / 0.3
    low, high = jnp.floor(place).astype(jnp.int32), jnp.ceil(place).astype(jnp.int32)

    def project(p, low, high, place):
        down = jnp.zeros(21).at[low].add(p * (high - place + (low == high)))
        return down.at[high].add(p * (place - low))

    target = jax.vmap(project)(p, low, high, place)
    logits = jnp.tanh(network(w, v, g.x)) @ jnp.ones((6, 21)) * atoms
    return -(target * jax.nn.log_softmax(logits)).sum(axis=1).mean()


@gradients
def quantiles_in_a_scan(w, v, g):
    q = network(w, v, g.x)

    def one(total, given):
        quantile, tau = given
        error = g.reward - quantile
        huber = jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5)
        return total + (jnp.abs(tau - (error < 0)) * huber).mean(), huber.max()

    total, largest = lax.scan(one, 0.0, (q.T, (jnp.arange(6) + 0.5) / 6))
    return total + 0.1 * largest.sum()


@gradients
def truncated_quantiles(w, v, g):
    kept = jnp.sort(network(w, v, g.x), axis=1)[:, :-2]
    return jnp.square(kept - g.reward[:, None]).mean()


@gradients
def gradient_penalty(w, v, g):
    slope = jax.grad(lambda x: network(w, v, x).sum())(g.x)
    return jnp.square(jnp.linalg.norm(slope, axis=1) - 1).mean()


@gradients
def spectral_norm(w, v, g):
    def power(_, pair):
        left, _ = pair
        right = w.T @ left
        right /= jnp.linalg.norm(right) + 1e-6
        left = w @ right
        return left / (jnp.linalg.norm(left) + 1e-6), right

    left, right = lax.stop_gradient(lax.fori_loop(0, 5, power, (jnp.ones(35), jnp.ones(20))))
    return jnp.square(network(w / (left @ w @ right), v, g.x)).mean()


@gradients
def ensemble(w, v, g):
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1, leaf * 0.5]), (w, v))
    q = jax.vmap(network, in_axes=(0, 0, None))(*several, g.x)
    return (q.min(axis=0) - q.std(axis=0)).mean()


@gradients
def contrastive(w, v, g):
    """InfoNCE: a batch against itself."""
    one = jnp.tanh(g.x @ w)
    two = jnp.tanh(jnp.roll(g.x, 1, axis=0) @ w)
    logits = jnp.einsum("if,jf->ij", one, two) / jnp.sqrt(20.0) + 0 * v.sum()
    return -jnp.diagonal(jax.nn.log_softmax(logits)).mean() + jax.nn.logsumexp(logits, axis=1).mean()


@gradients
def two_hot(w, v, g):
    """Symlog returns in two neighbouring bins of a table."""
    bins, y = jnp.asarray(ATOMS), jnp.sign(g.reward) * jnp.log1p(jnp.abs(g.reward))
    above = jnp.clip(jnp.searchsorted(bins, y), 1, 20)
    share = (bins[above] - y) / (bins[above] - bins[above - 1])
    target = share[:, None] * jax.nn.one_hot(above - 1, 21) + (1 - share)[:, None] * jax.nn.one_hot(above, 21)
    logits = jnp.pad(network(w, v, g.x), ((0, 0), (7, 8)))
    return -(target * jax.nn.log_softmax(logits)).sum(-1).mean()


@gradients
def policy_gradient(w, v, g):
    """Generalised advantages, backwards in time; the clipped ratio of PPO."""
    values = g.x[:, 0]

    def back(later, given):
        reward, value, following, alive = given
        delta = reward + 0.9 * alive * following - value
        later = delta + 0.8 * alive * later
        return later, later

    following = jnp.append(values[1:], 0.0)
    _, advantage = lax.scan(back, 0.0, (g.reward, values, following, 1.0 - g.done), reverse=True)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_p = jax.nn.log_softmax(network(w, v, g.x))
    ratio = jnp.exp(log_p[jnp.arange(14), g.action] + 1.5)
    entropy = -(jnp.exp(log_p) * log_p).sum(axis=1).mean()
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean() - 0.01 * entropy


@gradients
def sampled(w, v, g):
    """REINFORCE with an action that is drawn here, and a straight-through Gumbel softmax."""
    k_action, k_gumbel = jax.random.split(g.key)
    logits = network(w, v, g.x)
    log_p = jax.nn.log_softmax(logits)
    action = jax.random.categorical(k_action, logits)
    soft = jax.nn.softmax((logits + jax.random.gumbel(k_gumbel, logits.shape)) / 0.5)
    hard = soft + lax.stop_gradient(jax.nn.one_hot(soft.argmax(axis=1), 6) - soft)
    return -(jnp.take_along_axis(log_p, action[:, None], 1)[:, 0] * g.reward).mean() + (hard * g.q).sum()


@gradients
def attention(w, v, g):
    heads = jnp.tanh(g.x @ w).reshape(14, 4, 5)
    weights = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", heads, heads) / 2 + jnp.where(jnp.tri(14), 0, -jnp.inf))
    return jnp.square(jnp.einsum("hij,jhd->ihd", weights, heads).reshape(14, 20) @ v).mean()


@gradients
def through_a_scan(w, v, g):
    """A recurrent network: the gradient goes back through time."""

    def cell(hidden, x):
        hidden = jnp.tanh(hidden + x @ w)
        return hidden, hidden @ v

    hidden, outputs = lax.scan(cell, jnp.zeros(20), g.x)
    return jnp.square(outputs).mean() + hidden.sum()


@gradients
def convolved(w, v, g):
    """A convolution over time, with stride, and a pooling."""
    signal, kernel = g.x[:, None], w[:12].reshape(4, 1, -1)[:, :, :5]
    features = lax.conv_general_dilated(signal, kernel, (2,), "SAME")
    same = jax.vmap(lambda row: jnp.convolve(row, w[:3, 0], mode="same"))(g.x)
    pooled = lax.reduce_window(features, 0.0, lax.add, (1, 1, 3), (1, 1, 2), "VALID")
    largest = lax.reduce_window(g.x, -jnp.inf, lax.max, (1, 3), (1, 2), "VALID")
    return jnp.square(features).mean() + jnp.square(same).mean() + jnp.square(pooled).sum() + largest.sum() + v.sum()


@gradients
def image(w, v, g):
    """Two layers of convolutions over small images with channels last."""
    pictures, first, second = (
        g.x[:, :32].reshape(14, 4, 4, 2),
        w[:18].reshape(3, 3, 2, 20)[..., :5],
        v[:10].reshape(2, 2, 5, 3),
    )
    numbers = ("NHWC", "HWIO", "NHWC")
    hidden = jax.nn.relu(lax.conv_general_dilated(pictures, first, (1, 1), "SAME", dimension_numbers=numbers))
    return jnp.square(lax.conv_general_dilated(hidden, second, (2, 2), "VALID", dimension_numbers=numbers)).mean()


@gradients
def normalised(w, v, g):
    """Layer norm, batch norm, weight norm."""
    x = (g.x - g.x.mean(-1, keepdims=True)) * lax.rsqrt(g.x.var(-1, keepdims=True) + 1e-5)
    h = x @ (w / jnp.linalg.norm(w, axis=0))
    h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5)
    return jnp.square(jax.nn.silu(h) @ v).mean() + jax.nn.standardize(h).max()


# Everything else, in groups that become one library each

ACTIVATIONS = {
    name: gradient_of(getattr(jax.nn, name))
    for name in (
        "celu", "elu", "gelu", "hard_sigmoid", "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid",
        "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus",
        "sparse_plus", "squareplus", "standardize",
    ) if hasattr(jax.nn, name)
} | {
    "exact gelu": gradient_of(lambda x: jax.nn.gelu(x, approximate=False)),
    "logsumexp": gradient_of(lambda x: jax.nn.logsumexp(x, axis=0)),
}  # fmt: skip

ELEMENTS = {
    name: gradient_of(lambda x, name=name: getattr(jnp, name)(jnp.tanh(x) * 0.9))
    for name in (
        "arccos", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "cos", "cosh", "exp", "exp2", "expm1",
        "sin", "sinc", "sinh", "square", "tan", "tanh",
    )
} | {
    "arccosh": gradient_of(lambda x: jnp.arccosh(x**2 + 1.1)),
    "erf": gradient_of(jax.scipy.special.erf),
    "erfc": gradient_of(jax.scipy.special.erfc),
    "digamma": lambda g: jax.scipy.special.digamma(jnp.abs(g.x) + 0.5),
    "lgamma": gradient_of(lambda x: jax.scipy.special.gammaln(jnp.abs(x) + 0.5)),
    "log cdf": gradient_of(lambda x: jax.scipy.stats.norm.cdf(x)),
    "powers": gradient_of(lambda x: x**0 + x**2 - x**5 + x**7 / 9 + (1.5 + jnp.tanh(x)) ** -2 + jnp.abs(x) ** 1.5),
    "rounded": lambda g: [f(3 * g.x) for f in (jnp.round, jnp.rint, jnp.ceil, jnp.floor, jnp.trunc)],
    "angles": gradient_of(lambda x: jnp.arctan2(x, 1 + x**2) + jnp.hypot(x, x + 1)),
    "odd numbers": lambda g: [
        f(jnp.where(g.x > 1, jnp.inf, jnp.where(g.x < -1, jnp.nan, g.x)))
        for f in (jnp.isnan, jnp.isinf, jnp.isfinite, jnp.nan_to_num)
    ],
    # Above 0, so that a sum of these does not end near 0, where it would be mostly rounding.
    "clipped": gradient_of(lambda x: 2 + jnp.clip(x, -0.5, 0.7) + lax.clamp(-1.0, 2 * x, 1.0)),
    "divided": lambda g: (g.x % 0.7, g.x // 0.7, jnp.divmod(g.action - 3, 2), jnp.fmod(g.x, 0.7), g.action // 2),
    "whole": lambda g: (
        g.action * 3 - 4, -g.action, jnp.abs(g.action - 3), jnp.sign(g.action - 3), g.action**2, g.action << 2,
        (g.action - 3) >> 1, g.action & 3, g.action | 8, g.action ^ 5, ~g.action, jnp.maximum(g.action, 2),
        lax.population_count(g.action), lax.clz(g.action), g.action.astype(jnp.uint32) >> 1,
    ),
    "logical": lambda g: (
        g.done & (g.action > 2), g.done | (g.action > 2), g.done ^ (g.action > 2), ~g.done, g.done < (g.action > 2),
        g.done.sum(), g.done.any(), g.done.all(), g.done * 2.0, (g.x > 0).sum(axis=0), (g.x > 0).all(axis=1),
        jnp.logical_not(g.action), jnp.maximum(g.done, g.action > 2), (g.x > 2).any(), jnp.count_nonzero(g.x > 1),
    ),
}  # fmt: skip

LONG = np.tile(draw(66, 2, 6), (1, 1, 11))  # reductions along any axis, longer than what is written out

SHAPES = {
    "table": lambda g: (jnp.asarray(TABLE)[g.action], jnp.asarray(WHOLE).sum(), g.x[:, :5] @ jnp.asarray(TABLE).T),
    "table in a branch": lambda g: lax.cond(g.step > 2, lambda: jnp.asarray(TABLE) * 2, lambda: jnp.asarray(TABLE)),
    "same table": lambda g: jnp.asarray(np.full((3, 4), 7, np.float32)) + jnp.asarray(TABLE[:3, :4]),
    "take": lambda g: (jnp.take(g.x, g.action, axis=1), jnp.take(g.x, jnp.array([5, 1, 1]), axis=0)),
    "indexed": lambda g: (
        g.x[:, g.action], g.x[g.action[:, None], g.action], g.x[g.action, g.action], g.x[3], g.x[-1], g.x[:, -3:],
    ),
    "taken backwards": gradient_of(
        lambda x: jnp.take(x, jnp.array([3, 1, 3, 0]), axis=1) + x[jnp.array([1, 1]), :4].sum(0)
    ),
    "strides": gradient_of(lambda x: x[:, ::3] * 2 + x[::-1, 1:13]),
    "flipped": lambda g: (g.x[::-1], jnp.flip(g.x, 1), jnp.rot90(g.x), jnp.fliplr(g.x)),
    "rolled": lambda g: (jnp.roll(g.x, 3, axis=1), jnp.roll(g.x, g.step, axis=0), jnp.roll(g.x, 5)),
    "padded": lambda g: (
        jnp.pad(g.x, ((1, 2), (0, 3))), jnp.pad(g.x, 2, mode="edge"), jnp.pad(g.x, 2, mode="reflect"),
        lax.pad(g.x, 1.0, ((-1, 2, 1), (3, -2, 2))),
    ),
    "triangles": lambda g: (
        jnp.tril(g.q @ g.q.T), jnp.triu(g.q, 1), jnp.eye(5), jnp.diag(g.reward), jnp.trace(g.q @ g.q.T),
    ),
    "pieces": lambda g: (
        jnp.split(g.x, 5, axis=1), jnp.array_split(g.x, 3), jnp.unstack(g.x[:3]), jnp.hstack([g.x, g.q]),
        jnp.vstack([g.x, g.x]), jnp.column_stack([g.reward, g.reward]), jnp.concatenate([g.x[:, :0], g.q], axis=1),
    ),
    "repeated": lambda g: (jnp.repeat(g.q, 3, axis=0), jnp.tile(g.q, (2, 3)), jnp.broadcast_to(g.reward, (3, 14))),
    "moved": lambda g: (g.x.reshape(2, 7, 5, 7).transpose(2, 0, 3, 1), jnp.moveaxis(g.x, 0, 1), g.x.swapaxes(0, 1)),
    "grids": lambda g: (
        jnp.meshgrid(g.reward, jnp.arange(5.0)), jnp.linspace(0.0, g.reward.max(), 7), jnp.indices((3, 4)),
    ),
    "written": lambda g: (
        g.x.at[3].set(1.0), g.x.at[g.action].add(1.0), g.x.at[:, 2:5].multiply(2.0), g.x.at[0, g.step].max(9.0),
        g.x.at[g.action, g.action].min(-1.0), jnp.zeros(6).at[g.action].add(g.reward), g.action.at[2].set(7),
    ),
    "sliced": lambda g: (
        lax.dynamic_slice(g.x, (g.step, 2), (3, 9)), lax.dynamic_slice_in_dim(g.x, g.step + 9, 5),
        lax.dynamic_update_slice(g.x, g.q, (g.step, 31)), lax.dynamic_update_index_in_dim(g.x, g.x[0], g.step, 0),
    ),
    "sliced backwards": lambda g: jax.grad(lambda x: jnp.square(lax.dynamic_slice(x, (g.step, 2), (3, 9))).sum())(g.x),
    "sorted": lambda g: (
        jnp.sort(g.x), jnp.sort(g.x, axis=0), jnp.sort(g.action)[::-1], jnp.argsort(g.x, axis=1),
        jnp.argsort(-g.reward), lax.sort((g.action, g.reward, jnp.arange(14)), num_keys=2),
        jnp.argsort(jnp.argsort(g.reward)), jnp.sort(g.done),
        jnp.sort(g.x.reshape(2, 7, 35), axis=1), jnp.sort(jnp.where(g.x > 1, jnp.nan, jnp.round(g.x))),
    ),
    "sorted backwards": gradient_of(lambda x: jnp.sort(x, axis=1)),
    "middle": lambda g: (jnp.median(g.x, axis=1), jnp.quantile(g.x, 0.3, axis=0), jnp.percentile(g.reward, 75)),
    "top": lambda g: (lax.top_k(g.x, 4), lax.top_k(g.action, 3)),
    "best": lambda g: (
        jnp.argmax(g.x, axis=1), jnp.argmin(g.x, axis=0), jnp.argmax(g.x), jnp.argmax(jnp.asarray(LONG), axis=0),
        jnp.argmin(jnp.asarray(LONG) * g.step, axis=2), jnp.argmax(g.done), jnp.nanargmax(g.x),
    ),
    "reduced": lambda g: [
        f(1 + 1e-3 * jnp.asarray(LONG) * g.reward[0], axis=axis)
        for f in (jnp.sum, jnp.max, jnp.min, jnp.mean, jnp.prod) for axis in (0, 1, 2, (0, 1), (0, 2), None)
    ],
    "reduced whole": lambda g: [
        f((jnp.abs(jnp.asarray(LONG) * 9) * g.reward[0] ** 2).astype(jnp.int32).astype(kind) - 7, axis=axis)
        for f in (jnp.sum, jnp.max, jnp.min) for axis in (0, 2, None) for kind in (jnp.int32, jnp.uint32)
    ],
    "reduced otherwise": lambda g: (
        lax.reduce(g.x, 0.0, lambda a, b: a + b + 0.1 * a * b, (1,)), jnp.ptp(g.x),
        jnp.average(g.x, weights=g.reward**2, axis=0), jnp.cov(g.q.T), jnp.corrcoef(g.q.T), jnp.nanmean(g.x, axis=0),
        (g.x > 9).any(axis=0), (jnp.asarray(LONG) < 9).all(axis=0), (jnp.asarray(LONG) * g.step > 9).any(axis=(0, 2)),
    ),
    "over no axes": lambda g: ((g.x > 1).any(axis=()), g.x.sum(axis=()), jnp.unique(g.action, size=4)),
    "segments": lambda g: (
        jax.ops.segment_sum(g.x, g.action, 6), jax.ops.segment_max(g.reward, g.action, 6),
        jnp.bincount(g.action, length=6),
    ),
    "cumulative": lambda g: (
        jnp.cumsum(g.x, axis=1), jnp.cumsum(g.x, axis=0), jnp.cumprod(1 + 0.1 * g.x, axis=1), lax.cummax(g.x, axis=1),
        lax.cummin(g.x, axis=0, reverse=True), lax.cumlogsumexp(g.x, axis=1), jnp.cumsum(g.action), jnp.diff(g.x),
    ),
    "cumulative backwards": gradient_of(lambda x: jnp.cumsum(x, axis=1) * jnp.cumprod(1 + 0.1 * x, axis=1)),
    "products": lambda g: (
        jnp.einsum("bi,ij,bj->b", g.x, g.w @ g.w.T, g.x), jnp.einsum("bi,bj->bij", g.q, g.q),
        jnp.outer(g.reward, g.reward), jnp.inner(g.q, g.q), jnp.cross(g.q[:, :3], g.q[:, 3:]),
        jnp.einsum("ijk,lkj->il", g.x.reshape(14, 5, 7), g.x.reshape(14, 7, 5)), jnp.vdot(g.reward, g.reward),
        jnp.tensordot(g.x.reshape(14, 5, 7), g.x.reshape(14, 5, 7), axes=((1, 2), (1, 2))), jnp.kron(g.q[:2], g.q[:3]),
        g.action @ jnp.asarray(np.arange(28, dtype=np.int32).reshape(14, 2)),
    ),
    "choices": lambda g: (
        jnp.where(g.done[:, None], g.x, g.reward[:, None]),
        jnp.select([g.reward > 1, g.done], [g.reward, 2 * g.reward], -1.0),
        jnp.piecewise(g.x, [g.x < 0, g.x > 1], [lambda x: -x, 1.0, 0.5]),
        lax.select_n(g.action % 3, g.reward, g.reward * 2, g.reward * 3),
        jnp.choose(g.action % 2, [g.reward, -g.reward], mode="clip"), jnp.isin(g.action, jnp.array([1, 4])),
    ),
    "hot": lambda g: (jax.nn.one_hot(g.action, 6), g.q * jax.nn.one_hot(g.action, 6), jnp.eye(6)[g.action]),
    "interpolated": lambda g: (
        jnp.interp(g.reward, jnp.asarray(ATOMS), jnp.asarray(ATOMS) ** 2), jnp.searchsorted(jnp.sort(g.reward), g.x[0]),
    ),
}  # fmt: skip


@jax.custom_jvp
def softly(x):
    return jnp.log1p(jnp.exp(x))


softly.defjvp(lambda primals, tangents: (softly(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]))


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, cotangent: (cotangent,))


def newton(g):
    """Until it is near enough, for all rows at once and for each by itself."""

    def better(guess):
        return 0.5 * (guess + (1 + g.reward**2) / guess)

    def far(guess):
        return (jnp.abs(guess**2 - 1 - g.reward**2) > 1e-3).any()

    one = jax.vmap(lambda a: lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-3, lambda x: 0.5 * (x + a / x), a + 1.0))
    return lax.while_loop(far, better, jnp.ones(14)), one(1 + g.reward**2)


LOOPS = {
    "newton": newton,
    "cond": lambda g: (
        lax.cond(g.step > 3, lambda x: x * 2, lambda x: x - 1, g.x),
        lax.switch(g.step, [lambda: 1.0, lambda: 2.0, lambda: 3.0]),
        jax.grad(lambda x: lax.cond(g.step > 3, lambda x: jnp.sin(x).sum(), lambda x: x.sum(), x))(g.x),
    ),
    "loops": lambda g: (
        lax.fori_loop(0, 4, lambda i, x: x * 0.5 + i, g.x), lax.fori_loop(0, g.step, lambda i, x: x + g.x[i], g.x[0]),
        lax.map(lambda row: (row**2).sum(), g.x), lax.associative_scan(jnp.add, g.x, axis=0),
        lax.scan(lambda c, i: (c.at[i].add(1.0), c[i]), g.reward, jnp.arange(14)),
    ),
    "derivatives": lambda g: (
        jax.jvp(lambda x: network(g.w, g.v, x), (g.x,), (g.x * 0.1,)),
        jax.jacfwd(lambda x: network(g.w, g.v, x))(g.x[0]),
        jax.jacrev(lambda x: network(g.w, g.v, x))(g.x[0]), jax.hessian(lambda x: jnp.square(x @ g.v).sum())(g.w[0]),
        jax.grad(lambda x: softly(x).sum() + (straight_through(x) ** 2).sum())(g.x),
        jax.grad(lambda w: jax.checkpoint(lambda w: jnp.square(network(w, g.v, g.x)).sum())(w))(g.w),
        jax.jit(lambda x: jax.jit(jnp.tanh)(x) * 2)(g.x),
    ),
    "average": lambda g: jax.tree.map(
        lambda new, old: 0.995 * old + 0.005 * new, {"w": g.w, "v": [g.v]}, {"w": g.w * 2, "v": [g.v + 1]}
    ),
    "ring": lambda g: lax.scan(
        lambda ring, x: (lax.dynamic_update_index_in_dim(jnp.roll(ring, 1, 0), x, 0, 0), ring.sum()),
        jnp.zeros((4, 35)), g.x,
    ),
}  # fmt: skip

CHANCE = {
    name: lambda g, f=f: f(g.key, g)
    for name, f in {
        "categorical": lambda k, g: jax.random.categorical(k, g.q),
        "categorical of several": lambda k, g: jax.random.categorical(k, g.q, shape=(5, 14)),
        "gumbel": lambda k, g: jax.nn.softmax((g.q + jax.random.gumbel(k, (14, 6))) / 0.5),
        "bernoulli": lambda k, g: jax.random.bernoulli(k, 0.3, (14, 5)),
        "randint": lambda k, g: jax.random.randint(k, (14,), 0, 10),
        "uniform": lambda k, g: jax.random.uniform(k, (14, 3), minval=-1, maxval=2),
        "truncated": lambda k, g: jax.random.truncated_normal(k, -1, 2, (14, 3)),
        "permutation": lambda k, g: jax.random.permutation(k, g.x),
        "permutation of numbers": lambda k, g: jax.random.permutation(k, 40),
        "choice": lambda k, g: jax.random.choice(k, g.x, (5,)),
        "choice without another": lambda k, g: jax.random.choice(k, 14, (5,), replace=False),
        "choice by weight": lambda k, g: jax.random.choice(k, 6, (9,), p=jax.nn.softmax(g.q[0])),
        "laplace": lambda k, g: jax.random.laplace(k, (14,)),
        "exponential": lambda k, g: jax.random.exponential(k, (14,)),
        "logistic": lambda k, g: jax.random.logistic(k, (14,)),
        "cauchy": lambda k, g: jax.random.cauchy(k, (14,)),
        "rademacher": lambda k, g: jax.random.rademacher(k, (14,), dtype=jnp.float32),
        "many": lambda k, g: jax.vmap(lambda k, p: jax.random.categorical(k, p))(jax.random.split(k, 14), g.q),
        "gamma": lambda k, g: jax.random.gamma(k, 1 + g.reward**2),
        "dirichlet": lambda k, g: jax.random.dirichlet(k, jnp.ones(4)),
        "beta": lambda k, g: jax.random.beta(k, 2.0, 3.0, (5,)),
        "poisson": lambda k, g: jax.random.poisson(k, 3.0, (5,)),
        "seeded here": lambda k, g: (
            jax.random.normal(jax.random.key(7), (5,)) + jax.random.normal(jax.random.fold_in(k, g.step))
        ),
    }.items()
}
GROUPS = {
    "losses": LOSSES,
    "activations": ACTIVATIONS,
    "elements": ELEMENTS,
    "shapes": SHAPES,
    "loops": LOOPS,
    "chance": CHANCE,
}


def together(group):
    return lambda g: {name: f(g) for name, f in GROUPS[group].items()}


def wrong(group, **how):
    """Those that come out different from XLA's: how far, of their size."""
    compiled = compile_function(together(group), GIVEN, **how)
    wanted = jax.jit(together(group))(GIVEN)
    found = jax.tree.unflatten(jax.tree.structure(wanted), compiled(*jax.tree.leaves(GIVEN)))

    def apart(want, got):
        return difference(np.asarray(want), got) if (want.shape, want.dtype) == (got.shape, got.dtype) else np.inf

    offs = {name: max(jax.tree.leaves(jax.tree.map(apart, wanted[name], found[name]))) for name in wanted}
    return {name: off for name, off in offs.items() if not off <= 1e-5}


QUICK = ("losses", "elements", "shapes", "loops")


@pytest.mark.parametrize(
    "group", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in GROUPS]
)
def test_it_computes_what_xla_does(group):
    assert not wrong(group)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("instructions", HERE)
def test_so_it_does_on_every_processor_and_with_two_threads(group, instructions):
    assert not wrong(group, instructions=KNOWN[instructions], threads=2)
