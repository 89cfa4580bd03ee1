"""Every algorithm through a whole run: train, evaluate, save, go back and on, leave a policy."""

import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.envs.env import Env
from mepg.envs.vector import make_envs
from mepg.storage.checkpoint import Checkpoint, Checkpoints, TimeSpent
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.storage.policy import load_policy, save_policy
from mepg.training.assembly import assemble
from mepg.training.config import Config
from tests.conftest import PENDULUM, all_but_slow, leaves_equal

# The first episodes are short: several begin and end on the way.
ENVS = {"box": PENDULUM, "discrete": "CartPole-v1"}
SETTINGS = ["hidden=16,16", "batch_size=16", "warmup=30", "replay_size=60"]  # the ring wraps

THOMPSON = ["me-sac search.how=thompson", "me-dqn search.how=thompson"]  # which remember a mask
AVERAGED = "me-sac+lcb policy_average.use=both"  # by another policy than the one that learns
# Of each shape that a state and a carry can have.
QUICK = ["me-sac", "sunrise-ucb", "ace", "me-crossq", "me-qr-dqn"]


@pytest.mark.parametrize("name", [*all_but_slow(algorithms(), QUICK), *THOMPSON, AVERAGED])
def test_from_a_checkpoint_it_ends_with_the_same_bits(name, tmp_path):
    """In one process, so that everything is compiled once; test_resume.py kills real ones."""
    check(name, "xla", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *all_but_slow(algorithms(), ["me-dqn"]),
        "me-sac search.how=thompson precision=mixed",
        f"{AVERAGED} precision=mixed",
    ],
)
def test_the_same_in_native_code(name, tmp_path, native):
    check(name, "native", tmp_path)


def check(name, backend, tmp_path):
    algorithm, *settings = name.split()
    env = ENVS[algorithms()[algorithm].actions[0]]
    config = Config.make(
        algorithm, [*SETTINGS, *settings], env=env, steps=100, eval_every=50, eval_episodes=2, backend=backend
    )
    envs, eval_env = make_envs(env), Env(env)
    loop = assemble(config, envs, eval_env)
    assert loop.program.backend == loop.config.backend == backend
    checkpoints = Checkpoints(tmp_path, config)
    for record in loop:
        if record.step == 61:
            checkpoints.save(Checkpoint(loop.snapshot(), TimeSpent(0.0, 0.0, 0.0), None), loop.replay)
    end, rows = loop.snapshot(), loop.replay.read(40, 100)

    loop.replay.count = 0
    saved = checkpoints.load(61, loop.snapshot(), loop.replay).snapshot
    assert len(saved.episode_actions[0]) > 0, "step 61 is to be inside an episode"
    assert 0 < saved.episode_numbers[0] < end.episode_numbers[0], "episodes are to end before it and after it"
    assert loop.restore(saved)
    assert [record.step for record in loop] == list(range(62, 101))
    again = loop.snapshot()
    np.testing.assert_array_equal(loop.replay.read(40, 100), rows)
    for part in ("state", "carry", "episode_actions", "metric_sums"):
        assert leaves_equal(getattr(again, part), getattr(end, part)), part
    assert again.evaluations == end.evaluations
    assert list(end.evaluations) == [50, 100]

    folder, obs = Folder(tmp_path), eval_env.reset(0)
    with folder.claim(config, envs.spaces):
        save_policy(folder, Identity(config, envs.spaces), loop.state, loop.step)
        folder.finish(config, {})
    action = load_policy(folder, eval_env.spaces).act(obs)
    np.testing.assert_allclose(action, config.build(envs.sizes).exploit(loop.state, obs[None])[0], atol=1e-6)
    envs.close()
    eval_env.close()
