"""How long a run takes: what is measured is kept, and what it amounts to is arithmetic."""

import pytest

from mepg.engine import speed
from mepg.engine.speed import Speed, Speeds
from mepg.run.config import Config
from tests.engine.runs import job
from tests.run import stubs  # noqa: F401


def test_seconds_of_a_run_by_hand():
    """2 to begin; 100 random steps; 900 with updates; 4 evaluations of 3 episodes of Pendulum's 200 steps."""
    config = Config.make("me-sac", ["warmup=100"], env="Pendulum-v1", steps=1000, eval_every=300, eval_episodes=3)
    took = Speed(beginning=2.0, random_step=0.01, step=0.1, evaluation_step=0.001)
    assert took.seconds(config) == pytest.approx(2 + 100 * 0.01 + 900 * 0.1 + 4 * 3 * 200 * 0.001)
    short = Config.make("me-sac", ["warmup=100"], env="Pendulum-v1", steps=50, eval_every=50, eval_episodes=1)
    assert took.seconds(short) == pytest.approx(2 + 50 * 0.01 + 200 * 0.001), "all of it is warm-up"


def test_it_is_measured_without_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "TRY", 0.05)
    found = speed.measure(Config.make("ddpg", ["hidden=8", "batch_size=8"], env="StubPlain-v0"))
    assert all(seconds > 0 for seconds in found)
    assert not list(tmp_path.iterdir())


def test_what_was_measured_is_kept_beside_the_results(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(speed, "measure", lambda config: asked.append(config.seed) or Speed(1.0, 2.0, 3.0, 4.0))
    path = tmp_path / "results" / "speeds.json"
    wanted, alike, other = job(tmp_path / "a"), job(tmp_path / "b", seed=7), job(tmp_path / "c", algorithm="me-sac")
    speeds = Speeds(path)
    assert speeds.of(wanted) is None
    assert speeds.measure(wanted) == (1.0, 2.0, 3.0, 4.0)
    assert Speeds(path).of(alike) == (1.0, 2.0, 3.0, 4.0), "a seed costs nothing"
    assert Speeds(path).of(other) is None
    for damage in ("", "[]", path.read_text().replace("2.0", '"x"'), path.read_text().replace("2.0,", "")):
        path.write_text(damage)
        assert Speeds(path).of(wanted) is None
    assert asked == [0]
