"""Models from Python: they learn, predict, go on, and come back from their files."""

import copy
import json
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.api.arguments import INSTEAD, NOT_SUPPORTED
from tests.api.models import OBS, TINY, make
from tests.conftest import all_but_slow, leaves_equal

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "name",
    all_but_slow(
        ["ME_SAC", "ME_DDPG", "DDPG", "TD3", "SAC", "REDQ", "SUNRISE", "ACE", "DroQ", "CrossQ", "ME_CrossQ"],
        ["ME_SAC", "TD3", "ACE"],
    ),
)
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


def test_n_steps_ahead():
    """In the middle of an episode a transition holds three rewards, and gamma^2 as `alive`; a copy goes on alike."""
    one, three = make().learn(45), make(n_steps=3).learn(45)
    assert three.spec == replace(one.spec, n_step=3)
    gamma, (_, _, reward, alive, next_obs, _) = one.gamma, three.replay_buffer.transition(10)
    singly = [one.replay_buffer.transition(10 + k) for k in range(3)]  # in the warm-up, where both act alike
    np.testing.assert_allclose(reward, sum(gamma**k * each.reward for k, each in enumerate(singly)), rtol=1e-6)
    np.testing.assert_allclose(alive, gamma**2)
    np.testing.assert_array_equal(next_obs, singly[2].next_obs)
    twin = copy.deepcopy(three)
    assert leaves_equal(three.learn(25)._standing.state, twin.learn(25)._standing.state)


def test_to_learn_twice_is_to_go_on():
    once, twice = make().learn(70), make().learn(45).learn(25)
    assert leaves_equal(once._standing.state, twice._standing.state)
    assert (once.num_timesteps, twice.num_timesteps) == (70, 25)
    thrice = make().learn(45).learn(25, reset_num_timesteps=False)
    assert thrice.num_timesteps == 70


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
    assert several._standing.updates == 52 - 28
    vector = gymnasium.make_vec("StubScaled-v0", 2, vectorization_mode="sync")
    assert make(env=vector).learn(34).n_envs == 2


def test_ctrl_c_waits_for_the_step_and_leaves_the_model_whole(tmp_path):
    """In a process of its own: the networks are given away while they are updated."""
    code = f"""
import signal, mepg, tests.run.stubs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
model = mepg.ME_SAC("MlpPolicy", "StubScaled-v0", **{TINY!r})
model.learn(40)

def tell(variables, _):
    if variables["self"].num_timesteps == 5:
        print("learning", flush=True)

for _ in range(3):
    try:
        model.learn(10_000_000, callback=tell)
    except KeyboardInterrupt:
        model.save({str(tmp_path / "kept")!r})
        print("saved", model.num_timesteps > 0, model.predict([0.0, 0.0, 0.0])[0].shape, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for _ in range(3):
        assert process.stdout.readline() == "learning\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "saved True (2,)\n"
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert mepg.ME_SAC.load(tmp_path / "kept").predict(OBS)[0].shape == (2,)


def test_to_end_before_the_first_update_is_said():
    with pytest.warns(UserWarning, match="nothing has been learned yet: the first 30 actions are random"):
        make().learn(20)


def test_infos_are_those_of_a_vec_env():
    ends = []

    def look(variables, _):
        if variables["dones"][0]:
            ends.append((variables["infos"][0], variables["new_obs"][0]))

    model = make().learn(60, callback=look)
    ((info, new_obs),) = ends  # an episode has 50 steps
    assert info["episode"]["l"] == 50
    rewards = model.replay_buffer.read(0, 50)[:, 5]
    assert info["episode"]["r"] == pytest.approx(rewards.sum(), rel=1e-4)
    np.testing.assert_array_equal(info["terminal_observation"], model.replay_buffer.read(49, 50)[0, 7:])
    np.testing.assert_array_equal(new_obs, model.replay_buffer.read(50, 51)[0, :3])
    assert info["TimeLimit.truncated"]


def test_a_progress_bar(capsys):
    make().learn(35, progress_bar=True)
    assert "learning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "CnnPolicy"}, "there is only 'MlpPolicy'"),
        ({"device": "cuda"}, "mepg computes on the CPU"),
        ({"env": "CartPole-v1"}, r"CartPole-v1 has Discrete\(2\): use dqn, me-dqn"),
        ({"env": "Nowhere-v0"}, "unknown environment"),
        ({"env": 7}, "int is not a kind of environment: give an id"),
        ({"threads": 2}, "this process computes with 1"),
        ({"use_sde": True}, "use_sde=True is not supported"),
        ({"n_envs": 0}, "n_envs must be a whole number, at least 1"),
    ],
)
def test_bad_arguments(trained, arguments, says):
    with pytest.raises(mepg.UsageError, match=says):
        mepg.ME_SAC(**{"policy": "MlpPolicy", "env": "StubPlain-v0", **TINY, **arguments})


def test_importing_the_package_waits_for_nothing():
    """JAX is only imported when a model is."""
    code = (
        "import sys, mepg; assert 'jax' not in sys.modules; mepg.ME_SAC; assert 'jax' in sys.modules; print(dir(mepg))"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ME_SAC" in text
    with pytest.raises(AttributeError, match="no attribute 'PPO'"):
        mepg.PPO  # noqa: B018


@pytest.mark.parametrize("steps", [-1, "100", 1.5, None, True, float("nan"), float("inf"), [100], np.array([3, 4])])
def test_so_many_steps_there_are_not(trained, steps):
    before = trained.num_timesteps
    with pytest.raises(mepg.UsageError, match="total_timesteps must be a whole number, at least 0, not") as error:
        trained.learn(steps)
    assert "\n" not in str(error.value)
    assert trained.num_timesteps == before


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


@pytest.mark.parametrize("steps", [1e2, np.int64(100), np.float32(100), 100])
def test_a_whole_number_is_one_however_it_is_written(steps):
    assert make().learn(steps).num_timesteps == 100


@pytest.mark.parametrize(
    ("argument", "value"), [("log_interval", 0), ("log_interval", "4"), ("log_interval", -1), ("log_interval", 0.5)]
)
def test_a_log_interval_is_a_number_of_episodes(trained, argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        trained.learn(10, **{argument: value})


@pytest.mark.parametrize(
    ("argument", "value"), [("seed", "3"), ("seed", -1), ("seed", 1.5), ("n_envs", "2"), ("n_envs", 0)]
)
def test_numbers_that_are_none(argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        make(**{argument: value})


def test_settings_by_their_names(trained):
    assert (trained.buffer_size, trained.learning_starts, trained.batch_size) == (500, 30, 8)
    assert (trained.gamma, trained.tau, trained.learning_rate) == (0.99, 0.005, 3e-4)
    assert (trained.gradient_steps, trained.train_freq, trained.device) == (1, 1, "cpu")
    assert mepg.ACE().learning_rate == 1e-4
    with pytest.raises(AttributeError, match="gamma"):
        trained.gamma = 0.9
    assert trained.ep_info_buffer == [{"r": pytest.approx(trained._standing.recent[0].total), "l": 50}]
    json.dumps(trained.ep_info_buffer)


@pytest.mark.parametrize("name", [*INSTEAD, *NOT_SUPPORTED])
def test_what_is_left_out_says_what_to_use(trained, name):
    assert not hasattr(trained, name)
    with pytest.raises(AttributeError, match=f"ME_SAC has no '{name}': ") as error:
        getattr(trained, name)
    assert "\n" not in str(error.value)
