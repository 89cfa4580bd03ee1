"""How long a run takes: a few of its steps are measured, and the rest is arithmetic."""

import pytest

from mepg.scheduler import speed
from mepg.scheduler.speed import Speed
from mepg.training.config import Config
from tests.run import stubs  # noqa: F401


def test_seconds_of_a_run_by_hand():
    """2 to begin; 100 random steps; 900 with updates; 4 evaluations of 3 episodes of Pendulum's 200 steps."""
    config = Config.make("me-sac", ["warmup=100"], env="Pendulum-v1", steps=1000, eval_every=300, eval_episodes=3)
    took = Speed(startup=2.0, warmup_step=0.01, step=0.1, evaluation_step=0.001)
    assert took.seconds(config) == pytest.approx(2 + 100 * 0.01 + 900 * 0.1 + 4 * 3 * 200 * 0.001)
    short = Config.make("me-sac", ["warmup=100"], env="Pendulum-v1", steps=50, eval_every=50, eval_episodes=1)
    assert took.seconds(short) == pytest.approx(2 + 50 * 0.01 + 200 * 0.001), "all of it is warm-up"


def test_it_is_measured_without_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "MAX_SECONDS", 0.05)
    found = speed.measure(Config.make("ddpg", ["hidden=8", "batch_size=8"], env="StubPlain-v0"))
    assert all(seconds > 0 for seconds in found)
    assert not list(tmp_path.iterdir())


def test_what_costs_the_same_is_measured_once():
    of = lambda *settings, **more: speed.cost_key(Config.make("me-sac", settings, env="StubPlain-v0", **more))  # noqa: E731
    assert of() == of("dropout.p=0.5") == of(seed=7, steps=5), "a seed costs nothing"
    assert len({of(), of("hidden=8"), of("batch_size=8")}) == 3
