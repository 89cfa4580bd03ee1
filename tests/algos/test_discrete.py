"""An algorithm from outside the package with discrete actions: a small DQN, through every room."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import mepg
from mepg.cli import main
from mepg.envs.env import Env
from mepg.errors import RunFailure, UsageError
from mepg.export import files
from mepg.export.onnx import open_session
from mepg.export.standalone import load_policy as load_standalone
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.training.config import Config
from tests.algos import discrete
from tests.run.processes import assert_same_run, finish, kill_after_progress

NAME = "tests.algos.discrete:dqn"
TRAIN = [NAME, "--env", "CartPole-v1", "--steps", "1200", "--eval-every", "400", "--eval-episodes", "2"]
SMALL = ["--set", "hidden=16,16", "--set", "warmup=200", "--envs", "2"]


def command(out):
    return [sys.executable, "-m", "mepg", "train", *TRAIN, *SMALL, "--checkpoint-every", "150", "--out", str(out)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("discrete") / "run"
    finish(command(folder))
    return folder


@pytest.mark.faults
def test_killed_and_resumed_it_ends_with_the_same_bits(run, tmp_path):
    killed = tmp_path / "killed"
    status, _, err = kill_after_progress(command(killed), killed, 0.2)
    assert status in (-signal.SIGKILL, 0), err
    finish(command(killed))
    assert_same_run(run, killed)


def test_it_is_played_looked_into_and_drawn(run, capsys):
    named = ["--algorithm", NAME]
    assert main(["eval", str(run), "--episodes", "1", "--json", *named]) == 0
    assert min(json.loads(capsys.readouterr().out)["returns"]) >= 1
    assert main(["inspect", str(run), "--episodes", "1", *named]) == 0
    assert main(["plot", str(run), "--out", str(run / "curves.png"), *named]) == 0


def test_what_is_exported_gives_the_policys_index(run, tmp_path):
    argv = ["export", str(run), "--onnx", str(tmp_path / "p.onnx"), "--numpy", str(tmp_path / "plain")]
    assert main([*argv, "--algorithm", NAME]) == 0
    env = Env("CartPole-v1")
    policy, obs = (
        load_policy(Folder(run), env.spaces),
        np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype(np.float32),
    )
    expected = np.array([env.spaces.scale(policy.act(each)) for each in obs])
    assert set(expected) == {0, 1}, "a policy that always does the same shows nothing"
    (onnx,) = open_session((tmp_path / "p.onnx").read_bytes()).run(["action"], {"obs": obs})
    plain = load_standalone(tmp_path / "plain" / "policy.npz")
    for action in (onnx, plain(obs)):
        assert action.dtype == np.int64
        np.testing.assert_array_equal(action, expected)
    assert plain(obs[0]).shape == ()


def test_an_export_that_chooses_otherwise_is_refused(run):
    mepg.algorithm(NAME)
    source = files.open_run(Folder(run))
    assert source.rounding == 0
    with pytest.raises(RunFailure, match="differs from the run's policy by 1"):
        files._check(source, lambda obs: 1 - source.actions[: len(obs)])


class Counted(gymnasium.Env):
    """Actions counted from 5; takes nothing but a plain number, as a look-up table would."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        reward = {5: 0.0, 6: 0.5, 7: 1.0}[action]
        self.steps += 1
        return np.array([self.steps, action], np.float32), reward, self.steps == 10, False, {}


@pytest.mark.parametrize(
    "make",
    [Counted, lambda: SyncVectorEnv([Counted] * 2), lambda: SyncVectorEnv([Counted] * 2, autoreset_mode="SameStep")],
    ids=["one", "vector", "vector, reset in the same step"],
)
def test_from_python(make, tmp_path):
    model = mepg.algorithm(NAME)("MlpPolicy", make(), seed=0, learning_starts=30, batch_size=16)
    seen = []
    model.learn(100, callback=lambda variables, _: seen.append(variables["actions"]) or True)
    assert set(np.concatenate([np.atleast_1d(each) for each in seen])) == {5, 6, 7}
    rows = model.replay_buffer.read(0, 100)
    assert set(rows[:, 2]) == {0, 1, 2}, "rows hold the index, counted from 0"
    np.testing.assert_array_equal(rows[:, 2] + 5, rows[:, -1])
    np.testing.assert_array_equal(rows[:, 3], rows[:, 2] / 2)

    one, _ = model.predict(np.zeros(2), deterministic=True)
    several, _ = model.predict(np.zeros((4, 2)))
    assert one in (5, 6, 7)
    assert several.shape == (4,)
    assert model.action_space == Counted.action_space
    obs = model.get_env().reset()
    actions, _ = model.predict(obs)
    _, rewards, _, _ = model.get_env().step(actions)
    np.testing.assert_array_equal(rewards, (actions - 5) / 2)
    with pytest.raises(UsageError, match="have shape"):
        model.get_env().step(actions[..., None])

    mean, _ = model.q_posterior(np.zeros(2), [5, 6, 7])
    assert mean.shape == (3,)
    for wrong in (4, 8, 5.5, 5.00005):
        with pytest.raises(UsageError, match="which is not a whole number in"):
            model.q_posterior(np.zeros(2), wrong)

    model.save(tmp_path / "model")
    again = mepg.load(tmp_path / "model", env=make())
    np.testing.assert_array_equal(again.predict(np.eye(2))[0], model.predict(np.eye(2))[0])
    again.learn(20)
    with pytest.raises(UsageError, match="actions from 5, and CartPole-v1 has 0"):
        again.set_env(gymnasium.wrappers.TransformObservation(gymnasium.make("CartPole-v1"), lambda o: o[:2], box(2)))


def box(size):
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def test_who_can_use_which_actions():
    with pytest.raises(UsageError, match=r"me-sac needs a Box of actions; CartPole-v1 has Discrete\(2\): use .*me-dqn"):
        mepg.ME_SAC("MlpPolicy", "CartPole-v1")
    with pytest.raises(UsageError, match=r"dqn needs Discrete actions; Pendulum-v1 has a Box: use .*me-sac"):
        mepg.algorithm(NAME)("MlpPolicy", "Pendulum-v1")
    with pytest.raises(UsageError, match="actions has to be"):
        mepg.algorithm("tests.algos.discrete:unknown_kind")
    assert main(["train", "me-sac", "--env", "CartPole-v1", "--steps", "10"]) == 2


def test_an_action_that_is_no_index_is_said(tmp_path):
    model = mepg.algorithm("tests.algos.discrete:half")("MlpPolicy", "CartPole-v1", seed=0)
    with pytest.raises(RunFailure, match=r"chose action 0\.5, not a whole number from 0 to 1"):
        model.predict(np.zeros(4))


@pytest.mark.slow
def test_it_learns(tmp_path):
    """A random policy stays up for about 22 steps."""
    argv = [NAME, "--env", "CartPole-v1", "--steps", "8000", "--eval-every", "4000", "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "mepg", "train", *argv], capture_output=True, text=True, check=True)
    folder = Folder(tmp_path / "run")
    assert folder.result(folder.config()).summary["final_return"] > 100, done.stdout


def test_its_spec_is_its_own():
    config = Config.make(NAME, ["hidden=8"], env="CartPole-v1")
    assert config.spec == replace(discrete.dqn.spec, hidden=(8,))
