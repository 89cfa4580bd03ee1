"""It learns: Pendulum-v1, from about -1,400 upwards, and for discrete actions CartPole-v1 and others."""

import numpy as np
import pytest

from mepg.run.session import Session
from mepg.training.config import Config
from tests.conftest import MAIN

ENSEMBLES = ["redq", "redq-ours", "redq-utd20", "droq", "sunrise", "sunrise-ucb", "ace-flat"]


def returns_until(goal, config, folder):
    """The mean return of each evaluation, up to the first that reaches the goal."""
    returns = []
    with Session(config, folder) as session:
        for record in session:
            if record.evaluation is not None:
                returns.append(np.mean([episode.return_ for episode in record.evaluation]))
                if returns[-1] >= goal:
                    break
    return returns


SMALL = ["hidden=64,64", "actor_lr=1e-3", "critic_lr=1e-3"]


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("me-sac", [*SMALL, "temperature.lr=1e-3"]),
        ("me-ddpg", SMALL),
        pytest.param("me-ddpg-x", SMALL, marks=pytest.mark.slow),
        pytest.param("me-crossq", ["hidden=64,64", "actor_hidden=64,64"], marks=pytest.mark.slow),
    ],
)
def test_pendulum_with_small_networks(algorithm, settings, tmp_path):
    """Better than -200 within 10,000 steps, in a quarter of the time; all below are slow."""
    config = Config.make(algorithm, ["warmup=1000", *settings], env="Pendulum-v1", steps=10_000, eval_every=1_000)
    returns = returns_until(-200, config, tmp_path / "run")
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", MAIN)
def test_pendulum(algorithm, tmp_path):
    """Better than -200 within 10,000 steps."""
    config = Config.make(algorithm, ["warmup=1000"], env="Pendulum-v1", steps=10_000, eval_every=2_500)
    returns = returns_until(-200, config, tmp_path / "run")
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("me-ddpg-x", []),
        ("me-sac-x", []),
        ("me-sac", ["search.how=ucb"]),
        ("me-ddpg", ["search.how=thompson"]),
        ("me-sac", ["search.how=thompson"]),
        ("me-ddpg", ["search.how=ucb"]),
        ("me-sac-x", ["search.how=ucb"]),
    ],
)
def test_pendulum_with_what_the_masks_know(algorithm, settings, tmp_path):
    """The expected update, and exploring by choice, learn as their parents do."""
    config = Config.make(algorithm, ["warmup=1000", *settings], env="Pendulum-v1", steps=10_000, eval_every=2_500)
    returns = returns_until(-200, config, tmp_path / "run")
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["me-crossq", "crossq"])
def test_pendulum_without_target_networks(algorithm, tmp_path):
    """Better than -200 within 10,000 steps."""
    config = Config.make(algorithm, ["warmup=1000"], env="Pendulum-v1", steps=10_000, eval_every=1_000)
    returns = returns_until(-200, config, tmp_path / "run")
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["tqc", "me-tqc"])
def test_pendulum_with_quantiles(algorithm, tmp_path):
    """Better than -200 within 10,000 steps."""
    config = Config.make(algorithm, ["warmup=1000"], env="Pendulum-v1", steps=10_000, eval_every=2_500)
    returns = returns_until(-200, config, tmp_path / "run")
    assert returns[-1] >= -200, returns
    assert returns[0] < -500, "already good before it had learned anything?"


VALUES = ["dqn", "me-dqn", "qr-dqn", "me-qr-dqn", "sac-discrete", "me-sac-discrete"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", VALUES)
def test_cartpole(algorithm, tmp_path):
    """475 of 500 within 50,000 steps; a random policy stays up for about 22."""
    config = Config.make(algorithm, env="CartPole-v1", steps=50_000, eval_every=2_500)
    returns = returns_until(475, config, tmp_path / "run")
    assert returns[-1] >= 475, returns


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "me-dqn"])
def test_acrobot(algorithm, tmp_path):
    """Up within 100 steps, after 50,000 of learning at most; a random policy does not get there in 500."""
    config = Config.make(algorithm, env="Acrobot-v1", steps=50_000, eval_every=2_500)
    returns = returns_until(-100, config, tmp_path / "run")
    assert returns[-1] >= -100, returns


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["me-dqn", "me-qr-dqn"])
def test_lunar_lander(algorithm, tmp_path):
    """200 within 150,000 steps."""
    pytest.importorskip("Box2D", reason="pip install 'mepg[box2d]'")
    config = Config.make(algorithm, env="LunarLander-v3", steps=150_000, eval_every=5_000)
    returns = returns_until(200, config, tmp_path / "run")
    assert returns[-1] >= 200, returns


@pytest.mark.slow  # minutes each
@pytest.mark.parametrize("algorithm", ENSEMBLES)
def test_pendulum_with_an_ensemble(algorithm, tmp_path):
    """Better than -250 within 10,000 steps."""
    config = Config.make(algorithm, ["warmup=1000"], env="Pendulum-v1", steps=10_000, eval_every=1_000)
    returns = returns_until(-250, config, tmp_path / "run")
    assert returns[-1] >= -250, returns
    assert returns[0] < -1_000, "already good before it had learned anything?"


@pytest.mark.slow
def test_pendulum_with_ace(tmp_path):
    """Better than -250 within 30,000 steps, with its authors' settings."""
    config = Config.make("ace", env="Pendulum-v1", steps=30_000, eval_every=2_000)
    returns = returns_until(-250, config, tmp_path / "run")
    assert returns[-1] >= -250, returns
    assert returns[0] < -1_000, "already good before it had learned anything?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "setting"),
    [
        ("me-sac", "layer_norm=true"),
        ("redq", "dropout.p=0.1"),
        ("sunrise", "dropout.p=0.1"),
        ("ace-flat", "dropout.p=0.1"),
    ],
)
def test_pendulum_with_what_composes(algorithm, setting, tmp_path):
    config = Config.make(algorithm, ["warmup=1000", setting], env="Pendulum-v1", steps=10_000, eval_every=1_000)
    returns = returns_until(-250, config, tmp_path / "run")
    assert returns[-1] >= -250, returns
