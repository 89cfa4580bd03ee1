"""Calls, branches, loops and random bits become nodes and blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.graph import Unsupported
from mepg.native.lowering import evaluate as evaluate_jaxpr
from mepg.native.lowering import lower

from .interpreter import evaluate, lowered

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def ops(graph):
    return [node.op for node in graph.nodes if node.op not in ("constant", "input")]


def agree(function, *arguments):
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    for want, got in zip(expected, evaluate(function, *arguments), strict=True):
        np.testing.assert_allclose(np.asarray(want), got, rtol=1e-6, atol=1e-6)


def test_each_equation_becomes_a_node():
    graph = lowered(lambda x, w: jnp.maximum(x @ w, 0).sum(), X, X.T)
    assert ops(graph) == ["product", "max", "reduce"]
    assert [node.shape for node in graph.inputs] == [(3, 4), (4, 3)]
    assert graph.top.outputs[0].shape == ()


def test_the_state_is_in_panels_and_other_inputs_are_row_major():
    graph = lowered(lambda state, x: state[0] + x, [X], X, state=1)
    assert [node.params["row_major"] for node in graph.inputs] == [False, True]


def test_calls_are_inlined():
    cubed = jax.custom_jvp(lambda x: x * x * x)
    cubed.defjvp(lambda x, dx: (cubed(*x), 3 * x[0] ** 2 * dx[0]))

    graph = lowered(lambda x: jax.jit(jax.checkpoint(jnp.sin))(x) + cubed(x), X)
    assert ops(graph) == ["sin", "mul", "mul", "add"]
    agree(lambda x: jax.jit(jnp.sin)(x) + cubed(x), X)


def test_each_branch_has_a_block():
    def function(i, x):
        return lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda _: X], x)

    graph = lowered(function, np.int32(0), X)
    (branch,) = (node for node in graph.nodes if node.op == "branch")
    assert [block.outputs[0].op for block in branch.blocks] == ["add", "mul", "input"]
    assert all(block.parent is graph.top and block.owner is branch for block in branch.blocks)
    for i in (-1, 0, 1, 2, 7):
        agree(function, np.int32(i), X)


def test_a_loop_carries_values_and_stacks_others():
    def function(x):
        return lax.scan(lambda total, row: (total + row * X[1], total.sum()), x[0], x, reverse=True)

    graph = lowered(function, X)
    (loop,) = (node for node in graph.nodes if node.op == "loop")
    (body,) = loop.blocks
    assert (loop.params["length"], loop.params["carry"], loop.params["reverse"]) == (3, 1, True)
    assert [node.shape for node in body.carried] == [(4,)]
    assert [node.shape for node in body.outputs] == [(4,), ()]
    assert body.loop
    assert [node.params["position"] for node in graph.top.outputs] == [0, 1]
    agree(function, X)


def test_a_loop_of_one_iteration_is_none():
    graph = lowered(lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x[:1]), X)
    assert "loop" not in ops(graph)
    agree(lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x[:1]), X)


def test_a_while_loop_carries_its_condition():
    def function(x):
        return lax.while_loop(lambda x: x.min() > -100, lambda x: x * 2 + X[0], x)

    graph = lowered(function, X[0])
    (loop,) = (node for node in graph.nodes if node.op == "loop")
    assert loop.params["length"] is None
    assert loop.blocks[0].carried[-1].dtype == "bool"
    agree(function, X[0])


def test_loops_in_loops_and_branches_in_loops():
    def function(x):
        def step(total, row):
            inner = lax.scan(lambda c, y: (c * 0.5 + y, c), total[0], row)[0]
            return total + lax.cond(inner > 0, lambda: row, lambda: -row), inner

        return lax.scan(step, x[0], x)

    agree(function, X)


def test_random_bits_are_calls_with_the_words_of_each_key():
    graph = lowered(
        lambda key: jax.random.bits(jax.random.split(jax.random.fold_in(key, 7), 3)[1], (5,)), jax.random.key(0)
    )
    words = {node.op: node.params["words"] for node in graph.nodes if "words" in node.params}
    assert words in (
        {"fold_in_key": 2, "split_key": 6, "bits": 5},
        {"fold_in_key": 2, "split_key": 6, "bits_in_halves": 5},
    )
    assert graph.inputs[0].shape == (2,)


def test_results_without_elements_are_constants():
    graph = lowered(lambda x: x[:, :0].sum(1) + x[:, 0], X)
    assert 0 not in {d for output in graph.top.outputs for d in output.shape}
    agree(lambda x: x[:, :0].sum(1) + x[:, 0], X)


def test_a_primitive_without_a_rule_is_named():
    with pytest.raises(Unsupported, match="cholesky"):
        lower(jax.make_jaxpr(jnp.linalg.cholesky)(jnp.eye(3)))


def test_a_rule_that_fails_is_replaced_by_jaxs_own(monkeypatch):
    from mepg.native.lowering import Lowering

    monkeypatch.setattr(Lowering, "_logistic", lambda *_: 1 / 0)
    agree(jax.nn.sigmoid, X)


def test_a_jaxpr_evaluated_in_another_representation():
    """As names, for instance: what export does."""
    closed = jax.make_jaxpr(lambda x: (2.0 * x + x, x))(1.0)

    def apply(equation, names):
        return [f"{equation.primitive.name}({', '.join(names)})"]

    outputs = evaluate_jaxpr(closed.jaxpr, [], ["x"], lambda literal: str(literal.val), apply)
    assert outputs == ["add(mul(2.0, x), x)", "x"]
