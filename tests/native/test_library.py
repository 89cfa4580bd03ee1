"""Compiled functions, called with arrays; states that they share."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.errors import RunFailure
from mepg.native.build import CannotBuild
from mepg.native.check import compare, difference
from mepg.native.graph import ArrayType, Unsupported
from mepg.native.library import RowSelection, State, as_words, compile_function, generate
from mepg.native.processor import KNOWN

from .test_functions import draw


def test_a_state_gives_back_what_was_put_in():
    """Without a compiler: in panels, with padding, as other types, as a random key."""
    leaves = [draw(7, 40), draw(2, 3, 17), draw(5), np.int32(-3), np.array([True, False]), jax.random.key(9)]
    state = State.of(leaves)
    assert state.address % 64 == 0
    assert state.types[:2] == [ArrayType((7, 40), "f32"), ArrayType((2, 3, 17), "f32")]
    for want, got in zip([*leaves[:-1], jax.random.key_data(leaves[-1])], state.get(), strict=True):
        assert np.array_equal(np.asarray(want), got)
        assert got.dtype == np.asarray(want).dtype
    with pytest.raises(AssertionError):
        state.put([draw(7, 41), *leaves[1:]])


def test_arrays_as_words():
    assert as_words(np.array([True, False])).view(np.int32).tolist() == [1, 0]
    assert as_words(draw(4, 6).T).flags.c_contiguous
    with pytest.raises(TypeError, match="float64 has no place"):
        as_words(np.zeros(3))


def test_a_function_that_writes_its_state_returns_as_many_arrays():
    with pytest.raises(TypeError, match="as many arrays"):
        generate(lambda s: ([s[0]], 1.0), ([draw(3), draw(3)],), "written", KNOWN["plain"], 1)
    with pytest.raises(Unsupported, match="without any numbers"):
        generate(lambda x: x[:0], (draw(3),), "none", KNOWN["plain"], 1)


@pytest.mark.usefixtures("compiler")
def test_a_generator_that_fails_is_one_error(monkeypatch):
    monkeypatch.setattr("mepg.native.library.Fusion", lambda *_, **__: 1 / 0)
    with pytest.raises(CannotBuild, match=r"does not understand this agent: .*division by zero"):
        compile_function(jnp.sin, draw(3))


@pytest.mark.usefixtures("compiler")
def test_threads_that_cannot_be_had_are_one_error(monkeypatch):
    compiled = compile_function(lambda x: x + 1, draw(3))
    monkeypatch.setattr(compiled, "_run", lambda *_: 1)
    with pytest.raises(RunFailure, match="--threads 1"):
        compiled(draw(3))


@pytest.mark.usefixtures("compiler")
def test_calls_from_several_threads_wait_for_each_other():
    compiled = compile_function(lambda x: jnp.tanh(x @ x) @ x, draw(40, 40))
    given = [draw(40, 40) for _ in range(4)]
    alone, together = [compiled(x)[0] for x in given], [None] * len(given)

    def call(k):
        for _ in range(20):
            together[k] = compiled(given[k])[0]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.usefixtures("compiler")
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


@pytest.mark.usefixtures("compiler")
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


@pytest.mark.usefixtures("compiler")
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
