"""Nodes, blocks, views: on graphs made by hand."""

import math

import numpy as np
import pytest

from mepg.native.graph import ZERO, AxisIndex, Block, Graph, loop_index, loop_variables, squeezed, through_view

from .interpreter import Evaluation


@pytest.fixture
def graph():
    return Graph()


def array(graph, *shape, dtype="f32"):
    return graph.new("input", (), shape, dtype)


def shown(view, x, value):
    """A view's elements, when the input x has this value."""
    return Evaluation({x: value}, {}).value(view)


def test_the_same_operation_is_one_node(graph):
    x, y = array(graph, 3), array(graph, 3)
    assert graph.add("add", (x, y), (3,), "f32") is graph.add("add", (x, y), (3,), "f32")
    assert graph.add("add", (x, y), (3,), "f32") is not graph.add("add", (y, x), (3,), "f32")
    assert graph.new("add", (x, y), (3,), "f32") is not graph.new("add", (x, y), (3,), "f32")


def test_a_block_knows_the_expressions_around_it_and_not_those_beside_it(graph):
    x = array(graph, 3)
    outer = graph.add("exp", (x,), (3,), "f32")
    owner = graph.new("branch", (x,), (), "i32")
    first = graph.inside(owner, lambda: [graph.add("exp", (x,), (3,), "f32"), graph.add("log", (x,), (3,), "f32")])
    second = graph.inside(owner, lambda: [graph.add("log", (x,), (3,), "f32")])
    assert first.outputs[0] is outer
    assert first.outputs[1] is not second.outputs[0]
    assert first.within(graph.top)
    assert not first.within(second)
    assert graph.block is graph.top


def test_the_insertion_point_is_before_a_node_and_comes_back(graph):
    x = array(graph, 3)
    last = graph.add("exp", (x,), (3,), "f32")
    inner = Block(graph.top)
    with pytest.raises(KeyError), graph.insert(inner, before=last):
        first, second = (graph.new("copy", (x,), (3,), "f32") for _ in range(2))
        raise KeyError
    assert graph.nodes == [x, first, second, last]
    assert first.block is inner
    assert graph.new("copy", (x,), (3,), "f32").block is graph.top
    assert graph.nodes[3] is last


def test_constants_are_folded_as_numpy_computes_them(graph):
    two, three = (graph.constant(value, (), "f32") for value in (2, 3))
    six = graph.elementwise("mul", (two, three), "f32")
    assert (six.op, six.params["value"]) == ("constant", 6.0)
    assert graph.elementwise("log", (graph.constant(0, (), "f32"),), "f32").params["value"] == -math.inf
    assert graph.constant(2**32 - 1, (), "u32").params["value"] == 2**32 - 1
    assert graph.broadcast(two, (4, 5), ()).op == "constant"


def test_an_array_of_one_number_is_a_constant_and_others_are_kept_once(graph):
    assert graph.constant_array(np.full((2, 3), 7, np.float32), (2, 3), "f32").op == "constant"
    first, second = (graph.constant_array(np.arange(6, dtype=np.float32), (2, 3), "f32") for _ in range(2))
    assert first is second
    assert [*graph.constant_arrays.values()] == [first]


def test_simplifications_hold_for_nan_too(graph):
    x, zero, one = array(graph, 3), graph.constant(0, (), "f32"), graph.constant(1, (), "f32")
    assert graph.elementwise("mul", (x, one), "f32") is x
    assert graph.elementwise("add", (zero, x), "f32") is x
    assert graph.elementwise("mul", (x, zero), "f32").op == "mul"
    assert graph.elementwise("div", (one, x), "f32").op == "div"
    assert graph.elementwise("sub", (x, x), "f32").op == "sub"
    word, eight = array(graph, 3, dtype="u32"), graph.constant(8, (), "u32")
    assert graph.elementwise("rem", (word, eight), "u32").op == "and"
    assert graph.elementwise("div", (word, eight), "u32").op == "shift_right_logical"
    assert graph.elementwise("div", (array(graph, 3, dtype="i32"), graph.constant(8, (), "i32")), "i32").op == "div"


def test_the_derivative_of_relu_reads_relu_itself(graph):
    z, zero = array(graph, 3), graph.constant(0, (), "f32")
    assert graph.elementwise("gt", (z, zero), "bool").arguments[0] is z
    relu = graph.elementwise("max", (z, zero), "f32")
    assert graph.elementwise("gt", (z, zero), "bool").arguments[0] is relu


