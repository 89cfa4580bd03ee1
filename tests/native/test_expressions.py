"""The C++ of one element: addresses are computed here as the C++ computes them."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.expressions import Addresses, Expressions
from mepg.native.graph import AxisIndex, loop_index, loop_variables
from mepg.native.library import State
from mepg.native.schedule import LoopNest

from .simulation import assigned


def compute(text, **variables):
    """An address without the buffer's memory."""
    text = re.sub(r"panel<(\d+), (\d+)>\(", r"panel(\1, \2, ", text.replace("S + ", "").replace("T + ", ""))
    return eval(text, {"panel": lambda w, rows, r, c: c // w * rows * w + r * w + c % w, **variables})


@pytest.mark.parametrize("shape", [(7,), (40,), (5, 3), (5, 40), (3, 5, 40), (2, 3, 4, 17), (4, 1, 33), ()], ids=str)
def test_an_element_is_where_a_state_has_it(shape):
    """Two descriptions of the layout: addresses in C++, and `State.put` in NumPy."""
    assignment = assigned(lambda s: s[0] + 1, [np.zeros(shape, np.float32)], state=1)
    (node,) = assignment.state
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    memory = State.of([numbers])._memory
    text = Addresses(assignment).address(node, node.squeeze(loop_index(shape)))
    for position in np.ndindex(*node.dims):
        where = compute(text, **dict(zip(loop_variables(node.dims), position, strict=True)))
        assert memory[where] == numbers.reshape(node.dims)[position]


@pytest.mark.parametrize("shape", [(5, 40), (3, 5, 17), (4, 3)], ids=str)
def test_an_input_is_row_major(shape):
    assignment = assigned(lambda x: x + 1, np.zeros(shape, np.float32))
    (node,) = assignment.inputs
    text = Addresses(assignment).address(node, node.squeeze(loop_index(shape)))
    start = assignment.buffers[node].offset
    found = [compute(text, **dict(zip(loop_variables(shape), p, strict=True))) - start for p in np.ndindex(*shape)]
    assert found == list(range(int(np.prod(shape))))


def test_indices():
    assignment = assigned(lambda x, i: x[i] * 2, np.zeros((6, 40), np.float32), np.zeros(4, np.int32))
    addresses = Addresses(assignment)
    assert addresses.index(AxisIndex("", 3)) == "3"
    assert addresses.index(AxisIndex("c", 16)) == "(c + 16)"
    assert addresses.index(AxisIndex("c"), column="column") == "column"
    _, i = assignment.inputs
    start = assignment.buffers[i].offset
    assert addresses.index(AxisIndex(indirect=(i, (AxisIndex("r"),)), size=6)) == f"clip(scalar_i(T + {start} + r), 6)"


def test_a_vector_is_loaded_where_its_elements_lie_side_by_side():
    assignment = assigned(lambda s: s[0] + 1, [np.zeros((5, 70), np.float32)], state=1)
    (node,), addresses = assignment.state, Addresses(assignment)
    r, c = AxisIndex("r"), AxisIndex("c")
    assert addresses.is_contiguous(node, (r, c))
    assert addresses.is_contiguous(node, (r, c.shift(32)))
    assert not addresses.is_contiguous(node, (r, c.shift(3)))  # it would cross the end of a panel
    assert not addresses.is_contiguous(node, (c, r))
    indirect = AxisIndex(indirect=(node, (c,)), size=5)
    assert not addresses.is_contiguous(node, (indirect, c))


def statements(function, *examples):
    """Of the last loop nest, with addresses left out."""
    assignment = assigned(function, *examples)
    nest = [x for x in assignment.fusion.schedule[assignment.fusion.graph.top] if isinstance(x, LoopNest)][-1]
    expressions = Expressions(Addresses(assignment), nest)
    for root in nest.roots:
        expressions.value(root.value, loop_index(root.value.shape))
    return [re.sub(r"[ST] \+ [^;]*?(?=\){1,3}[;,])", "...", line) for line in expressions.statements]


X, Y, U = np.zeros((5, 40), np.float32), np.zeros((5, 40), np.int32), np.zeros((5, 40), np.uint32)
TEXTS = {
    "sum": (lambda x, *_: x * x + 1, ["const vf v0 = load_f(...);", "const vf v1 = v0 * v0;", "= v1 + all(1.0f);"]),
    "row": (lambda x, *_: -x[0, 0] * x, ["const vf v0 = all(scalar_f(...));"]),
    "transposed": (lambda x, *_: x.T + 1, ["const vf v0 = each<vf>([&](int lane) {"]),
    "compared": (lambda x, *_: jnp.where(x > 0, x, 2.0), ["= (vi)(v0 > all(0.0f));", "select(v1, all(2.0f), v0)"]),
    "booleans": (lambda x, *_: (x > 0) < (x < 1), ["(vi)(v2 < v1)"]),  # true is -1
    "function": (lambda x, *_: jnp.tanh(x), ["tanh_(v0)"]),
    "integers": (lambda x, i, _: lax.div(i, 3) + x.astype(jnp.int32), ["div_(v0, all((int)3u))", "convert<vi>("]),
    "bits": (lambda x, i, u: (u >> 3) ^ ~u, ["shift_right_logical_(v0, all(3u))", "~v0"]),
    "bits as numbers": (lambda x, *_: lax.bitcast_convert_type(x, jnp.int32), ["(vi)v0"]),
    "power": (lambda x, i, _: x**i, ["pow_(v0, convert<vf>(v1))"]),
    "power of a scalar": (lambda x, *_: jnp.float32(0.9) ** x[0, 0], ["pow_scalar(all(0.8999999761581421f), v0)"]),
    "iota": (lambda x, *_: x * jnp.arange(40.0), ["lanes() + c"]),
    "special": (lambda x, *_: jnp.maximum(x, -jnp.inf) + jnp.nan, ["all(-INFINITY)", "all((float)NAN)"]),
    "mask": (lambda x, *_: (x > 0).astype(jnp.float32), ["from_mask<vf>(v1)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_expressions(name):
    function, expected = TEXTS[name]
    text = "\n".join(statements(function, X, Y, U))
    for part in expected:
        assert part in text


def test_the_same_value_is_computed_once():
    assert len(statements(lambda x: (x + 1) * (x + 1), X)) == 3
