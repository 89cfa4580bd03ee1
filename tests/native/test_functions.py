"""Functions of arrays, compiled: what the generator knows, and what it says of what it does not know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.nets import matmul_bfloat16
from mepg.native.check import difference
from mepg.native.graph import Unsupported
from mepg.native.library import compile_function
from mepg.native.processor import KNOWN

from .conftest import HERE

pytestmark = pytest.mark.usefixtures("compiler")

RNG = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.0, -88.0, 1e30, -1e-30, 0.5], np.float32)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def agree(function, *arguments, tolerance=1e-6, instructions=None):
    compiled = compile_function(function, *arguments, instructions=instructions)
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    found = compiled(*jax.tree.leaves(arguments))
    assert [(w.shape, w.dtype) for w in wanted] == [(f.shape, f.dtype) for f in found]
    for place, (want, got) in enumerate(zip(wanted, found, strict=True)):
        assert difference(np.asarray(want), got) <= tolerance, place


def elements(x):
    return {
        "exp": jnp.exp(x), "log": jnp.log(x), "log1p": jnp.log1p(x), "tanh": jnp.tanh(x), "sqrt": jnp.sqrt(x),
        "rsqrt": jax.lax.rsqrt(x), "max": jnp.maximum(x, 0.25), "min": jnp.minimum(0.25, x), "abs": jnp.abs(x),
        "round": jax.lax.reduce_precision(x, 8, 7), "sign": jnp.sign(x), "floor": jnp.floor(x), "relu": jax.nn.relu(x),
        "logistic": jax.nn.sigmoid(x), "softplus": jax.nn.softplus(x), "power": x**3, "positive": x > 0,
        "equal": x == x, "divided": 1 / x, "erf_inv": jax.lax.erf_inv(x / 4),
    }  # fmt: skip


@pytest.mark.parametrize("instructions", HERE)
def test_functions_of_an_element(instructions):
    agree(elements, np.concatenate([SPECIAL, draw(90)]), instructions=KNOWN[instructions])


def shapes(x, y, i, key):
    """Views, reductions, indices, chance, a branch and a loop."""
    k_split, k_bits = jax.random.split(key)
    return {
        "transpose": x.T + y,
        "concatenate": jnp.concatenate([x, y.T, x[:, :5]], axis=1),
        "stack": jnp.stack([x, x + 1], 2),
        "rows": x.sum(1),
        "columns": x.max(0),
        "all": x.min(),
        "leading": jnp.stack([x, 2 * x]).sum(0),
        "least": x[:, :4].argmin(1),
        "most": x[:3].argmax(0),
        "tile": jnp.tile(x, (3, 2)),
        "nothing": x[:, :0].sum(1),
        "take": x[i],
        "along": jnp.take_along_axis(x, i[None], 0),
        "reshape": x.reshape(-1, 7),
        "slice": jax.lax.dynamic_index_in_dim(x, i[0], 0),
        "rem": i % 5,
        "shift": i.astype(jnp.uint32) >> 1,
        "normal": jax.random.normal(k_bits, (3, 11)),
        "uniform": jax.random.uniform(jax.random.fold_in(k_split, i[0]), (5,)),
        "order": jax.random.permutation(k_bits, 12),
        "branch": jax.lax.cond(i[0] > 2, lambda: x, lambda: y.T * 2),
        "loop": jax.lax.scan(lambda total, row: (total + row, total * row), x[0], x),
        "several": jax.vmap(jax.random.normal)(jax.random.split(k_split, 3)),
    }


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 100])
def test_what_is_across_rows(instructions, rows):
    """Sums and maxima of whole vectors of rows at once, and of the rest; each NaN stays in its own row."""
    x = draw(2, rows, 37)
    x[1, rows // 2, 36] = np.nan
    of_rows = compile_function(
        lambda x: (x.sum(2), x[0].prod(1), x.max(2), x[1].min(1)), x, instructions=KNOWN[instructions]
    )
    for found, wanted in zip(of_rows(x), (x.sum(2), x[0].prod(1), x.max(2), x[1].min(1)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # XLA's maximum may lose a NaN


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize("size", [16, 23, 50, 64])
def test_pieces_that_begin_in_the_middle_of_a_panel(instructions, size):
    """Vectors that end in the next panel, loaded and stored, of numbers and of truths."""

    def halves(x, y):
        x = x * 2
        split = x.reshape(9, 3, size)
        merged = jnp.where(y[:, :, None] > 0, split + 1, split).reshape(9, -1)
        return split.sum(1), merged, (x > 0)[:, size : 2 * size], (merged > 0).reshape(9, 3, size)

    agree(halves, draw(9, 3 * size), draw(9, 3), instructions=KNOWN[instructions])


def test_threads_find_the_same_sums_across_rows():
    x = draw(2, 297, 70)
    one, two = (compile_function(lambda x: (x.sum(2), x[0].sum(1)), x, threads=threads)(x) for threads in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_shapes():
    i = RNG.integers(0, 14, 35).astype(np.int32)
    agree(shapes, draw(14, 35), draw(35, 14), i, jax.random.key(3))


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(7, 33, 17), (10, 20, 3)])
def test_products(rows, depth, columns, instructions):
    def products(a, b, across, down):
        a, b, across, down = (jnp.tanh(x) for x in (a, b, across, down))  # so that they lie in panels
        sides = [(a, b), (across.T, b), (a, down.T), (across.T, down.T)]
        full, mixed = ([multiply(*side) for side in sides] for multiply in (jnp.matmul, matmul_bfloat16))
        return full, mixed, (a @ down.T)[:, 1:], jnp.einsum("lik,lkn->lin", jnp.stack([a, -a]), jnp.stack([b, b + 1]))

    given = draw(rows, depth), draw(depth, columns), draw(depth, rows), draw(columns, depth)
    agree(products, *given, tolerance=1e-5, instructions=KNOWN[instructions])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)), "eigh"),
        (lambda x: jnp.linalg.cholesky(jnp.eye(10) + jnp.outer(x, x)), "cholesky"),
        (lambda x: jnp.abs(jnp.fft.rfft(x)), "complex64"),
        (lambda x: x.astype(jnp.bfloat16) * 2, "bfloat16"),
        (lambda x: x.astype(jnp.float16), "float16"),
        (lambda x: x.astype(jnp.int8), "int8"),
        (lambda x: x.astype(jnp.uint16), "uint16"),
        (lambda x: jnp.linalg.svd(jnp.outer(x, x))[1], "svd"),
        (lambda x: jnp.linalg.solve(jnp.outer(x, x), x), "lu"),
        (  # max pooling
            jax.grad(lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,), (2,), "VALID").sum()),
            "select_and_scatter_add",
        ),
        (lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.linalg.qr(jnp.outer(x, x))[0], lambda: jnp.eye(10)), "qr"),
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: [x + 1, jax.debug.print("{}", x)], "debug"),
        (lambda x: x[:0], "without any numbers"),
    ],
)
def test_what_is_not_known_is_named(function, name):
    with pytest.raises(Unsupported, match=name):
        compile_function(function, draw(10))
