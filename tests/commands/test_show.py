"""mepg show."""

import json
import re

from mepg.algos import RECOMMENDED
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


def test_tuned_settings_and_a_set_that_overrides_one(capsys):
    shown = []
    for argv in (["--tuned", "--set", "target_rate=0.01"], ["--set", "target_rate=0.01", "--tuned"]):
        assert main(["show", "me-sac+lcb", *argv, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert (shown[0]["spec"]["actor_lr"], shown[0]["spec"]["target_rate"]) == (7.3e-4, 0.01)
    changed = {"pessimism.beta", "pessimism.policy", "policy_average.use", "target_rate"}
    assert shown[0]["differs"].keys() == changed, "from the parent, tuned"
    assert main(["show", "me-sac+lcb", *argv]) == 0
    text = capsys.readouterr().out
    assert re.search(r"actor_lr +0\.0003 -> 0\.00073\n", text)
    assert re.search(r"target_rate +0\.005 -> 0\.01 \(by --set; tuned: 0\.02\)\n", text)
    assert main(["show", "ace", "--tuned"]) == 2
    assert capsys.readouterr().err.startswith("mepg: ace has no tuned settings: ")


def test_without_a_name_it_is_the_one_to_start_with(capsys):
    assert main(["show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["algorithm"], shown["tuned"]) == RECOMMENDED["box"][:2]
    assert main(["show"]) == 0
    assert capsys.readouterr().out.endswith("me-dqn for Discrete actions\n")


def test_an_algorithm_that_is_none(capsys):
    assert main(["show", "me-ddgp"]) == 2
    assert "did you mean 'me-ddpg'?" in capsys.readouterr().err
