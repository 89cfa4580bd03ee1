"""Stable-Baselines3's own helpers and its zoo take our models as they are: the real ones, `make test-sb3`."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import mepg

pytestmark = pytest.mark.sb3

SMALL = {
    "learning_starts": 50,
    "batch_size": 32,
    "buffer_size": 5_000,
    "policy_kwargs": {"net_arch": [16, 16]},
    "seed": 0,
}


@pytest.fixture(scope="module")
def sb3():
    return pytest.importorskip("stable_baselines3")


def make(env="Pendulum-v1", **arguments):
    return mepg.ME_SAC("MlpPolicy", env, **{**SMALL, **arguments})


def pendulum():
    import gymnasium
    from stable_baselines3.common.monitor import Monitor

    return Monitor(gymnasium.make("Pendulum-v1"))


def test_evaluate_policy(sb3):
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    model = make().learn(300)
    mean, std = evaluate_policy(model, pendulum(), n_eval_episodes=3)
    assert -2_500 < mean < -10
    assert std >= 0
    returns, lengths = evaluate_policy(
        model, DummyVecEnv([pendulum] * 2), n_eval_episodes=4, return_episode_rewards=True, deterministic=False
    )
    assert lengths == [200] * 4
    assert len(set(returns)) == 4


def test_eval_and_checkpoint_callbacks(sb3, tmp_path):
    from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback, StopTrainingOnRewardThreshold

    stop = StopTrainingOnRewardThreshold(reward_threshold=-1e9, verbose=0)
    evaluation = EvalCallback(
        pendulum(),
        eval_freq=250,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path / "best"),
        log_path=str(tmp_path / "logs"),
        callback_on_new_best=stop,
        verbose=0,
    )
    checkpoints = CheckpointCallback(save_freq=100, save_path=str(tmp_path / "steps"), save_replay_buffer=True)
    model = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Training and eval env are not of the same type")
        model.learn(1_000, callback=[checkpoints, evaluation])
    assert model.num_timesteps == 250, "any return is above -1e9, so the first evaluation ends it"
    assert {path.name for path in (tmp_path / "steps").iterdir()} == {
        "rl_model_100_steps.zip",
        "rl_model_200_steps.zip",
        "rl_model_replay_buffer_100_steps.npz",
        "rl_model_replay_buffer_200_steps.npz",
    }
    best = mepg.ME_SAC.load(tmp_path / "best" / "best_model", env=pendulum())
    obs = np.array([1.0, 0.0, 0.2])
    np.testing.assert_array_equal(best.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    file = np.load(tmp_path / "logs" / "evaluations.npz")
    assert file["timesteps"].tolist() == [250]


def test_a_vec_env_is_an_environment(sb3):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = DummyVecEnv([pendulum] * 3)
    model = make(envs).learn(900)
    assert (model.n_envs, model.num_timesteps) == (3, 900)
    rows = model.replay_buffer.read(0, 900).reshape(300, 3, -1)
    np.testing.assert_allclose(rows[:199, :, 6:], rows[1:200, :, :3], atol=1e-6)  # s' is the next s within an episode
    assert not np.allclose(rows[199, :, 6:], rows[200, :, :3], atol=1e-2), "and not across its end"
    np.testing.assert_array_equal(rows[:, :, 5], 1), "a time limit is not the end"
    assert model.get_vec_normalize_env() is None
    normalised = VecNormalize(DummyVecEnv([pendulum]))
    model = make(normalised).learn(300)
    assert model.get_vec_normalize_env() is normalised
    assert np.abs(model.replay_buffer.read(0, 300)[:, :3].mean(axis=0)).max() < 1


def test_callbacks_that_look_at_the_usual_things(sb3):
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EveryNTimesteps

    class Looks(BaseCallback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def _on_step(self):
            self.seen.append((self.n_calls, self.num_timesteps, float(self.locals["rewards"][0])))
            self.logger.record("mine/reward", self.locals["rewards"][0])
            assert self.model.predict(self.locals["new_obs"])[0].shape == (1, 1)
            return True

    looks, rarely = Looks(), Looks()
    make().learn(60, callback=CallbackList([looks, EveryNTimesteps(20, rarely)]))
    assert [seen[:2] for seen in looks.seen] == [(i, i) for i in range(1, 61)]
    assert len(rarely.seen) == 3
    assert all(reward <= 0 for _, _, reward in looks.seen)


def test_its_logger(sb3, tmp_path):
    from stable_baselines3.common.logger import configure

    model = make()
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(900)
    model.logger.close()
    text = (tmp_path / "progress.csv").read_text()
    assert "train/critic_loss" in text
    assert "rollout/ep_rew_mean" in text


def test_its_action_noise(sb3):
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    model = mepg.TD3("MlpPolicy", "Pendulum-v1", action_noise=NormalActionNoise(np.zeros(1), 0.3 * np.ones(1)), **SMALL)
    assert model.spec.exploration.std == 0.3
    with pytest.raises(mepg.UsageError, match="action_noise"):
        mepg.TD3(
            "MlpPolicy", "Pendulum-v1", action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1)), **SMALL
        )


def test_get_env_is_one_of_its_vec_envs(sb3):
    import gymnasium
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

    for env, arguments in ("Pendulum-v1", {"n_envs": 2}), (pendulum(), {}), (gymnasium.make("Pendulum-v1"), {}):
        model = make(env, **arguments).learn(100)
        vec_env = model.get_env()
        assert isinstance(vec_env, VecEnv)
        obs = vec_env.reset()
        obs, *_ = vec_env.step(model.predict(obs)[0])
        assert obs.shape == (model.n_envs, 3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Evaluation environment is not wrapped with a ``Monitor``")
            _, lengths = evaluate_policy(model, vec_env, n_eval_episodes=2, return_episode_rewards=True)
        assert lengths == [200, 200]
        wrapped = VecNormalize(vec_env)
        wrapped.reset()
        assert len(wrapped.step(model.predict(obs)[0])) == 4
        assert wrapped.num_envs == model.n_envs
        assert wrapped.get_attr("render_mode") == [None] * model.n_envs
        model.learn(100)
        model.set_env(VecNormalize(DummyVecEnv([pendulum])))
        model.learn(50)
    assert make(pendulum()).get_env().env_is_wrapped(sb3.common.monitor.Monitor) == [True]


def test_the_warning_free_way_with_a_monitor(sb3):
    from stable_baselines3.common.evaluation import evaluate_policy

    model = make(pendulum()).learn(100)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=1)
    assert -2_500 < mean < -10
    model.learn(50)


def test_a_callback_that_changes_its_training_environment(sb3):
    from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnMaxEpisodes

    class Curriculum(BaseCallback):
        def _on_step(self):
            self.training_env.set_attr("g", 5.0)
            return True

    model = make()
    model.learn(1_000, callback=[Curriculum(), StopTrainingOnMaxEpisodes(max_episodes=2)])
    assert model.num_timesteps == 400
    assert model.get_env().get_attr("g") == [5.0]
    assert {episode["l"] for episode in model.ep_info_buffer} == {200}


def test_the_same_calls_on_both(sb3, tmp_path):
    """What both have, called the same way, gives things of the same kind."""
    import copy
    import io

    theirs = sb3.SAC("MlpPolicy", "Pendulum-v1", learning_starts=50, policy_kwargs={"net_arch": [16, 16]}, seed=0)
    for model in make(), theirs:
        model.learn(100)
        obs = model.get_env().reset()
        action, _ = model.predict(obs)
        assert action.shape == (1, 1)
        action *= 2
        model.set_parameters(model.get_parameters())
        model.set_parameters(copy.deepcopy(model.get_parameters()), exact_match=False)
        model.save(file := io.BytesIO())
        file.seek(0)
        again = type(model).load(file, env="Pendulum-v1" if isinstance(model, mepg.Model) else model.get_env())
        np.testing.assert_array_equal(
            again.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
        )
        model.save_replay_buffer(memory := io.BytesIO())
        memory.seek(0)
        model.load_replay_buffer(memory)
        copied = copy.deepcopy(model)
        np.testing.assert_array_equal(
            copied.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
        )
        copied.learn(50)


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG", "DQN", "TQC", "CrossQ", "QRDQN"])
def test_every_attribute_of_theirs_is_here_or_says_what_to_use(sb3, name):
    """Each can be read, or the error names a way out; each can be set with an effect, or is refused by name."""
    contrib = pytest.importorskip("sb3_contrib")
    env = "CartPole-v1" if "DQN" in name else "Pendulum-v1"
    theirs = getattr(sb3, name, None) or getattr(contrib, name)
    theirs = theirs("MlpPolicy", env, policy_kwargs={"net_arch": [8]})
    ours = getattr(mepg, name)("MlpPolicy", env, **SMALL)
    with_effect = ("num_timesteps", "verbose", "tensorboard_log")
    internal = ("policy_aliases", "start_time")
    public = {each for each in dir(theirs) if not each.startswith(("_", *internal)) and "batch_norm_stats" not in each}
    assert {"gamma", "policy", "learning_rate", "replay_buffer"} <= public
    for each in public:
        try:
            value = getattr(ours, each)
        except AttributeError as error:
            assert f"has no '{each}': " in str(error), each  # noqa: PT017
        else:
            if callable(value):
                continue
        if each not in with_effect:
            with pytest.raises(AttributeError, match=rf"{each}.*: "):
                setattr(ours, each, 1)


ZOO = """
import sys
import rl_zoo3
import mepg

