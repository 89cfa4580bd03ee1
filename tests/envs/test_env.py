import json
import sys

import gymnasium
import numpy as np
import pytest

from mepg.envs.env import Env
from mepg.envs.spaces import Spaces
from mepg.errors import RunFailure, UsageError
from mepg.paper.tasks import PAPER_TASKS
from tests.run import stubs  # registers the stub environments


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


@pytest.mark.parametrize(
    ("space", "way_out"),
    [
        (gymnasium.spaces.Box(-1, 1, ()), True),
        (gymnasium.spaces.Box(-1, 1, (1, 3)), True),
        (gymnasium.spaces.Discrete(3), True),
        (gymnasium.spaces.Sequence(gymnasium.spaces.Box(-1, 1)), False),
        (gymnasium.spaces.Box(-1, 1, (0,)), False),
    ],
)
def test_the_way_out_of_other_observations_leads_out(space, way_out):
    class Observes(stubs.Box):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

    with pytest.raises(UsageError) as refusal:
        Env(Observes(observations=space))
    assert ("gymnasium.wrappers.FlattenObservation" in str(refusal.value)) == way_out
    if way_out:
        assert Env(gymnasium.wrappers.FlattenObservation(Observes(observations=space))).sizes.obs in (1, 3)


@pytest.mark.parametrize("env_id", ["HopperBulletEnv-v0", "ReacherBulletEnv-v0", "Pendulum-v1"])
def test_a_seed_gives_the_same_episode_whatever_came_before(env_id):
    def episode(env, seed, steps):
        rng = np.random.default_rng(seed)
        rows = [env.reset(seed)]
        for _ in range(steps):
            outcome = env.step(rng.uniform(-1, 1, env.sizes.action).astype(np.float32))
            rows.append(outcome.obs)
            if outcome.over:
                break
        return np.concatenate(rows)

    fresh, used = Env(env_id), Env(env_id)
    episode(used, 1, 40)
    episode(used, 2, 7)
    np.testing.assert_array_equal(episode(fresh, 3, 100), episode(used, 3, 100))


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("StubMultiBinary-v0", "MultiBinary actions; a Box or a Discrete is needed"),
        ("StubTooMany-v0", "at most 2^24 are possible"),
        ("StubIntegerBox-v0", "of type int64; floats are needed: give it a Box of floats"),
        ("StubUnbounded-v0", "infinite action bounds; give it finite ones"),
        ("StubDictObs-v0", "Dict observations; a flat Box is needed"),
        ("StubImageObs-v0", "of shape (8, 8); a flat Box is needed"),
        ("HoperBulletEnv-v0", "did you mean 'HopperBulletEnv-v0'"),
        ("no_such_package:Env-v0", "neither in this folder nor installed"),
        ("json:Env-v0", "unknown environment"),
        ("", "Malformed environment ID"),
        ("a/b/c", "environment"),
        (":", "cannot be made"),
        ("tests.run.broken:Foo-v0", "RuntimeError: not today"),
    ],
)
def test_environments_that_cannot_be_used(env_id, says):
    with pytest.raises(UsageError) as error:
        Env(env_id)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_pybullet_missing(monkeypatch):
    for name in PAPER_TASKS:
        monkeypatch.delitem(gymnasium.registry, name, raising=False)
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(UsageError, match=r"pip install 'mepg\[bullet\]'"):
        Env("HopperBulletEnv-v0")


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("StubNanObs-v0", "observation with nan at index 1"),
        ("StubInfReward-v0", "reward of inf"),
        ("StubWrongShape-v0", "observation of shape (2,), not (3,)"),
        ("StubRaises-v0", "step raised RuntimeError: the simulator is gone"),
    ],
)
def test_faults_are_named(env_id, says):
    env = Env(env_id)
    env.reset(0)
    with pytest.raises(RunFailure) as error:
        for _ in range(40):
            env.step(np.zeros(2, np.float32))
    assert says in str(error.value)


def test_simulators_chatter_stays_out_of_stdout(capfd):
    Env("HopperBulletEnv-v0").close()
    assert capfd.readouterr() == ("", "")
