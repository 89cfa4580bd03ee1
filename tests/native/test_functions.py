"""Functions of arrays, compiled: what the generator knows, and what it says of what it does not know."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core.nets import multiply_rounded
from mepg.native.check import Disagrees, compare, difference
from mepg.native.graph import Unsupported
from mepg.native.library import RowSelection, State, compile_function
from mepg.native.processor import KNOWN

from .conftest import HERE

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


def test_shapes():
    i = RNG.integers(0, 14, 35).astype(np.int32)
    agree(shapes, draw(14, 35), draw(35, 14), i, jax.random.key(3))


def test_all_threads_read_which_branch_it_is_before_one_goes_on():
    """Once it has been read, its memory may be another's."""

    def function(x, i):
        return jax.lax.cond(i * 2 > 2, lambda: x * 2, lambda: jnp.tanh(x) @ x)

    text = compile_function(function, draw(40, 40), np.int32(1), threads=2).text
    branches = re.split(r"case \d+: \{|default: \{", text[text.index("switch") :])[1:]
    first = [next(line for line in branch.split("\n") if line.strip() and "taken" not in line) for branch in branches]
    assert [line.strip() for line in first] == ["team.meet();"] * 2


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(7, 33, 17), (10, 20, 3)])
def test_products(rows, depth, columns, instructions):
    def products(a, b, across, down):
        a, b, across, down = (jnp.tanh(x) for x in (a, b, across, down))  # so that they lie in panels
        sides = [(a, b), (across.T, b), (a, down.T), (across.T, down.T)]
        full, mixed = ([multiply(*side) for side in sides] for multiply in (jnp.matmul, multiply_rounded))
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
        (lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.linalg.qr(jnp.outer(x, x))[0], lambda: jnp.eye(10)), "qr"),
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: [x + 1, jax.debug.print("{}", x)], "debug"),
        (lambda x: x[:0], "without any numbers"),
    ],
)
def test_what_is_not_known_is_named(function, name):
    with pytest.raises(Unsupported, match=name):
        compile_function(function, draw(10))


def test_a_state_is_read_by_one_function_and_written_by_another():
    leaves = [draw(40, 33), draw(7), np.int32(3), np.array([True, False])]

    def write(state, x):
        a, b, count, flags = state
        return [a + x, b @ jnp.ones((7, 7)) + a[0, 0], count + 1, ~flags], a.sum()

    writes = compile_function(write, leaves, np.float32(0), state="written")
    reads = compile_function(lambda state: state[0][:, 0] * state[2], leaves, state="read")
    state = State.of(leaves)
    new, total = write(leaves, np.float32(2))
    assert difference(np.asarray(total), writes(state, np.float32(2))[0]) < 1e-5
    assert all(difference(np.asarray(want), got) < 1e-6 for want, got in zip(new, state.get(), strict=True))
    assert difference(np.asarray(new[0][:, 0] * new[2]), reads(state)[0]) < 1e-6
    with pytest.raises(TypeError):
        writes(State.of(leaves[:2]), np.float32(2))


def test_old_and_new_values_change_places():
    """Each new value is another old one: written in place, one of them would be lost."""
    leaves = [draw(20, 20), draw(20, 20), draw(20, 20)]

    def turn(state, on):
        a, b, c = state
        return jax.lax.cond(on, lambda: [b, c, a], lambda: [a + c, b, c @ a]), a.sum()

    compare(
        compile_function(turn, leaves, np.bool_(True), state="written"), turn, leaves,
        lambda call: (np.bool_(call % 2),), tolerance=1e-5,
    )  # fmt: skip


def test_the_check_finds_a_wrong_library():
    leaves = [draw(5)]
    compiled = compile_function(lambda state, x: ([state[0] + x], x), leaves, np.float32(1), state="written")
    with pytest.raises(Disagrees, match="call 1, array 0"):
        compare(
            compiled, lambda state, x: ([state[0] + 1.001 * x], x), leaves, lambda _: (np.float32(1),), tolerance=1e-5
        )


def test_the_check_wants_every_branch():
    def step(state, on):
        return [jax.lax.cond(on, lambda: state[0] + 1, lambda: state[0])], on

    leaves = [draw(5)]
    compiled = compile_function(step, leaves, np.bool_(True), state="written")
    with pytest.raises(Disagrees, match="never taken"):
        compare(compiled, step, leaves, lambda _: (np.bool_(True),), tolerance=1e-5)


def test_rows_that_are_picked_from_more():
    """As a batch is from the replay memory."""
    rng = np.random.default_rng(0)
    rows, numbers = rng.standard_normal((50, 3)).astype(np.float32), np.array([49, 0, 7, 7], np.int64)
    double = compile_function(lambda x, y: (2 * x, y + 1), rows[numbers], np.float32(1))
    found, _ = double(RowSelection(rows, numbers), np.float32(1))
    assert np.array_equal(found, 2 * rows[numbers])
    with pytest.raises(TypeError, match="do not have the shapes"):
        double(RowSelection(rows, numbers[:3]), np.float32(1))
    with pytest.raises(TypeError, match="do not have the shapes"):
        double(RowSelection(rows[:, :2].copy(), numbers), np.float32(1))
