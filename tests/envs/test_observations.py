"""Observations of every kind of space: flattened as Gymnasium does it, and nothing but that."""

import json
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from gymnasium.spaces.utils import flatdim, flatten
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from mepg.envs.env import Env
from mepg.envs.observations import Misfit, Observations, entry, space_from_json
from mepg.envs.spaces import Spaces
from mepg.envs.vector import SerialEnvs, make_envs
from mepg.errors import RunFailure, UsageError
from tests.envs.own import Camera, Reach
from tests.run import stubs

ACTIONS = Box(-1, 1, (1,))


def random_space(rng, depth=0):
    match rng.integers(7 if depth < 3 else 5):
        case 0:
            shape = tuple(map(int, rng.integers(0, 4, rng.integers(4))))
            return Box(-5, 5, shape, rng.choice([np.float32, np.float64, np.int64]))
        case 1:
            return Discrete(int(rng.integers(1, 6)), start=int(rng.integers(-3, 4)))
        case 2:
            counts = rng.integers(1, 4, (2, 2) if rng.random() < 0.5 else 3)
            return MultiDiscrete(counts, start=rng.integers(-2, 3, counts.shape))
        case 3:
            return MultiBinary([2, 3] if rng.random() < 0.5 else 4)
        case 4:
            return Box(0, 255, (2, 3, 1), np.uint8)
        case 5:
            return Dict({f"k{i}": random_space(rng, depth + 1) for i in rng.permutation(3)})
    return Tuple([random_space(rng, depth + 1) for _ in range(2)])


def some_spaces():
    spaces = [random_space(np.random.default_rng(seed)) for seed in range(200)]
    return [space for space in spaces if flatdim(space)]


def test_flattened_as_gymnasium_does_it():
    spaces = some_spaces()
    assert {type(space) for space in spaces} == {Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple}
    for space in spaces:
        space.seed(0)
        codec, samples = Observations(space, "Any-v0"), [space.sample() for _ in range(4)]
        assert codec.size == flatdim(space)
        rows = np.stack([codec.flatten(sample) for sample in samples])
        np.testing.assert_array_equal(rows, np.stack([flatten(space, sample) for sample in samples]).astype(np.float32))
        assert rows.dtype == np.float32
        for row in rows:
            own = codec.unflatten(row)
            np.testing.assert_array_equal(flatten(space, own).astype(np.float32), row)
            assert codec.is_flat or space.contains(own)


def test_a_batch_is_its_rows():
    for space in some_spaces():
        space.seed(1)
        codec, samples = Observations(space, "Any-v0"), [space.sample() for _ in range(3)]
        rows = np.stack([codec.flatten(sample) for sample in samples])
        batch = gymnasium.vector.utils.create_empty_array(space, 3)
        batch = gymnasium.vector.utils.concatenate(space, samples, batch)
        assert codec.count(batch, None) == (3,)
        assert codec.count(samples[0], None) == ()
        np.testing.assert_array_equal(codec.flatten(batch, (3,)), rows)
        np.testing.assert_array_equal(codec.flatten(codec.unflatten(rows), (3,)), rows)
        np.testing.assert_array_equal(codec.flatten(entry(batch, 1) if codec.is_nested else batch[1]), rows[1])


def test_a_structure_survives_a_file():
    for space in some_spaces():
        spaces = Spaces("Any-v0", space, ACTIONS)
        data = json.loads(json.dumps(spaces.to_json()))
        again = Spaces.from_json("Again-v0", data)
        assert spaces.difference(again) is None
        space.seed(2)
        sample = space.sample()
        np.testing.assert_array_equal(spaces.obs(sample), again.obs(sample))
        if "observations" in data:
            with pytest.raises(ValueError, match="observations of size"):
                Spaces.from_json("Again-v0", {**data, "sizes": [spaces.sizes.obs + 1, 1]})


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"dict": 3},
        {"dict": [["x"]]},
        {"tuple": [None]},
        {"box": [10**9]},
        {"box": [-1]},
        {"box": ["3"]},
        {"discrete": 0, "start": 0},
        {"discrete": 10**9, "start": 0},
        {"discrete": 3, "start": 10**30},
        {"multi_discrete": [10**30], "start": [0]},
        {"multi_discrete": [2, 2], "start": [0]},
        {"multi_discrete": [10**6, 10**6], "start": [0, 0]},
        {"multi_binary": [10**9]},
    ],
)
def test_a_damaged_structure_is_refused(data):
    with pytest.raises(ValueError, match=r"."):
        Observations(space_from_json(data), "Any-v0")


