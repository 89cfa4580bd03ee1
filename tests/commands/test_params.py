"""mepg params."""

import json

import pytest

from mepg.cli import main


def test_parameters_of_the_papers_tasks_and_of_any_other(capsys):
    assert main(["params", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["me-sac"]["AntBulletEnv-v0"] == {"as_paper": 226314, "as_is": 228370}
    assert main(["params", "--env", "Pendulum-v1"]) == 0
    assert "Pendulum-v1" in capsys.readouterr().out
    assert main(["params", "--env", "CartPole-v1", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert "me-sac" not in counts
    assert counts["dqn"]["CartPole-v1"]["as_is"] == 2 * (4 * 256 + 256 + 256 * 256 + 256 + 256 * 2 + 2)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("HopperBulletEnv-v7", "HopperBulletEnv"),
        ("StubUnbounded-v0", "infinite action bounds"),
    ],
)
def test_an_environment_that_cannot_be_counted_for(env, says, capsys):
    assert main(["params", "--env", env]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
