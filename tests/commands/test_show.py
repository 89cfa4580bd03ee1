"""mepg show."""

import json

from mepg.cli import main


def test_how_an_algorithm_differs_from_its_parent(capsys):
    assert main(["show", "me-sac-r", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["differs"] == {"dropout.masks": ["consistent", "independent"]}
    assert main(["show", "td3", "--set", "dropout.p=0.1"]) == 0
    assert "dropout.p" in capsys.readouterr().out


def test_a_setting_counts_among_what_differs(capsys):
    assert main(["show", "me-sac-r", "--set", "discount=0.9", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["spec"]["discount"] == 0.9
    assert shown["differs"]["discount"] == ["0.99", "0.9"]
    assert main(["show", "me-sac-r"]) == 0
    assert "Differs from me-sac\n  dropout.masks" in capsys.readouterr().out


def test_an_algorithm_that_is_none(capsys):
    assert main(["show", "me-ddgp"]) == 2
    assert "did you mean 'me-ddpg'?" in capsys.readouterr().err
