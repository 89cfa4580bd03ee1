"""Models from Python: they learn, predict, go on, and come back from their files."""

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
from mepg.api.files import read_archive
from tests.conftest import leaves_equal
from tests.run import stubs  # noqa: F401

TINY = {
    "learning_starts": 30,
    "batch_size": 8,
    "buffer_size": 500,
    "policy_kwargs": {"net_arch": [8, 8]},
    "seed": 3,
}
ROOT = Path(__file__).parent.parent.parent
OBS = np.array([0.3, -0.2, 0.1], np.float32)


def make(kind=None, env="StubScaled-v0", **arguments):
    return (kind or mepg.ME_SAC)("MlpPolicy", env, **{**TINY, **arguments})


@pytest.fixture(scope="module")
def trained():
    return make().learn(60)


@pytest.mark.parametrize("name", ["ME_SAC", "ME_DDPG", "DDPG", "TD3", "SAC", "REDQ", "SUNRISE", "ACE", "DroQ"])
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


def test_predictions_are_within_the_environments_own_bounds(trained):
    batch = np.random.default_rng(0).normal(0, 10, (200, 3))
    actions, _ = trained.predict(batch)
    assert actions.shape == (200, 2)
    assert actions.min() >= -3
    assert actions.max() <= 5
    assert actions.max() > 1, "they are scaled"
    np.testing.assert_allclose(trained.predict(batch[7], deterministic=True)[0],
                               trained.predict(batch, deterministic=True)[0][7], atol=1e-5)  # fmt: skip


def test_a_gaussian_policy_is_drawn_from_and_a_deterministic_one_is_not(trained):
    assert not np.array_equal(trained.predict(OBS)[0], trained.predict(OBS)[0])
    certain = make(mepg.ME_DDPG).learn(35)
    np.testing.assert_array_equal(certain.predict(OBS)[0], certain.predict(OBS, deterministic=True)[0])
    # state and episode_start are handed through, and ignored
    assert trained.predict(OBS, state="mine", episode_start=[True])[1] == "mine"


def test_to_learn_twice_is_to_go_on():
    once, twice = make().learn(70), make().learn(45).learn(25)
    assert leaves_equal(once._standing.state, twice._standing.state)
    assert (once.num_timesteps, twice.num_timesteps) == (70, 25)
    thrice = make().learn(45).learn(25, reset_num_timesteps=False)
    assert thrice.num_timesteps == 70


def test_saved_and_loaded_it_goes_on_learning(trained, tmp_path):
    trained.save(tmp_path / "deep" / "model.zip")
    trained.save_replay_buffer(tmp_path / "memory")
    model = mepg.ME_SAC.load(tmp_path / "deep" / "model", env="StubScaled-v0")
    assert leaves_equal(model._standing.state, trained._standing.state)
    model.load_replay_buffer(tmp_path / "memory")
    assert len(model.replay_buffer) == len(trained.replay_buffer) == 60
    np.testing.assert_array_equal(model.replay_buffer.read(0, 60), trained.replay_buffer.read(0, 60))
    before = model._standing.updates
    model.learn(20)
    assert model._standing.updates == before + 20, "the warm-up is over"
    assert not leaves_equal(model._standing.state, trained._standing.state)
    assert (tmp_path / "memory.npz").exists()


def test_a_folder_of_the_command_line_loads_too(tmp_path):
    from mepg.cli import main

    tiny = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]
    argv = ["train", "me-sac-r", "--env", "StubScaled-v0", "--steps", "40", "--out", str(tmp_path / "run"), *tiny]
    assert main([*argv, "--normalize-obs"]) == 0
    model = mepg.load(tmp_path / "run", env="StubScaled-v0")
    assert model.algorithm == "me-sac-r"
    assert type(model._standing.state).__name__ == "Normalised"
    from mepg.envs.env import Env
    from mepg.run.folder import Folder
    from mepg.run.policy import load_policy

    env = Env("StubScaled-v0")
    expected = env.spaces.scale(load_policy(Folder(tmp_path / "run"), env).act(OBS))
    np.testing.assert_allclose(model.predict(OBS, deterministic=True)[0], expected, atol=1e-6)
    model.learn(10)
    with pytest.raises(mepg.UsageError, match=r"holds me-sac-r, not me-sac: load it with mepg\.load"):
        mepg.ME_SAC.load(tmp_path / "run")


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


