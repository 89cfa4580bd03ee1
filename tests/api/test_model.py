"""Models from Python: they learn, predict, go on, and come back from their files."""

import json
import zipfile
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.algos import algorithms
from tests.api.models import OBS, make
from tests.conftest import all_but_slow

NAMES = [entry.python_name for entry in algorithms().values() if entry.python_name and "box" in entry.actions]


@pytest.mark.parametrize("name", all_but_slow(NAMES, ["ME_SAC", "TD3", "ACE"]))
def test_every_class_learns_predicts_and_comes_back(name, tmp_path):
    kind = getattr(mepg, name)
    few = {"gradient_steps": 1} if name == "DroQ" else {}
    kwargs = {"net_arch": [8, 8]}
    model = make(kind, policy_kwargs=kwargs, **few).learn(40)
    action, state = model.predict(OBS, deterministic=True)
    assert action.shape == (2,)
    assert state is None
    assert model.action_space.contains(action)
    model.save(tmp_path / "model")
    again = kind.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(OBS, deterministic=True)[0], action)
    assert kind.__doc__
    assert (
        kind.algorithm in json.loads(zipfile.ZipFile(tmp_path / "model.zip").read("model.json"))["config"]["algorithm"]
    )


def test_a_whole_spec_and_any_name():
    spec = replace(mepg.ME_SAC.default_spec, critics=2, hidden=(8,), warmup=20, batch_size=8)
    assert mepg.ME_SAC("MlpPolicy", "StubPlain-v0", spec=spec).spec == spec
    assert mepg.ME_SAC("MlpPolicy", "StubPlain-v0", spec=spec, gamma=0.5).spec == replace(spec, discount=0.5)
    assert mepg.algorithm("me-ddpg+cdq").default_spec.critics == 2
    assert mepg.algorithm("me-sac") is mepg.ME_SAC
    with pytest.raises(mepg.UsageError, match="did you mean 'me-sac'"):
        mepg.algorithm("me-sacc")
    with pytest.raises(mepg.UsageError, match="spec must be a Spec"):
        mepg.ME_SAC("MlpPolicy", "StubPlain-v0", spec=mepg.ACE.default_spec)


def test_an_environment_object_and_several_at_once():
    class Shift(gymnasium.RewardWrapper):
        def reward(self, reward):
            return float(reward) + 100

    model = make(env=Shift(gymnasium.make("StubScaled-v0"))).learn(32)
    assert model.replay_buffer.read(0, 32)[:, 5].min() > 80  # the reward follows 3 numbers of s and 2 of a
    several = make(env="StubScaled-v0", n_envs=4).learn(50)
    assert several.num_timesteps == 52, "a step in each of four is four steps"
    assert several.n_envs == 4
    assert several._learner.loop.updates == 52 - 28
    vector = gymnasium.make_vec("StubScaled-v0", 2, vectorization_mode="sync")
    assert make(env=vector).learn(34).n_envs == 2


@pytest.mark.parametrize("number", [10**23, 1e23, np.int64(2**62), 10**400])
def test_every_count_is_bounded(trained, number):
    counts = {
        "total_timesteps": lambda: trained.learn(number),
        "log_interval": lambda: trained.learn(0, log_interval=number),
        "n": lambda: trained.q_samples(np.zeros(3), np.zeros(2), n=number),
        "seed": lambda: make(seed=number),
        "n_envs": lambda: make(n_envs=number),
        "learning_starts": lambda: make(learning_starts=number),
        "buffer_size": lambda: make(buffer_size=number),
    }
    for name, call in counts.items():
        with pytest.raises(mepg.UsageError, match=f"^{name}.* must be (at most|in) .*, not ") as error:
            call()
        assert "\n" not in str(error.value)


def test_settings_by_their_names(trained):
    assert (trained.buffer_size, trained.learning_starts, trained.batch_size) == (500, 30, 8)
    assert (trained.gamma, trained.tau, trained.learning_rate) == (0.99, 0.005, 3e-4)
    assert (trained.gradient_steps, trained.train_freq, trained.device) == (1, 1, "cpu")
    assert mepg.ACE().learning_rate == 1e-4
    with pytest.raises(AttributeError, match="gamma"):
        trained.gamma = 0.9
    assert trained.ep_info_buffer == [{"r": pytest.approx(trained._learner.loop.recent_episodes[0].return_), "l": 50}]
    json.dumps(trained.ep_info_buffer)
