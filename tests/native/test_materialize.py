"""Which values are stored, and which are computed again where they are used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.core.nets import matmul_bfloat16
from mepg.native.graph import AxisIndex
from mepg.native.materialize import Materialization

from .interpreter import lowered, run

A, B = (np.zeros(shape, np.float32) for shape in ((20, 40), (40, 30)))


def materialized(function, *examples, bfloat16=False, state=0):
    values = Materialization(lowered(function, *examples, state=state), bfloat16=bfloat16)
    return values, [node.op for node in values.live if values.is_materialized(node) and node.op != "input"]


def test_dead_code_is_left_out():
    values, _ = materialized(lambda x: (jnp.exp(x), x + 1)[1], A)
    assert "exp" not in [node.op for node in values.live]
    assert [node for node in values.graph.nodes if node in set(values.live)] == values.live


def test_a_chain_of_one_user_is_not_stored():
    assert materialized(lambda x, w: jnp.tanh(x @ w + 1) * 2, A, B)[1] == ["copy", "product", "mul"]


@pytest.mark.parametrize(
    ("function", "stored"),
    [
        (lambda x: (jnp.exp(x) + 1, jnp.exp(x) * 2), ["exp", "add", "mul"]),  # too costly to compute twice
        (lambda x: ((x + 1) * 3, (x + 1) * 2), ["mul", "mul"]),  # cheap
        (lambda x: jnp.exp(x[:1]) * x, ["exp", "mul"]),  # once for each row otherwise
        (lambda x: (x[:1] + 1).sum() + jnp.exp(x).sum(0), ["reduce", "reduce", "add"]),
    ],
)
def test_what_costs_too_much_is_stored(function, stored):
    assert materialized(function, A)[1] == stored


def test_what_another_block_uses_is_stored():
    _, ops = materialized(lambda i, x: lax.cond(i > 0, lambda y: y * 2, lambda y: y - 1, x + 1), np.int32(0), A)
    assert "add" in ops


def test_indices_are_stored():
    assert materialized(lambda x, i: x[i + 1] * 2, A, np.zeros(5, np.int32))[1] == ["select", "mul"]


def test_an_output_that_is_no_value_of_its_own_is_copied():
    values, ops = materialized(lambda x: (x, x.T, x + 1, x + 1, jnp.float32(3)), A)
    assert ops.count("copy") == 4  # an input, a view of one, the same output again, a constant
    assert ops.count("add") == 1
    assert len(set(values.graph.top.outputs)) == 5


def test_a_branch_may_return_a_value_from_outside():
    values, _ = materialized(lambda i, x: lax.cond(i > 0, lambda y: y, lambda y: y - 1, jnp.exp(x)), np.int32(0), A)
    (branch,) = (node for node in values.live if node.op == "branch")
    assert [block.outputs[0].op for block in branch.blocks] == ["sub", "exp"]


def operands(function, *examples, bfloat16=False, state=0):
    values, _ = materialized(function, *examples, bfloat16=bfloat16, state=state)
    (product,) = (node for node in values.live if node.op == "product")
    return [values.operand(product, side) for side in (0, 1)]


def test_a_product_reads_both_sides_as_they_are_stored():
    left, right = operands(lambda a, b: jnp.tanh(a) @ jnp.tanh(b), A, B)
    assert (left.packing, right.packing) == ("", "")
    assert (left.row.variable, left.column.variable) == ("r", "k")
    assert (right.row.variable, right.column.variable) == ("k", "c")
    assert (left.rows, left.columns, right.rows, right.columns) == (20, 40, 40, 30)


def test_transposes_are_read_or_packed_not_copied():
    left, right = operands(lambda a, b: jnp.tanh(a).T @ jnp.tanh(b).T, A.T[:, :20].copy(), B.T.copy())
    assert (left.transposed, left.packing) == (True, "")
    assert (right.transposed, right.packing) == (True, "panels_transposed")
    assert (right.node.op, right.rows, right.columns) == ("tanh", 30, 40)


def test_a_row_major_right_side_is_copied_into_panels():
    left, right = operands(lambda a, b: a @ b, A, B)
    assert (left.node.op, right.node.op) == ("input", "copy")
    left, right = operands(lambda s, a: a @ s[0], [B], A, state=1)
    assert right.node.op == "input"


def test_rounded_operands_are_packed_in_pairs():
    left, right = operands(lambda a, b: matmul_bfloat16(jnp.tanh(a), jnp.tanh(b)), A, B, bfloat16=True)
    assert (left.packing, right.packing) == ("pairs_in_rows", "pairs")
    assert (left.node.op, right.node.op) == ("tanh", "tanh")  # rounding is part of packing
    left, right = operands(lambda a, b: matmul_bfloat16(jnp.tanh(a), jnp.tanh(b)), A, B)
    assert (left.packing, right.packing) == ("", "")
    assert left.node.op == "round"


def test_a_slice_that_does_not_begin_at_a_panel_is_copied():
    left, right = operands(lambda a, b: jnp.tanh(a) @ jnp.tanh(b)[:, 3:20], A, B)
    assert right.node.op == "copy"
    left, right = operands(lambda a, b: jnp.tanh(a)[5:] @ jnp.tanh(b)[10:], A, np.zeros((50, 30), np.float32))
    assert (left.row, right.row) == (AxisIndex("r", 5), AxisIndex("k", 10))


def test_copies_change_no_value():
    """The graph after the pass computes what it computed before."""

    def function(a, b):
        rows = jnp.stack([a, a + 1])
        return jnp.einsum("lik,kn->lin", rows, b[:, 3:]), a.T, matmul_bfloat16(b.T, a.T)

    rng = np.random.default_rng(0)
    given = [rng.integers(-4, 4, size=shape).astype(np.float32) for shape in ((3, 5), (5, 7))]
    graph = lowered(function, *given)
    want = jax.tree.leaves(jax.jit(function)(*given))
    Materialization(graph, bfloat16=True)
    for expected, found in zip(want, run(graph, *given), strict=True):
        assert np.array_equal(expected, found)


def test_a_call_reads_the_whole_of_the_last_axes():
    """Of several keys one: it is read where it lies. A key out of a transposed array is copied."""
    keys = jax.random.split(jax.random.key(0), 3)
    assert materialized(lambda k: jax.random.bits(k[1], (4,)), keys)[1][:1] != ["copy"]
    data = np.zeros((2, 3), np.uint32)
    _, ops = materialized(lambda d: jax.random.bits(jax.random.wrap_key_data(d.T[1]), (4,)), data)
    assert ops[0] == "copy"
