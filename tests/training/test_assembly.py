"""A loop from a config, and what becomes of its environments; which code computes it: test_native_program.py."""

import gymnasium
import numpy as np
import pytest

from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.training.assembly import assemble, open_loop
from mepg.training.config import Config
from mepg.training.data import Recording
from mepg.training.replay import MixedReplay
from tests.envs.own import Box
from tests.training.recordings import record

CONFIG = {"steps": 30, "eval_every": 30, "eval_episodes": 1}
SETTINGS = ["hidden=8", "batch_size=8", "warmup=100", "replay_size=50"]


class Counted(Box):
    """Knows how many of its kind are open."""

    made, open = 0, 0

    def __init__(self, sizes=(3,)):
        super().__init__(observations=gymnasium.spaces.Box(-np.inf, np.inf, sizes, np.float32))
        type(self).made += 1
        type(self).open += 1

    def close(self):
        type(self).open -= 1


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(Counted, "open", 0)
    spec = gymnasium.envs.registration.EnvSpec("Counted-v0", entry_point=Counted)
    monkeypatch.setitem(gymnasium.registry, "Counted-v0", spec)


def config(**more):
    return Config.make("me-ddpg", SETTINGS, env="Counted-v0", **CONFIG, **more)


def test_it_has_environments_of_its_own_and_closes_them():
    with open_loop(config(envs=2)) as loop:
        assert (loop.envs.count, Counted.open) == (2, 3), "two to train in, and one to evaluate in"
        assert loop.replay.capacity == 50
        assert [record.step for record in loop] == list(range(2, 31, 2))
        assert list(loop.evaluations) == [30]
    assert Counted.open == 0


def test_they_are_closed_whatever_goes_wrong():
    with pytest.raises(RuntimeError, match="not today"), open_loop(config()):
        raise RuntimeError("not today")
    assert Counted.open == 0
    with (
        pytest.raises(UsageError, match="cannot be used"),
        open_loop(config(backend="native")),
    ):  # CXX says: no compiler
        pass
    assert (Counted.made, Counted.open) == (4, 0)


def test_an_environment_that_is_another_each_time_is_refused(monkeypatch):
    sizes = iter([(3,), (4,)])
    monkeypatch.setattr(Box, "reset", lambda self, **_: (np.zeros(self.observation_space.shape, np.float32), {}))
    spec = gymnasium.envs.registration.EnvSpec("Counted-v0", entry_point=lambda: Counted(next(sizes)))
    monkeypatch.setitem(gymnasium.registry, "Counted-v0", spec)
    with pytest.raises(UsageError, match="is not the same each time that it is made"), open_loop(config()):
        pass
    assert Counted.open == 0


def test_in_existing_environments_nothing_is_evaluated_and_its_config_says_what_computes():
    envs = make_envs("Counted-v0")
    loop = assemble(config(backend="auto"), envs)
    list(loop)
    assert loop.evaluations == {}
    assert loop.config.backend == "xla"
    assert Counted.open == 1, "whoever made them closes them"
    envs.close()


@pytest.mark.parametrize("share", [None, 0.25])
def test_data_is_in_the_replay_buffer_or_beside_it(share):
    data = Recording("it", record("StubPlain-v0", episodes=1))
    envs = make_envs("Counted-v0")
    loop = assemble(config(data="it.npz", data_share=share), envs, data=data)
    rows = data.to_rows(envs.spaces, 1, 0.99)
    assert isinstance(loop.replay, MixedReplay) == (share is not None)
    list(loop)
    if share is None:
        assert loop.replay.count == 50 + 30, "it holds the data, and the ring has moved on"
        np.testing.assert_array_equal(loop.replay.read(30, 50), rows[30:])
    else:
        assert loop.replay.count == 30
        slots = [loop.replay.sample(np.full(8, fraction))[0] for fraction in (0.0, 0.999)]
        np.testing.assert_array_equal([batch[:2] for batch in slots], [[rows[0]] * 2, [rows[-1]] * 2])
        np.testing.assert_array_equal(slots[1][2:], loop.replay.read(29, 30).repeat(6, axis=0))
    envs.close()


def test_data_that_is_too_much_or_too_little():
    data, envs = Recording("it", record("StubPlain-v0")), make_envs("Counted-v0")
    says = (
        "it has 150 transitions, more than fit into the replay buffer: --set replay_size=150 or more, or --data-share"
    )
    with pytest.raises(UsageError, match=says):
        assemble(config(data="it.npz"), envs, data=data)
    for share in (0.01, 0.99):
        with pytest.raises(UsageError, match=f"data-share {share} of a batch of 8 is [08]: choose one that leaves"):
            assemble(config(data="it.npz", data_share=share), envs, data=data)
    envs.close()