def test_normalised_observations_are_saved_with_the_model(tmp_path):
    model = make(normalize_obs=True).learn(60)
    state = model._standing.state
    assert int(state.batches) == 30
    model.save(tmp_path / "m")
    again = mepg.ME_SAC.load(tmp_path / "m")
    far = OBS * 3
    np.testing.assert_array_equal(again.predict(far, deterministic=True)[0], model.predict(far, deterministic=True)[0])
    assert leaves_equal(again._program.unflatten(again._standing.held), state)


class Counter:
    """A callback with Stable-Baselines3's method names, and nothing of Stable-Baselines3."""

    def __init__(self, stop=None):
        self.said, self.stop, self.steps = [], stop, []

    def init_callback(self, model):
        self.model = model

    def on_training_start(self, locals_, globals_):
        self.said.append("start")

    def on_step(self):
        self.steps.append(self.model.num_timesteps)
        return len(self.steps) != self.stop

    def on_training_end(self):
        self.said.append("end")


def test_callbacks_are_functions_or_objects():
    seen = []

    def function(variables, _):
        seen.append((variables["rewards"].shape, variables["dones"].tolist(), variables["self"].num_timesteps))

    first, second = Counter(), Counter(stop=12)
    model = make(learning_starts=8).learn(30, callback=[first, function, second])
    assert model.num_timesteps == 12, "one of them said stop"
    assert first.steps == second.steps == list(range(1, 13))
    assert first.said == ["start", "end"]
    assert seen[-1] == ((1,), [False], 12)
    with pytest.raises(mepg.UsageError, match="a callback is a function of"):
        model.learn(1, callback="loud")


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

try:
    model.learn(10_000_000, callback=tell)
except KeyboardInterrupt:
    model.save({str(tmp_path / "kept")!r})
    print("saved", model.num_timesteps > 0, model.predict([0.0, 0.0, 0.0])[0].shape)
