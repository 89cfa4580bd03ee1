"""The self-check: what it accepts, and what it finds."""

import jax
import numpy as np
import pytest

from mepg.native.check import Disagrees, compare, difference
from mepg.native.library import State, compile_function

from .test_functions import draw

pytestmark = pytest.mark.usefixtures("compiler")


class Stub:
    """What `compare` needs of a compiled function, without a compiler: any Python function in its place."""

    def __init__(self, function, branches=0):
        self.function, self.branches, self.writes_state, self.calls = function, branches, True, 0

    def untaken(self):
        return list(range(self.calls, self.branches))

    def __call__(self, state: State, *arguments):
        self.calls += 1
        new, output = self.function(state.get(), *arguments)
        state.put([np.asarray(leaf) for leaf in new])
        return [np.asarray(output)]


def step(state, x):
    return [state[0] + x], (state[0] * x).sum()


def check(function, **options):
    stub = Stub(function, options.pop("branches", 0))
    compare(stub, step, [draw(5)], lambda call: (np.float32(call),), tolerance=1e-5, **options)
    return stub.calls


def test_a_function_that_agrees_is_called_four_times_or_until_every_branch_was_taken():
    assert check(step) == 4
    assert check(step, branches=7) == 7
    with pytest.raises(Disagrees, match="in 100 calls, branch 100 was never taken"):
        check(step, branches=200)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (lambda s, x: ([s[0] + x * 1.001], (s[0] * x).sum()), "call 1, array 0 of 2"),
        (lambda s, x: ([s[0] + x], (s[0] * x).sum() + 0.01), "call 1, array 1 of 2"),
        (lambda s, x: ([s[0] + x], np.float32(np.nan)), "call 1, array 1 of 2"),
        (lambda s, x: ([s[0] + (x if x < 3 else 0)], (s[0] * x).sum()), "call 3, array 0 of 2"),
    ],
)
def test_a_difference_is_found_where_it_is(wrong, where):
    with pytest.raises(Disagrees, match=where):
        check(wrong)


def test_more_is_allowed_where_the_function_itself_is_sensitive():
    """x / |x - 1| near 1: the last bit of x decides."""

    def sensitive(state, x):
        return [state[0]], (x / (state[0] - 1)).sum()

    leaves = [np.full(5, 1 + 2e-6, np.float32)]
    exact = Stub(lambda s, x: ([s[0]], np.float32((np.float64(x) / (s[0].astype(np.float64) * (1 + 1e-7) - 1)).sum())))
    compare(exact, sensitive, leaves, lambda _: (np.float32(1),), tolerance=1e-5)


def test_difference():
    assert difference(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(0.1)
    assert difference(np.zeros(2), np.zeros(2)) == 0
    assert difference(np.array([1e-9]), np.array([2e-9]), 1.0) == pytest.approx(1e-9)
    assert difference(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) == 0
    assert difference(np.array([np.inf]), np.array([-np.inf])) == np.inf
    assert difference(np.array([1.0]), np.array([np.nan])) == np.inf


def test_the_check_finds_a_wrong_library():
    leaves = [draw(5)]
    compiled = compile_function(lambda state, x: ([state[0] + x], x), leaves, np.float32(1), state="written")
    with pytest.raises(Disagrees, match="call 1, array 0"):
        compare(
            compiled, lambda state, x: ([state[0] + 1.001 * x], x), leaves, lambda _: (np.float32(1),), tolerance=1e-5
        )


def test_the_check_wants_every_branch():
    def step(state, on):
        return [jax.lax.cond(on, lambda: state[0] + 1, lambda: state[0])], on

    leaves = [draw(5)]
    compiled = compile_function(step, leaves, np.bool_(True), state="written")
    with pytest.raises(Disagrees, match="never taken"):
        compare(compiled, step, leaves, lambda _: (np.bool_(True),), tolerance=1e-5)
