"""Which values are computed in the same loop nest."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mepg.native.schedule import LoopNest, NodeStep, PackStep

from .simulation import fused

A, B = (np.zeros(shape, np.float32) for shape in ((20, 40), (40, 40)))


def schedule(function, *examples, **options):
    """A word for each step: a product or loops, then the roots; or the operation."""
    fusion = fused(function, *examples, **options)
    return [describe(step) for step in fusion.schedule[fusion.graph.top]]


def describe(step):
    if isinstance(step, LoopNest):
        return " ".join(["product" if step.product else "loops", *(root.target.op for root in step.roots)])
    return f"pack {step.operand.packing}" if isinstance(step, PackStep) else step.node.op


def test_consumers_are_computed_while_a_tile_is_in_registers():
    assert schedule(lambda x, w: jnp.maximum(x @ jnp.tanh(w) + 1, 0), A, B) == ["loops tanh", "product max"]


def test_a_sum_takes_its_producer_in():
    assert schedule(lambda x: (x * x).sum(1), A) == ["loops reduce"]


def test_roots_of_the_same_space_share_loops():
    assert schedule(lambda x: (x + 1, x * 2, x.sum(0)), A) == ["loops add mul reduce"]
    assert schedule(lambda x: (x + 1, x[:10] * 2), A) == ["loops add", "loops mul"]


def test_another_element_of_a_product_is_read_in_a_nest_of_its_own():
    """Its tile has only the element that the loops are at."""

    def function(x, w):
        y = jnp.tanh(x @ jnp.tanh(w))
        return y, y * y[:, 0:1]

    assert schedule(function, A, B)[1:] == ["product tanh", "loops mul"]


def test_a_sum_is_complete_only_after_its_loops():
    assert schedule(lambda x: x / x.sum(1, keepdims=True), A) == ["loops reduce", "loops div"]


def test_two_products_are_two_nests():
    def function(x, w):
        w = jnp.tanh(w)
        return jnp.tanh(x @ w) @ w

    assert schedule(function, A, B) == ["loops tanh", "product tanh", "product"]


def test_the_pieces_of_a_concatenation_are_stored_where_they_are_computed():
    found = schedule(lambda x, w: jnp.concatenate([x @ jnp.tanh(w), x], 1), A, B)
    assert found == ["loops tanh", "product concatenate", "loops concatenate"]


def test_an_operand_is_packed_once_before_the_first_product():
    def function(x, w):
        w = jnp.tanh(w)
        return (x @ w.T).sum(), ((x + 1) @ w.T).sum(), lax.cond(x[0, 0] > 0, lambda: x @ w.T, lambda: x)

    found = schedule(function, A, B)
    assert found.count("pack panels_transposed") == 1
    fusion = fused(function, A, B)
    inner = [
        describe(step) for block, steps in fusion.schedule.items() if block is not fusion.graph.top for step in steps
    ]
    assert not any("pack" in step for step in inner)


def test_a_block_packs_for_itself_what_only_it_needs():
    fusion = fused(lambda x, w: lax.cond(x[0, 0] > 0, lambda: x @ jnp.tanh(w).T, lambda: x), A, B)
    packs = [block for block, steps in fusion.schedule.items() if any(isinstance(step, PackStep) for step in steps)]
    assert len(packs) == 1
    assert packs[0] is not fusion.graph.top


def test_what_a_step_reads():
    fusion = fused(lambda x, y: (x + y.T, x.sum(0)), B, B)
    (nest,) = fusion.schedule[fusion.graph.top]
    x, y = fusion.graph.inputs
    assert {(node, same) for node, same in nest.reads} == {(x, True), (y, False)}
    assert nest.space == (40, 40)


def test_an_index_is_read_from_memory():
    """So it is not computed by the loops that use it."""
    found = schedule(lambda x, i: (i + 1, x[i + 1] * 2), A, np.zeros(5, np.int32))
    assert found == ["loops add select", "loops mul"]


def test_calls_branches_and_loops_are_steps_of_their_own():
    def function(key, x):
        bits = jax.random.bits(key, (20, 40))
        y = lax.cond(x[0, 0] > 0, lambda: x + 1, lambda: x * 2)
        return bits, y, lax.scan(lambda c, row: (c + row, None), x[0], x)[0]

    fusion = fused(function, jax.random.key(0), A)
    steps = [step.node.op for step in fusion.schedule[fusion.graph.top] if isinstance(step, NodeStep)]
    assert [op.removesuffix("_in_halves") for op in steps] == ["bits", "branch", "loop"]
    assert len(fusion.schedule) == 4  # the function, two branches, the loop's body


def test_a_loop_begins_with_its_initial_values():
    fusion = fused(lambda x: lax.scan(lambda c, row: (c + row, None), x[0] * 2, x)[0], A)
    first, second, *_ = fusion.schedule[fusion.graph.top]
    (body,) = second.node.blocks
    assert [root.target for root in first.roots][-1:] == body.carried


def test_every_materialized_node_has_a_producer():
    fusion = fused(lambda x, w: (jnp.exp(x @ jnp.tanh(w)).sum(0), x.T), A, B)
    for node in fusion.live:
        if fusion.is_materialized(node) and node.op not in ("input", "result"):
            assert fusion.producers[node] in fusion.schedule[node.block]
