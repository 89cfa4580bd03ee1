"""The C++ of calls."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.calls import Calls
from mepg.native.expressions import Addresses
from mepg.native.schedule import CALLS

from .simulation import assigned

X, KEY = np.zeros((4, 6), np.float32), jax.random.key(0)


def lines(function, *examples, op, thread=()):
    """The body of the function's last call of this operation; T stands for any address."""
    assignment = assigned(function, *examples)
    node = [node for node in assignment.fusion.live if node.op == op][-1]
    text = Calls(Addresses(assignment)).lines(node, list(thread))
    return [re.sub(r"\bT \+ \d+", "T", line) for line in text]


def test_a_row_major_copy():
    """Of a transpose, which is copied into panels of 16 columns first."""
    assert lines(lambda x: x.T.reshape(8, 3) * 2, X, op="relayout") == [
        "for (int i = 0; i < 6; i++) {",
        "const int r = i % 6;",
        "memcpy((word*)(T) + i * 4, T + r * 16, 4 * 4);",
        "}",
    ]


def test_a_row_major_copy_of_panels():
    text = lines(lambda x: (x + 1).reshape(-1, 25), np.zeros((4, 50), np.float32), op="relayout")
    (copy,) = text[2:-1]
    assert copy.startswith("for (int c = 0; c < 50; c += 32) memcpy((word*)(T) + i * 50 + c, ")
    assert copy.endswith("T + panel<32, 4>(r, c), 4 * min_(32, 50 - c));")


def test_keys():
    assert lines(lambda k: jax.random.key_data(jax.random.split(k, 5)), KEY, op="split_key") == [
        "for (int i = 0; i < 1; i++) split_key((const word*)(T) + i * 0, nullptr, 10, (word*)(T) + i * 10);"
    ]
    several = jax.random.split(KEY, 3)
    (line,) = lines(
        lambda k, i: jax.random.key_data(jax.vmap(jax.random.fold_in)(k, i)), several, np.arange(3), op="fold_in_key"
    )
    arguments = "(const word*)(T) + i * 2, (const word*)(T) + i * 1, 2, (word*)(T) + i * 2"
    assert line == f"for (int i = 0; i < 3; i++) fold_in_key({arguments});"


def test_bits_are_divided_among_threads():
    def function(key):
        return jax.random.bits(key, (9,))

    ops = {node.op for node in assigned(function, KEY).fusion.live} & {"bits", "bits_in_halves"}
    (line,) = lines(function, KEY, op=ops.pop(), thread=("t", "2"))
    assert line.endswith("9, (word*)(T) + i * 9, t, 2);")


def test_sorting():
    text = lines(lambda x: jnp.sort(x, 1), X, op="order")
    assert text == ["const word* keys[] = {(const word*)(T)};", 'argsort(keys, "f", 4, 6, (number*)(T));']
    text = lines(lambda a, b: lax.sort((a, b), num_keys=1)[1], np.zeros(9, np.uint32), X.ravel()[:9], op="sort")
    assert text == ["word unused[9];", "sort((const word*)(T), (const word*)(T), 9, unused, (word*)(T));"]


@pytest.mark.parametrize(
    ("function", "combined"),
    [
        (lambda x, i: x.at[i].set(2.0), "a = b;"),
        (lambda x, i: x.at[i].add(x[:2]), "a = a + b;"),
        (lambda x, i: x.at[i].max(x[:2]), "a = a < b || b != b ? b : a;"),
    ],
)
def test_scatter(function, combined):
    text = lines(function, X, np.zeros(2, np.int32), op="scatter")
    assert text[-2:] == [combined, "}"]
    assert sum(line.startswith("for") for line in text) == 2  # the copy, then the updates
    assert "if (start0 < 0 || start0 > 3) continue;" in text
    assert [line for line in text if line.startswith("float& a")] == [
        "float& a = ((float*)(T))[0 + c * 1 + start0 * 6];"
    ]


def test_a_window_that_does_not_fit_is_moved():
    text = lines(lambda x, i: lax.dynamic_update_slice(x, x[:2, :3], (i, i)), X, np.int32(0), op="scatter")
    assert [line for line in text if "const int start" in line] == [
        "const int start1 = clip(scalar_i(T), 4);", "const int start0 = clip(scalar_i(T), 3);",
    ]  # fmt: skip


def test_every_call_has_text():
    assert set(CALLS) == {
        "split_key", "fold_in_key", "bits", "bits_in_halves", "sort", "relayout", "order", "scatter",
    }  # fmt: skip