"""
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout.readline() == "learning\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        assert out == "saved True (2,)\n"
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


def test_the_log_is_a_table_and_says_how_often_it_learns(capsys, tmp_path):
    model = make(verbose=1, n_envs=2, env="StubScaled-v0", tensorboard_log=tmp_path)
    model.learn(300, log_interval=2)
    text = capsys.readouterr().out
    assert "2 environments at a time, 1 gradient step for each step in an environment" in text
    for name in ("rollout/", "ep_rew_mean", "time/", "total_timesteps", "train/", "critic_loss"):
        assert name in text
    assert list((tmp_path / "ME_SAC_1").glob("events.out.*"))
    make(tensorboard_log=tmp_path, learning_starts=2).learn(5)
    assert (tmp_path / "ME_SAC_2").is_dir()


def test_another_logger_gets_the_same(tmp_path):
    rows = []

    class Mine:
        def record(self, name, value, exclude=None):
            rows.append(name)

        def dump(self, step):
            rows.append(step)

    model = make()
    model.set_logger(Mine())
    model.learn(250, log_interval=4)
    assert rows[-1] == 200
    assert "train/critic_loss" in rows


def test_a_progress_bar(capsys):
    make().learn(35, progress_bar=True)
    assert "learning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("obs", "says"),
    [
        (np.zeros(4), r"an observation has shape \(3,\), or \(n, 3\) for several, not \(4,\)"),
        (np.zeros((2, 2, 3)), r"not \(2, 2, 3\)"),
        (0.0, r"not \(\)"),
        ([0.0, np.nan, 0.0], "the observation holds nan at index 1"),
        ([[0.0, 0.0, 0.0], [0.0, 0.0, np.inf]], r"holds inf at index \(1, 2\)"),
        ({"x": 1}, "an observation is 3 numbers, not a dict"),
        ("left", "an observation is 3 numbers, not a str"),
    ],
)
def test_bad_observations(trained, obs, says):
    with pytest.raises(mepg.UsageError, match=says):
        trained.predict(obs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "CnnPolicy"}, "there is only 'MlpPolicy'"),
        ({"device": "cuda"}, "mepg computes on the CPU"),
        ({"env": "CartPole-v1"}, r"CartPole-v1 has Discrete\(2\): none of"),
        ({"env": "Nowhere-v0"}, "unknown environment"),
        ({"env": 7}, "a int is no environment: give an id"),
        ({"threads": 2}, "this process computes with 1"),
        ({"use_sde": True}, "use_sde=True is not supported"),
        ({"n_envs": 0}, "n_envs must be a whole number, at least 1"),
    ],
)
def test_bad_arguments(trained, arguments, says):
    with pytest.raises(mepg.UsageError, match=says):
        mepg.ME_SAC(**{"policy": "MlpPolicy", "env": "StubPlain-v0", **TINY, **arguments})


def test_a_model_of_other_spaces_is_refused(trained, tmp_path):
    trained.save(tmp_path / "m")
    with pytest.raises(mepg.UsageError, match="trained on StubScaled-v0 with observations of size 3, and HopperBullet"):
        mepg.ME_SAC.load(tmp_path / "m", env="HopperBulletEnv-v0")
    with pytest.raises(mepg.UsageError, match=r"actions from \[-3.0, -3.0\], and StubPlain-v0 has \[-1.0, -1.0\]"):
        mepg.ME_SAC.load(tmp_path / "m", env="StubPlain-v0")
    with pytest.raises(mepg.UsageError, match="holds me-sac, not me-ddpg"):
        mepg.ME_DDPG.load(tmp_path / "m")
    without = mepg.ME_SAC.load(tmp_path / "m")
    with pytest.raises(mepg.UsageError, match=r"no environment to learn in: model\.set_env\(env\)"):
        without.learn(10)
    without.set_env(gymnasium.make("StubScaled-v0"))
    without.learn(10)
    with pytest.raises(mepg.UsageError, match="no environment yet"):
        mepg.ME_SAC().predict(OBS)


def test_damaged_files_are_refused(trained, tmp_path):
    trained.save(tmp_path / "m")
    whole = (tmp_path / "m.zip").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        if rng.random() < 0.5:
            damaged = damaged[: rng.integers(len(damaged))]
        else:
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        (tmp_path / "d.zip").write_bytes(bytes(damaged))
        try:
            mepg.ME_SAC.load(tmp_path / "d")
        except mepg.UsageError:
            continue
        # The archive's checksums cover what is inside; what is left are dates and flags around it.
        assert leaves_equal(read_archive(tmp_path / "d.zip")[1], read_archive(tmp_path / "m.zip")[1])
    with zipfile.ZipFile(tmp_path / "z.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("model.json", "{}")
        bomb.writestr("arrays.safetensors", bytes(10_000_000))
    with pytest.raises(mepg.UsageError, match="is compressed, which nothing of ours is"):
        mepg.ME_SAC.load(tmp_path / "z")
    with pytest.raises(mepg.UsageError, match="there is neither a model"):
        mepg.ME_SAC.load(tmp_path / "nothing")


def test_importing_the_package_waits_for_nothing():
    """JAX is only imported when a model is."""
    code = (
        "import sys, mepg; assert 'jax' not in sys.modules; mepg.ME_SAC; assert 'jax' in sys.modules; print(dir(mepg))"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ME_SAC" in text
    with pytest.raises(AttributeError, match="no attribute 'PPO'"):
        mepg.PPO  # noqa: B018
