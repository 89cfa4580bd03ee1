"""Buffer assignment: nothing is lost, memory is used again, the state is written in place where it can be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.buffers import Buffer, BufferAssignment, reduced_variables, state_buffers
from mepg.native.fusion import Fusion
from mepg.native.lowering import lower
from mepg.native.schedule import LoopNest

from .conftest import Case
from .simulation import assigned, simulate

A, B = (np.zeros(shape, np.float32) for shape in ((20, 40), (40, 40)))


def test_a_matrix_is_in_panels():
    buffer = Buffer((3, 5, 40), 32)
    assert (buffer.matrices, buffer.rows, buffer.columns, buffer.panels) == (3, 5, 40, 2)
    assert buffer.matrix_words == 5 * 64
    assert buffer.strides() == [320]
    assert buffer.words % 16 == 0
    assert buffer.words >= 3 * 320 + 16  # a vector may begin at the last word
    scalar = Buffer((), 16)
    assert (scalar.rows, scalar.columns, scalar.matrix_words) == (1, 1, 16)


def test_the_state_is_the_same_for_every_function():
    one, two, three = state_buffers([(4, 40), (), (1, 7)])
    assert (one.memory, one.offset, one.width) == ("S", 0, 32)
    assert (two.offset, three.offset) == (one.words, one.words + two.words)
    assert three.dims == (7,)


def test_values_that_are_not_needed_at_once_share_memory():
    def chain(x, w):
        for _ in range(6):
            x = jnp.tanh(x @ w)
        return x

    assignment = assigned(chain, A, B)
    simulate(assignment)
    offsets = [buffer.offset for node, buffer in assignment.buffers.items() if node.op == "tanh"]
    assert len(offsets) == 6
    assert len(set(offsets)) == 3  # one is read while the other is written; the last lies where the inputs were


def test_a_value_that_nothing_reads_from_memory_has_none():
    """The product is consumed in registers."""
    assignment = assigned(lambda x, w: jnp.tanh(x @ w), A, B)
    (product,) = (node for node in assignment.fusion.live if node.op == "product")
    assert product not in assignment.read
    simulate(assignment)


def in_place(function, *leaves, written=True):
    """For each array of a state: whether the new one is written over the old one, not copied at the end."""
    assignment = assigned(function, list(leaves), state=len(leaves), written=written)
    simulate(assignment)
    copied = {root.target for nests in assignment.final_copies.values() for nest in nests for root in nest.roots}
    copied_to = {id(assignment.buffers[target]) for target in copied}
    return [id(assignment.buffers[node]) not in copied_to for node in assignment.state]


STATES = {
    "one step": (lambda s: [s[0] - 0.1 * s[0]], [True]),
    "unchanged": (lambda s: [s[0]], [True]),
    "read before": (lambda s: [s[0] + 1, s[1] + s[0]], [True, True]),
    "swapped": (lambda s: [s[1], s[0]], [True, True]),  # in one nest, which stores what it has read
    "swapped and read": (lambda s: [s[1], s[0] + s[1].T], [True, False]),
    "transposed": (lambda s: [s[0].T + s[0]], [False]),
    "read later": (lambda s: [s[1] * 2, s[1] @ (s[0] @ s[1])], [False, False]),
    "a product of itself": (lambda s: [s[0] @ s[0]], [False]),
    "in a branch": (lambda s: [lax.cond(s[0][0, 0] > 0, lambda: s[0] + 1, lambda: s[0] * 2)], [True]),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_is_written_in_place_where_nothing_is_lost(name):
    function, expected = STATES[name]
    square = np.zeros((40, 40), np.float32)
    assert in_place(function, *[square] * len(expected)) == expected


def test_writes_in_exclusive_branches_do_not_clash():
    """Each branch reads the old value, which the other one overwrites."""

    def function(s):
        a, b = s
        return lax.cond(a[0, 0] > 0, lambda: [a + b, b], lambda: [a, a * b])

    assert in_place(function, B, B) == [True, True]


def test_loops():
    def function(s, x):
        def step(carried, row):
            a, b = carried
            return (b, a + row @ x.T), (a * 2, b.sum())

        (a, b), (stacked, sums) = lax.scan(step, (s[0], s[0] + 1), x)
        return [a + b], stacked, sums, lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2 + a, b)

    assignment = assigned(function, [A[0, :20]], A[:20, :20][:, :20], state=1, written=True)
    simulate(assignment)


def test_what_a_loop_reads_from_outside_lives_until_its_end():
    def function(x, w):
        y = jnp.tanh(x @ w)
        return lax.scan(lambda c, row: (jnp.sin(c @ w) + (y * row).sum(), None), x[0], x)[0]

    simulate(assigned(function, A, B))


def test_packed_operands_and_scratch_have_memory_of_their_own():
    def function(x, w):
        hidden = jnp.tanh(x @ w)
        return (hidden @ jnp.tanh(w).T).sum(0), hidden.sum(1), hidden.max()

    for bfloat16 in (False, True):
        assignment = assigned(function, A, B, bfloat16=bfloat16)
        assert any(node.op == "pack" for node in assignment.fusion.producers)
        assert len(assignment.scratch) == 3
        simulate(assignment)


def test_the_loops_that_a_reduction_is_over():
    assignment = assigned(lambda x: (x.sum(0), x.sum(1), x.sum()), A)
    roots = [root for step in assignment.fusion.schedule[assignment.fusion.graph.top] for root in step.roots]
    over = sorted(map(sorted, (reduced_variables(root) for root in roots if root.target.op == "reduce")))
    assert over == [["c"], ["c", "r"], ["r"]]
    assert {assignment.scratch[root].dims for root in roots} == {
        (64,),
        (512,),
        (16,),
    }  # 512: 20 rows, up to 32


def test_a_clash_is_noticed():
    """The simulation itself: two buffers at the same words, a value lost."""
    assignment = assigned(lambda x, w: (jnp.tanh(x @ w) @ w, jnp.tanh(x @ w).sum()), A, B)
    for buffer in assignment.buffers.values():
        buffer.offset = 0
    with pytest.raises(AssertionError, match="is there"):
        simulate(assignment)


@pytest.mark.parametrize("name", ["me-sac", "tqc", "dqn"])
@pytest.mark.parametrize("precision", ["full", "mixed"])
def test_algorithms(name, precision):
    case = Case(name, initialised=False, precision=precision)
    jaxpr, shapes = jax.make_jaxpr(case.learn, return_shape=True)(case.leaves, *case.arguments(1))
    count = len(case.leaves)
    graph = lower(jaxpr, count)
    graph.top.carried = graph.inputs[: len(jax.tree.leaves(shapes[0]))]
    inputs = [*graph.inputs[count:], *graph.constant_arrays.values()]
    assignment = BufferAssignment(Fusion(graph, bfloat16=precision == "mixed"), graph.inputs[:count], inputs)
    simulate(assignment)
    copies = [nest for nests in assignment.final_copies.values() for nest in nests]
    assert all(isinstance(nest, LoopNest) for nest in copies)
