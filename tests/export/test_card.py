"""A card about a policy."""

import json

import pytest

from mepg.cli import main
from tests.export.policies import TINY


def test_the_card(finished, tmp_path, capsys):
    yaml = pytest.importorskip("yaml")
    assert main(["export", str(finished / "me-sac"), "--card", "card/README.md", "--json"]) == 0
    _, front, body = (tmp_path / "card" / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["library_name"] == "mepg"
    assert {"StubScaled-v0", "me-sac", "deep-reinforcement-learning"} <= set(about["tags"])
    (metric,) = about["model-index"][0]["results"][0]["metrics"]
    assert metric["type"] == "mean_reward"
    result = json.loads((finished / "me-sac" / "result.json").read_text())
    assert metric["value"] == f"{result['final_return']:.2f} +/- {result['final_return_std']:.2f}"
    assert "--set hidden=8,8" in body
    assert "--normalize-obs --backend xla" in body
    assert "| `dropout.p` | 0.1 |" in body
    assert "| jax |" in body


@pytest.mark.slow
def test_the_card_of_a_policy_that_can_be_filmed(tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pybullet")
    argv = ["train", "me-ddpg", "--env", "ReacherBulletEnv-v0", "--steps", "60", "--out", "run", *TINY]
    assert main(argv) == 0
    assert main(["export", "run", "--card"]) == 0
    assert "run/README.md and run/replay.mp4" in capsys.readouterr().out
    assert "(replay.mp4)" in (tmp_path / "run" / "README.md").read_text()
    assert (tmp_path / "run" / "replay.mp4").stat().st_size > 1000
