"""Which part of a loop nest each thread computes: everything, once, and whole tiles."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.native.partition import is_parallel, partition
from mepg.native.schedule import LoopNest

from .simulation import fused


def nest_of(function, *shapes):
    """The last loop nest of a function."""
    fusion = fused(function, *(np.zeros(shape, np.float32) for shape in shapes))
    return [step for step in fusion.schedule[fusion.graph.top] if isinstance(step, LoopNest)][-1]


def bounds(part, threads):
    """Each thread's range, computed as the C++ computes it."""
    first, last = re.fullmatch(r"const int first = (.*), last = min_\((.*)\);", part.statements[0]).groups()
    names = {"first_tile": lambda tiles, t: tiles * t // threads, "min_": min}
    return [(eval(first, names | {"t": t}), min(eval(f"[{last}]", names | {"t": t}))) for t in range(threads)]


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("shape", [(100, 200), (7, 3000), (513, 33), (5000, 5)])
def test_every_row_or_column_has_one_thread(shape, threads):
    nest = nest_of(lambda x: jnp.exp(x), shape)
    part = partition(nest, threads, (8, 32))
    axis, size, tile = ("columns", shape[1], 32) if part.columns.first == "first" else ("rows", shape[0], 8)
    ranges = [(a, b) for a, b in bounds(part, threads) if a < b]
    assert [a for a, _ in ranges] == [0, *(b for _, b in ranges[:-1])]
    assert ranges[-1][1] == size
    assert all(a % tile == 0 for a, _ in ranges)
    assert getattr(part, "rows" if axis == "columns" else "columns").first == "0"


def test_one_thread_or_little_work_is_not_divided():
    large, small = (nest_of(lambda x: jnp.exp(x), shape) for shape in ((200, 200), (20, 20)))
    assert partition(large, 1, (8, 32)) == (("0", "200"), ("0", "200"), [])
    assert is_parallel(large)
    assert not is_parallel(small)
    assert partition(small, 2, (8, 32)).statements == []


def test_the_terms_of_a_sum_are_not_divided():
    assert partition(nest_of(lambda x: x.sum(1), (200, 200)), 2, (8, 32)).rows.first == "first"
    assert partition(nest_of(lambda x: x.sum(0), (200, 200)), 2, (8, 32)).columns.first == "first"
    for whole in (lambda x: x.sum(), lambda x: (x.sum(0), x.sum(1))):
        assert not is_parallel(nest_of(whole, (200, 200)))


def test_a_product_counts_its_depth():
    assert is_parallel(nest_of(lambda x, w: x @ jnp.tanh(w), (20, 100), (100, 20)))
    assert not is_parallel(nest_of(lambda x, w: x @ jnp.tanh(w), (20, 10), (10, 20)))


def test_the_axis_that_keeps_all_threads_busy():
    """Two tiles of columns and many of rows: for three threads, rows."""
    nest = nest_of(lambda x: jnp.exp(x), (600, 64))
    assert partition(nest, 2, (8, 32)).columns.first == "first"
    assert partition(nest, 3, (8, 32)).rows.first == "first"


def test_random_bits_and_packing_are_divided():
    fusion = fused(lambda key: jax.random.bits(key, (300, 20)), jax.random.key(0))
    assert is_parallel(fusion.schedule[fusion.graph.top][0])
    fusion = fused(lambda x, w: x @ jnp.tanh(w).T, *(np.zeros((200, 200), np.float32),) * 2)
    assert all(map(is_parallel, fusion.schedule[fusion.graph.top]))