VIEWS = {
    "transpose": (lambda g, x: g.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "transposed twice": (
        lambda g, x: g.transpose(g.transpose(x, (2, 0, 1)), (0, 2, 1)), lambda x: x.transpose(2, 1, 0)
    ),
    "slice": (lambda g, x: g.slice(x, (0, 1, 2), (2, 3, 4)), lambda x: x[:, 1:3, 2:4]),
    "slice of a slice": (
        lambda g, x: g.slice_axis(g.slice_axis(x, 2, 1, 5), 2, 1, 3), lambda x: x[:, :, 2:4]
    ),
    "broadcast": (lambda g, x: g.broadcast(x, (2, 7, 3, 5), (0, 2, 3)), lambda x: np.stack([x] * 7, 1)),
    "axes of one": (lambda g, x: g.reshape(x, (2, 1, 3, 5, 1)), lambda x: x.reshape(2, 1, 3, 5, 1)),
    "reshape": (lambda g, x: g.reshape(x, (6, 5)), lambda x: x.reshape(6, 5)),
    "fixed": (lambda g, x: g.gather(x, (3, 5), (AxisIndex("", 1), 0, 1)), lambda x: x[1]),
    "take": (lambda g, x: g.take(x, {2: g.arange(4, -2, 3)}), lambda x: x[:, :, 4::-2]),
    "take of two": (
        lambda g, x: g.take(x, {0: g.arange(1, -1, 2), 1: g.arange(0, 2, 2)}), lambda x: x[::-1, ::2]
    ),
    "clipped": (lambda g, x: g.take(x, {1: g.arange(-1, 2, 3)}), lambda x: x[:, [0, 1, 2]]),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shows_what_numpy_shows(graph, name):
    view, expected = VIEWS[name]
    x, value = array(graph, 2, 3, 5), np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    assert np.array_equal(shown(view(graph, x), x, value), expected(value))


def test_an_index_says_which_loops_it_depends_on(graph):
    x, numbers = array(graph, 4, 6), array(graph, 6, dtype="i32")
    view = graph.gather(x, (6,), ((1, (0,)), AxisIndex("t3", 2)), numbers)
    base, (row, column) = through_view(view, loop_index(view.shape))
    assert base is x
    assert row == AxisIndex(indirect=(numbers, (AxisIndex("c"),)), size=4)
    assert (row.variables, column.variables) == ({"c"}, {"t3"})
    assert column.shift(3) == AxisIndex("t3", 5)


def test_loops_over_a_shape():
    assert squeezed((1, 4, 1, 5)) == (4, 5)
    assert loop_variables((2, 3, 4, 5)) == ["l0", "l1", "r", "c"]
    assert loop_variables((5,)) == ["c"]
    assert loop_index((4, 1, 5)) == [AxisIndex("r"), ZERO, AxisIndex("c")]


def test_some_columns_of_a_product_are_a_smaller_product(graph):
    a, b = array(graph, 4, 5), array(graph, 5, 6)
    product = graph.add("product", (a, b), (4, 6), "f32", names=(("i", "k"), ("k", "n")), depth=5)
    part = graph.slice(product, (0, 2), (4, 5))
    assert (part.op, part.shape) == ("product", (4, 3))
    assert part.arguments[1].op == "slice"
    assert graph.slice(product, (1, 0), (4, 6)).op == "slice"


@pytest.mark.parametrize(
    ("old", "new"),
    [((5, 60), (5, 2, 30)), ((5, 3, 20), (5, 60)), ((4, 5, 64), (4, 5, 4, 16)), ((5, 1, 60), (5, 3, 1, 20))],
)
def test_a_last_axis_is_split_and_merged_by_long_pieces(graph, old, new):
    x = array(graph, *old)
    value = np.arange(math.prod(old), dtype=np.float32).reshape(old)
    reshaped = graph.reshape(x, new)
    assert "concatenate" in {node.op for node in graph.nodes}
    assert "relayout" not in {node.op for node in graph.nodes}
    np.testing.assert_array_equal(shown(reshaped, x, value), value.reshape(new))


@pytest.mark.parametrize(
    ("old", "new"), [((5, 60), (5, 4, 15)), ((5, 340), (5, 17, 20)), ((6, 20), (3, 40)), ((60, 2), (2, 60))]
)
def test_other_reshapes_are_copied_row_major(graph, old, new):
    assert graph.reshape(array(graph, *old), new).op == "relayout"


def test_quotients_of_constants_are_folded_and_whole_numbers_are_not(graph):
    one, three = graph.constant(1, (4,), "f32"), graph.constant(3, (), "f32")
    assert graph.elementwise("div", (one, three), "f32").params["value"] == np.float32(1) / np.float32(3)
    zero = graph.constant(0, (), "i32")
    assert graph.elementwise("div", (graph.constant(1, (4,), "i32"), zero), "i32").op == "div"


def test_a_constant_bound_comes_second(graph):
    x = array(graph, 3)
    for bound, order in ((2.0, [x, "bound"]), (0.0, ["bound", x])):  # which zero wins depends on the order
        constant = graph.constant(bound, (), "f32")
        clipped = graph.elementwise("max", (constant, x), "f32")
        assert [("bound" if a is constant else a) for a in clipped.arguments] == order
