"""Reductions: which are unrolled, which become a reduce node, and that all of them are right."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from mepg.native.graph import Graph, Unsupported
from mepg.native.reductions import argbest, reduce

from .interpreter import Evaluation, lowered
from .test_lowering import agree

RNG = np.random.default_rng(0)
SHAPES = [(5,), (70,), (3, 40), (40, 3), (70, 20), (3, 20, 5), (70, 4, 5), (66, 2, 67), (66, 67, 5, 3), (1, 9)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_over_any_axes(shape, dtype):
    x = RNG.integers(-50, 50, shape).astype(dtype)  # sums are exact
    axes = [pair for n in range(1, len(shape) + 1) for pair in itertools.combinations(range(len(shape)), n)]
    agree(lambda x: [(x.sum(axis), x.max(axis), x.min(axis)) for axis in axes], x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_of_booleans(shape):
    x = RNG.random(shape) < 0.9
    agree(lambda x: (x.any(0), x.all(0), x.any(-1), x.all(-1), x.all()), x)


@pytest.mark.parametrize("size", [5, 70])
def test_the_best_is_the_first_and_nan_beats_all(size):
    x = np.tile(np.array([1, 3, 3, -2, -2], np.float32), (3, size // 5))
    x[1, 4] = x[2, -1] = np.nan
    for function in (jnp.argmax, jnp.argmin):
        agree(lambda x, f=function: (f(x, 1), f(x.T, 0)), x)
    agree(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1)), x > 2)


def kinds(shape, axes):
    graph = Graph()
    node = reduce(graph, "sum", graph.new("input", (), shape, "f32"), axes)
    return [x.op for x in graph.nodes if x.op in ("reduce", "add")], node.shape


def test_short_axes_are_unrolled():
    assert kinds((3, 40), [0]) == (["add", "add"], (40,))  # three rows of a long matrix
    assert kinds((4,), [0]) == (["add"] * 3, ())
    assert kinds((30, 40), [1]) == (["reduce"], (30,))
    assert kinds((30, 40), [0, 1]) == (["reduce"], ())
    assert kinds((5, 30, 40), [0]) == (["add"] * 4, (30, 40))


def test_a_long_leading_axis_becomes_the_rows():
    assert kinds((70, 3, 40), [0]) == (["reduce"], (3, 40))


def test_of_nothing():
    graph = Graph()
    empty = graph.new("input", (), (3, 0), "f32")
    assert reduce(graph, "prod", empty, [1]).params["value"] == 1
    with pytest.raises(Unsupported, match="the max of no numbers"):
        reduce(graph, "max", empty, [1])


def test_by_hand():
    graph = Graph()
    x = graph.new("input", (), (2, 3), "f32")
    value = np.array([[3, 1, 2], [0, 0, -1]], np.float32)
    given = Evaluation({x: value}, {})
    assert given.value(reduce(graph, "sum", x, [1])).tolist() == [6, -1]
    assert given.value(argbest(graph, x, 1, "lt")).tolist() == [1, 2]
    assert given.value(argbest(graph, x, 0, "gt")).tolist() == [0, 0, 0]


def test_they_are_one_node_when_they_are_the_same():
    graph = lowered(lambda x: x.sum(1) + x.sum(1), np.zeros((30, 40), np.float32))
    assert [node.op for node in graph.nodes].count("reduce") == 1