def test_a_structure_that_never_ends_is_refused():
    data = {"box": [1]}
    for _ in range(100):
        data = {"tuple": [data]}
    with pytest.raises(ValueError, match="observation space"):
        space_from_json(data)


def test_other_structures_are_other_observations():
    dict_of = partial(Spaces, "One-v0", actions=ACTIONS)
    one = dict_of(Dict({"a": Box(-1, 1, (2,)), "b": Discrete(2)}))
    others = {
        "of size 4": Box(-1, 1, (4,)),
        "a[2], c[]": Dict({"a": Box(-1, 1, (2,)), "c": Discrete(2)}),
        "a[2], b[2]": Dict({"a": Box(-1, 1, (2,)), "b": Box(-1, 1, (2,))}),
        "0[2], 1[]": Tuple([Box(-1, 1, (2,)), Discrete(2)]),
        "of shape [2, 2]": Box(-1, 1, (2, 2)),
    }
    for words, space in others.items():
        difference = one.difference(Spaces("Other-v0", space, ACTIONS))
        assert difference == f"observations a[2], b[], and Other-v0 has {words}"
    assert one.difference(dict_of(Dict({"a": Box(0, 9, (2,), np.uint8), "b": Discrete(2)}))) is None


@pytest.mark.parametrize("space", [Text(5), Sequence(Discrete(2)), Graph(Discrete(2), None), OneOf([Discrete(2)])])
@pytest.mark.parametrize("place", ["alone", "inside"])
def test_what_has_no_fixed_size_is_refused_by_name(space, place):
    alone = place == "alone"
    with pytest.raises(UsageError) as refusal:
        Observations(space if alone else Dict({"a": Discrete(2), "b": Tuple([space])}), "Odd-v0")
    label = "observation" if alone else "observation['b'][0]"
    assert str(refusal.value).startswith(f"Odd-v0's {label} is a {type(space).__name__}, which is not a fixed number")
    assert "gymnasium.wrappers.TransformObservation" in str(refusal.value)


def test_too_little_and_too_much():
    with pytest.raises(UsageError, match="empty observations"):
        Observations(Dict({}), "Empty-v0")
    with pytest.raises(UsageError, match="1,000,001 numbers; at most 1,000,000"):
        Observations(Tuple([Discrete(10**6), Box(-1, 1, ())]), "Vast-v0")
    with pytest.raises(UsageError, match="a text as its key"):
        Observations(Dict({3: Discrete(2)}), "Counted-v0")


def without(*path):
    def spoil(obs):
        *outer, last = path
        inner = obs
        for key in outer:
            inner = inner[key]
        del inner[last]
        return obs

    return spoil


def instead(value, *path):
    def spoil(obs):
        if not path:
            return value
        *outer, last = path
        inner = obs
        for key in outer:
            inner = inner[key]
        inner[last] = value
        return obs

    return spoil


SPOILED = {
    "no observation['desired_goal']": without("desired_goal"),
    "no observation['gripper']['force']": without("gripper", "force"),
    "no observation['touched'][1]": instead((np.zeros(2),), "touched"),
    "a str as observation, not a Dict": instead("here"),
    "float64[3] as observation['gripper'], not a Dict": instead(np.zeros(3), "gripper"),
    "7 as observation['touched'], not a Tuple": instead(7, "touched"),
    "a str as observation['desired_goal'], not real numbers": instead("there", "desired_goal"),
    "None as observation['gripper']['force'], not real numbers": instead(None, "gripper", "force"),
    "observation['observation'] of shape (4,), not (2, 2)": instead(np.zeros(4), "observation"),
    "4 as observation['gripper']['open'], not a whole number from 1 to 3": instead(4, "gripper", "open"),
    "1.5 as observation['gripper']['open'], not a whole number": instead(1.5, "gripper", "open"),
    "2 as observation['touched'][1], not a whole number from -1 to 1": instead((np.zeros(2), [0, 2]), "touched"),
    "observation['observation'] with nan at index 1, 0": instead([[1, 2], [np.nan, 3]], "observation"),
    "observation['gripper']['force'] with inf": instead(np.inf, "gripper", "force"),
    "observation['desired_goal'] with 1e+300 at index 0, which is more than float32 holds": instead(
        [1e300, 0], "desired_goal"
    ),
}


