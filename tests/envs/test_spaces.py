import json

import gymnasium
import numpy as np
import pytest

from mepg.core.types import Sizes
from mepg.envs.env import Env
from mepg.envs.spaces import Spaces
from mepg.errors import RunFailure, UsageError
from tests.run import stubs  # registers the stub environments


def box(size):
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def test_actions_are_scaled_to_the_bounds():
    env = Env("StubScaled-v0")
    np.testing.assert_array_equal(env.spaces.scale(np.array([-1.0, 1.0], np.float32)), [-3, 5])
    np.testing.assert_array_equal(env.spaces.scale(np.array([0.0, 0.5], np.float32)), [1, 3])
    assert env.spaces.to_json()["action_bounds"] == {"low": [-3.0, -3.0], "high": [5.0, 5.0]}


def test_unit_bounds_leave_actions_as_they_are():
    action = np.array([0.1, -0.7], np.float32)
    np.testing.assert_array_equal(Env("StubPlain-v0").spaces.scale(action), action)
    assert Env("StubDouble-v0").spaces.scale(action).dtype == np.float64


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3), (1, 2, 2)])
@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_actions_of_any_shape(shape, bound):
    space = gymnasium.spaces.Box(-bound, bound, shape, np.float32)
    env = Env(stubs.Box(actions=space))
    size = int(np.prod(shape))
    assert env.sizes.action == size
    batch = np.random.default_rng(0).uniform(-1, 1, (4, size)).astype(np.float32)
    own = env.spaces.scale(batch)
    assert own.shape == (4, *shape)
    np.testing.assert_allclose(env.spaces.unscale(own), batch, atol=1e-7)
    one = env.spaces.scale(batch[0])
    assert isinstance(one, np.ndarray)
    assert space.contains(one)
    np.testing.assert_allclose(env.spaces.unscale(one), batch[0], atol=1e-7)
    env.reset(0)
    env.step(batch[0])  # the stub looks whether its space contains the action
    again = Spaces.from_json("Again-v0", json.loads(json.dumps(env.spaces.to_json())))
    assert again.actions.shape == shape
    assert env.spaces.difference(again) is None


def test_the_same_numbers_in_another_shape_are_other_actions():
    flat, square = (Env(stubs.Box(actions=gymnasium.spaces.Box(-1, 1, shape))).spaces for shape in [(4,), (2, 2)])
    assert flat.difference(square) == "actions of shape (4,), and Box has (2, 2)"
    with pytest.raises(ValueError, match="bounds of shapes"):
        Spaces.from_json("Damaged-v0", {"sizes": (3, 4), "action_bounds": {"low": [-1] * 4, "high": [[1, 1], [1, 1]]}})


def test_a_box_as_json_is_what_it_always_was():
    """Policies, models and runs that were written before have to stay readable."""
    spaces = Spaces("Plain-v0", box(3), gymnasium.spaces.Box(np.float32([-1, -2]), np.float32([1, 5])))
    data = {"sizes": [3, 2], "action_bounds": {"low": [-1.0, -2.0], "high": [1.0, 5.0]}}
    assert spaces.to_json() == data
    assert spaces.difference(Spaces.from_json("Again-v0", data)) is None
    assert spaces.sizes == Sizes(3, 2, "box")
    for damage in ({"sizes": [0, 2]}, {"sizes": [3, 10**9]}, {"sizes": [10**9, 2]}, {"sizes": [3, 1]}):
        with pytest.raises(ValueError, match="size"):
            Spaces.from_json("Damaged-v0", {**data, **damage})


@pytest.mark.parametrize(("n", "start"), [(2, 0), (1, 0), (3, 5), (4, -2), (2**24, 0)])
def test_discrete_actions(n, start):
    space = gymnasium.spaces.Discrete(n, start=start)
    spaces = Spaces("Choice-v0", box(3), space)
    assert spaces.sizes == Sizes(3, n, "discrete")
    assert spaces.sizes.action_width == 1
    index = np.array([[0], [n - 1]], np.float32)
    own = spaces.scale(index)
    assert own.shape == (2,)
    np.testing.assert_array_equal(own, [start, start + n - 1])
    np.testing.assert_array_equal(spaces.unscale(own), index)
    np.testing.assert_array_equal(spaces.actions.scale_in_jax(index), own)
    one = spaces.scale(index[0])
    assert isinstance(one, np.int64)
    assert space.contains(one)
    drawn = {int(spaces.actions.random(np.random.default_rng(seed))[0]) for seed in range(40)}
    assert drawn == set(range(n)) if n < 5 else max(drawn) > n / 2
    for wrong in (-1, n, 0.5):
        with pytest.raises(RunFailure, match="not a whole number from 0 to"):
            spaces.scale(np.array([wrong], np.float32))


@pytest.mark.parametrize(("n", "start"), [(2**24 + 1, 0), (2, 2**24), (2**25, -(2**24)), (2, -(2**24) - 1)])
def test_numbers_that_float32_cannot_hold_are_refused(n, start):
    with pytest.raises(UsageError, match="at most 2"):
        Spaces("Choice-v0", box(3), gymnasium.spaces.Discrete(n, start=start))


def test_discrete_actions_as_json():
    spaces = Spaces("Counted-v0", box(2), gymnasium.spaces.Discrete(3, start=5))
    data = json.loads(json.dumps(spaces.to_json()))
    assert spaces.difference(Spaces.from_json("Again-v0", data)) is None
    assert spaces.difference(Spaces("Box-v0", box(2), gymnasium.spaces.Box(-1, 1, (3,)))) == (
        "an action space of kind discrete, and Box-v0 has one of kind box"
    )
    other = Spaces("Other-v0", box(2), gymnasium.spaces.Discrete(3))
    assert spaces.difference(other) == "actions from 5, and Other-v0 has 0"
    for damage in ({"n": 4, "start": 0}, {"n": "3", "start": 0}, {"n": 3, "start": 2**30}):
        with pytest.raises(ValueError, match="a choice of"):
            Spaces.from_json("Damaged-v0", {**data, "action_choices": damage})
