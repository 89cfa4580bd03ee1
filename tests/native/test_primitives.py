"""The rule of each primitive, against JAX: the graph is computed by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.graph import Unsupported
from mepg.native.primitives import Primitives, array_type

from .interpreter import lowered
from .test_lowering import agree

X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
Y = np.array([[3, -1, 2, 2], [0, 5, -7, 1], [2, 2, 0, -3]], np.int32)
INDICES = np.array([2, 0, 1, 7], np.int32)  # the last is out of range

ELEMENTWISE = {
    "powers": lambda x, _: (x**2, x**3, x**7, (x + 3) ** -2, x**0),
    "select": lambda x, y: (jnp.where(x > 0, x, -x), lax.select_n(jnp.clip(y, 0, 2), x, 2 * x, 3 * x)),
    "clamp": lambda x, _: lax.clamp(-1.0, x, 1.5),
    "round": lambda x, _: jnp.round(x * 2),
    "finite": lambda x, _: jnp.isfinite(x / (x - x[0, 0])),
    "types": lambda x, y: (x.astype(jnp.int32), y.astype(jnp.float32), (y > 0).astype(jnp.float32), y != 0),
    "sigmoid": lambda x, _: jax.nn.sigmoid(x),
    "derivative of tanh": lambda x, _: jax.grad(lambda x: jnp.tanh(x).sum())(x),
    "iota": lambda x, _: x + lax.broadcasted_iota(jnp.float32, (3, 4), 0),
}
VIEWS = {
    "broadcast": lambda x, _: x[:, None] + x[None],
    "tile": lambda x, _: jnp.tile(x, (2, 3)),
    "reshape": lambda x, _: (x.reshape(4, 3), x.reshape(2, 6).T, x[:, None].squeeze(1)),
    "slices": lambda x, _: (x[1:, ::2], x[::-1, 3:0:-1]),
    "pad": lambda x, _: lax.pad(x, 9.0, ((1, -1, 2), (-1, 2, 0))),
    "split": lambda x, _: jnp.split(x, [1, 3], axis=1),
    "concatenate": lambda x, y: (jnp.concatenate([x, y.astype(jnp.float32), x[:, :0]], 1), jnp.stack([x, -x], 1)),
    "dynamic slice": lambda x, y: (lax.dynamic_slice(x, (y[0, 2], y[0, 1]), (2, 3)), x[y[1, 0]]),
    "dynamic update": lambda x, y: lax.dynamic_update_slice(x, x[:2, :2] * 5, (y[0, 0], 1)),
}
INDEXING = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "elements": lambda x, i: x[i[:3], i[1:]],
    "along": lambda x, i: jnp.take_along_axis(x, i[None, :], 0),
    "windows": lambda x, i: jax.vmap(lambda j: lax.dynamic_slice(x, (j, 1), (2, 2)))(i),
    "set": lambda x, i: x.at[i].set(7.0),
    "add twice": lambda x, i: x.at[jnp.concatenate([i, i]), 1].add(1.0),
    "max": lambda x, i: x.at[:, i].max(0.5),
    "batched": lambda x, i: jax.vmap(lambda row, j: row[j])(x, i[:3]),
}  # fmt: skip
MATMULS = {
    "matrices": lambda x, y: x @ y.T,
    "batched": lambda x, y: jnp.einsum("lik,lnk->lin", x.reshape(3, 2, 2), y.reshape(3, 2, 2)),
    "two leading axes": lambda x, y: jnp.einsum("abik,kn->abin", x.reshape(1, 3, 2, 2), y[:2]),
    "two summed axes": lambda x, y: jnp.einsum("ijk,ljk->il", x.reshape(3, 2, 2), y.reshape(3, 2, 2)),
    "vectors": lambda x, y: (x[0] @ y[0], x @ y[0], jnp.outer(x[0], y[1])),
}
SORTING = {
    "sort": lambda x, y: (jnp.sort(x, 0), jnp.sort(y, 1)),
    "argsort": lambda x, y: (jnp.argsort(y, 1), jnp.argsort(x[0])),
    "two keys": lambda x, y: lax.sort((y // 2, x), num_keys=2),
    "top": lambda x, y: (*lax.top_k(x, 2), *lax.top_k(y, 3)),
}


@pytest.mark.parametrize("group", [ELEMENTWISE, VIEWS, SORTING], ids=["elementwise", "views", "sorting"])
def test_rules(group):
    agree(lambda *arguments: [function(*arguments) for function in group.values()], X, Y)


def test_indexing():
    """Within the range: outside, JAX gives NaN and these are clipped."""
    agree(lambda *arguments: [f(*arguments) for f in INDEXING.values()], X, np.minimum(INDICES, 2))


def test_an_index_out_of_range_is_clipped_and_an_update_dropped():
    agree(lambda x, i: (x.at[i].get(mode="clip"), *(x.at[i].set(7.0, mode=m) for m in ("drop", "clip"))), X, INDICES)


def test_products():
    agree(lambda *arguments: [f(*arguments) for f in MATMULS.values()], X, X + 1)


def test_only_matrices_make_a_product():
    ops = {name: [node.op for node in lowered(f, X, X + 1).nodes] for name, f in MATMULS.items()}
    assert "product" not in ops["vectors"]
    assert all("product" in ops[name] for name in MATMULS if name != "vectors")
    assert "product" not in [node.op for node in lowered(lambda y: y @ y.T, Y).nodes]  # integers


def test_rounding_goes_below_a_transpose():
    """So that a product reads the rounded matrix as it lies."""
    output = lowered(lambda x: lax.reduce_precision(x.T, 8, 7), X).top.outputs[0]
    assert (output.op, output.arguments[0].op) == ("transpose", "round")
    with pytest.raises(Unsupported, match="other than bfloat16"):
        lowered(lambda x: lax.reduce_precision(x, 5, 10), X)


def test_types():
    assert array_type(jax.typeof(jax.random.key(0))) == ((2,), "u32")
    assert array_type(jax.typeof(np.zeros((2, 3), np.bool_))) == ((2, 3), "bool")
    with pytest.raises(Unsupported, match="float16"):
        array_type(jax.typeof(np.zeros(2, np.float16)))


def test_every_rule_is_named_after_a_primitive():
    """Two-word names have an underscore where the primitive may have a hyphen."""
    assert {"_dot_general", "_scatter_add", "_reduce_sum", "_argmax"} <= set(vars(Primitives))