@pytest.mark.parametrize("says", SPOILED)
def test_what_is_wrong_is_named_with_its_path(says):
    env = Env(Reach(spoil=SPOILED[says], at=3))
    env.reset(0)
    for _ in range(2):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(RunFailure) as failure:
        env.step(np.zeros(2, np.float32))
    assert str(failure.value).startswith(f"Reach returned {says}")
    with pytest.raises(Misfit):  # of a batch, by the same words
        env.spaces.observations.flatten(SPOILED[says](Reach.observation_space.sample()))


def test_what_is_more_than_the_space_says_is_left_out():
    env = Reach()
    obs, _ = env.reset(seed=0)
    codec = Observations(Reach.observation_space, "Reach-v0")
    np.testing.assert_array_equal(codec.flatten({**obs, "extra": "anything"}), codec.flatten(obs))


def test_an_image_is_accepted_and_said_to_be_plain_numbers():
    env = Env(Camera())
    assert env.sizes.obs == 48 + Env(Reach()).sizes.obs
    note = env.spaces.observations.note
    assert note == (
        "Camera has images (observation['image'] of shape (4, 4, 3)): they are plain numbers here, without convolution"
    )
    assert not Env(Reach()).spaces.observations.note


@pytest.mark.parametrize("space", [Box(-1, 1, ()), Box(-1, 1, (1, 3)), Box(0, 9, (2, 2), np.int64), Discrete(3)])
def test_an_environment_with_one_such_space(space):
    class Observes(stubs.Box):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

    flat = Env(gymnasium.wrappers.FlattenObservation(Observes(observations=space)))
    env = Env(Observes(observations=space))
    assert env.sizes.obs == flat.sizes.obs == flatdim(space)
    np.testing.assert_array_equal(env.reset(3), flat.reset(3))


class ReachLikeStableBaselines:
    """Its VecEnv of a Dict, from the outside: a dict of arrays, and at an end the last observation in the info."""

    num_envs = 3
    observation_space, action_space = Reach.observation_space, Reach.action_space

    def __init__(self, lengths=(4, 5, 6)):
        self.envs = [Reach(length) for length in lengths]

    def seed(self, seed):
        self.seeds = [seed + index for index in range(3)]

    def stack(self, observations):
        batch = gymnasium.vector.utils.create_empty_array(self.observation_space, 3)
        return gymnasium.vector.utils.concatenate(self.observation_space, observations, batch)

    def reset(self):
        return self.stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, self.seeds, strict=True)])

    def step(self, actions):
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        obs, rewards, _, truncated, infos = (list(column) for column in zip(*results, strict=True))
        for place in np.flatnonzero(truncated):
            infos[place] = {"terminal_observation": obs[place], "TimeLimit.truncated": True}
            obs[place], _ = self.envs[place].reset()
        return self.stack(obs), np.array(rewards), np.array(truncated), infos

    step_async = step_wait = close = lambda self: None


REACHING = [partial(Reach, length) for length in (4, 5, 6)]
VECTORS = {
    **{mode.name: partial(SyncVectorEnv, REACHING, autoreset_mode=mode) for mode in AutoresetMode},
    "processes": partial(AsyncVectorEnv, REACHING, context="spawn"),
    "processes, same step": partial(AsyncVectorEnv, REACHING, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn"),
    "like Stable-Baselines3": ReachLikeStableBaselines,
}


@pytest.mark.parametrize("kind", VECTORS)
def test_every_vector_gives_what_the_environments_give(kind):
    together = make_envs(VECTORS[kind](), seed=0)
    alone = SerialEnvs([Env(make()) for make in REACHING])
    resets_itself = kind not in ("NEXT_STEP", "DISABLED", "processes")  # by seeds of its own
    for place in range(3):
        np.testing.assert_array_equal(alone.begin(place, place), together.begin(place, place))
    rng = np.random.default_rng(0)
    for _ in range(4 if resets_itself else 9):
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        for place, (one, other) in enumerate(zip(alone.step(actions), together.step(actions), strict=True)):
            np.testing.assert_array_equal(one.obs, other.obs)
            assert one.done == other.done
            if one.done and not resets_itself:
                np.testing.assert_array_equal(alone.begin(place, place), together.begin(place, place))
    together.close()
    alone.close()


def test_a_vector_without_an_entry_is_named_too():
    class Forgets(ReachLikeStableBaselines):
        def step(self, actions):
            obs, *rest = super().step(actions)
            del obs["gripper"]["open"]
            return obs, *rest

    envs = make_envs(Forgets())
    with pytest.raises(RunFailure, match=r"^Forgets returned no observation\['gripper'\]\['open'\]$"):
        envs.step(np.zeros((3, 2), np.float32))