rl_zoo3.ALGOS["me_sac"] = mepg.ME_SAC

if sys.argv.pop(1) == "train":
    from rl_zoo3.train import train
    train()
else:
    from rl_zoo3.enjoy import enjoy
    enjoy()
"""


def test_the_zoo_trains_and_shows(sb3, tmp_path):
    pytest.importorskip("rl_zoo3")
    (tmp_path / "zoo.py").write_text(ZOO)
    (tmp_path / "conf.yml").write_text(
        "Pendulum-v1:\n  n_timesteps: !!float 600\n  policy: 'MlpPolicy'\n  learning_starts: 200\n  batch_size: 32\n"
        "  n_envs: 2\n  policy_kwargs: 'dict(net_arch=[16, 16])'\n"
    )
    common = ["--algo", "me_sac", "--env", "Pendulum-v1"]
    run = [sys.executable, "zoo.py", "train", *common, "--conf-file", "conf.yml", "-f", "logs", "--eval-freq", "400"]
    done = subprocess.run(
        [*run, "--eval-episodes", "1", "--save-freq", "400", "--seed", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    folder = Path(tmp_path) / "logs" / "me_sac" / "Pendulum-v1_1"
    assert {"Pendulum-v1.zip", "best_model.zip", "evaluations.npz"} <= {path.name for path in folder.iterdir()}
    model = mepg.ME_SAC.load(folder / "Pendulum-v1")
    assert model._learner.training.step == 600
    show = [sys.executable, "zoo.py", "enjoy", *common, "-f", "logs", "-n", "250", "--no-render"]
    done = subprocess.run(show, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Episode Reward" in done.stdout


def test_a_dict_of_observations(sb3):
    """In its VecEnv and in ours: learning, its evaluation, and batches for predict."""
    import gymnasium
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Reach(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            {
                "goal": gymnasium.spaces.Box(-2, 2, (2,), np.float64),
                "place": gymnasium.spaces.Box(-2, 2, (1, 2), np.float64),
                "phase": gymnasium.spaces.Discrete(3),
            }
        )
        action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps, (self.place, self.goal) = 0, self.np_random.uniform(-1, 1, (2, 2))
            return self.look(), {}

        def step(self, action):
            self.steps += 1
            self.place = np.clip(self.place + 0.1 * action, -2, 2)
            return self.look(), -float(np.abs(self.place - self.goal).sum()), False, self.steps == 25, {}

        def look(self):
            return {"goal": self.goal.copy(), "place": self.place[None].copy(), "phase": self.steps % 3}

    def monitored():
        return Monitor(Reach())

    envs = DummyVecEnv([monitored] * 2)
    model = mepg.ME_SAC("MultiInputPolicy", envs, actor_obs=("goal", "place"), **SMALL).learn(200)
    for place in (envs, monitored(), DummyVecEnv([monitored] * 3)):
        _, lengths = evaluate_policy(model, place, n_eval_episodes=3, return_episode_rewards=True)
        assert lengths == [25] * 3
    obs = envs.reset()
    assert obs["phase"].shape == (2,)
    actions, _ = model.predict(obs, deterministic=True)
    few, _ = model.predict({name: obs[name] for name in ("goal", "place")}, deterministic=True)
    np.testing.assert_array_equal(actions, few)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1", "FrozenLake-v1", "Dict"])
@pytest.mark.parametrize("steps", [150, 500])  # the ring has wrapped, or not
def test_its_replay_buffer_as_data(sb3, env_id, steps, tmp_path, monkeypatch):
    """The lines of docs/coming-from-sb3.md, on what it has really saved."""
    import gymnasium
    from gymnasium.wrappers import TimeAwareObservation
    from stable_baselines3.common.env_util import make_vec_env

    page = (Path(__file__).parents[2] / "docs" / "coming-from-sb3.md").read_text()
    (convert,) = [block for block in re.findall("```py\n(.*?)```", page, re.DOTALL) if "# convert.py" in block]

    def make():
        if env_id != "Dict":
            return gymnasium.make(env_id, max_episode_steps=30)
        return TimeAwareObservation(gymnasium.make("Pendulum-v1", max_episode_steps=30), flatten=False)

    kind, policy = (sb3.SAC, sb3.DQN)[env_id in ("CartPole-v1", "FrozenLake-v1")], "MultiInputPolicy"
    model = kind(
        policy if env_id == "Dict" else "MlpPolicy", make_vec_env(make, 3), buffer_size=300, learning_starts=10_000
    )
    model.learn(steps)
    model.save_replay_buffer(tmp_path / "replay.pkl")
    monkeypatch.chdir(tmp_path)
    exec(convert, {})

    columns = dict(np.load("replay.npz"))
    count = 3 * model.replay_buffer.size()
    assert all(len(column) == count for column in columns.values())
    assert 0 < columns["truncations"].sum() <= count / 5 or env_id in ("CartPole-v1", "FrozenLake-v1")
    assert ((columns["terminations"] + columns["truncations"]) <= 1).all()
    env = make()
    low, high = (getattr(env.action_space, name, None) for name in ("low", "high"))
    if low is not None:
        assert (columns["actions"] >= low - 1e-5).all()
        assert (columns["actions"] <= high + 1e-5).all()
        assert np.abs(columns["actions"]).max() > 1.5, "in the environment's own bounds"
    ours = mepg.ME_SAC if low is not None else mepg.ME_DQN
    model = ours("MlpPolicy", make(), data="replay.npz", **{**SMALL, "learning_starts": 0, "n_steps": 3})
    assert model.replay_buffer.count == count
    model.learn(20)
    with pytest.raises(mepg.UsageError, match=r"replay.pkl is a pickle, which could run code, so it is not opened"):
        ours("MlpPolicy", make(), data="replay.pkl")
