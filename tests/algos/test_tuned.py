"""Faster rates, one set for all algorithms. And the algorithms to start with."""

from dataclasses import replace

import pytest

from mepg.algos import ACTION_KINDS, RECOMMENDED, TUNED, algorithms, tuned_settings
from mepg.core.spec import Pessimism, PolicyAverage
from mepg.errors import UsageError
from mepg.settings import apply_settings, describe

WITHOUT = {name for name in algorithms() if "crossq" in name or "dqn" in name or "discrete" in name} | {"ace"}


@pytest.mark.parametrize("name", [name for name in algorithms() if name not in WITHOUT])
def test_the_same_for_all_that_have_them_and_nothing_else_changes(name):
    own = algorithms()[name].spec
    before, after = describe(own), describe(apply_settings(own, tuned_settings(name)))
    is_learned = before.get("temperature.lr", "none") != "none"
    expected = {field: str(value) for field, value in TUNED.items() if is_learned or field != "temperature.lr"}
    assert after == before | expected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ace", "its spec has no actor_lr and no critic_lr"),
        ("me-crossq", "target_rate must be 1 in CrossQ, not 0.02"),
        ("me-dqn", "they are for a Box of actions"),
        ("sac-discrete", "they are for a Box of actions"),
    ],
)
def test_who_has_none_is_named_with_the_reason(name, why):
    with pytest.raises(UsageError) as error:
        tuned_settings(name)
    assert str(error.value) == f"{name} has no tuned settings: {why}; use its own, or another algorithm"


def test_the_others_have_none_either():
    for name in WITHOUT:
        with pytest.raises(UsageError, match=f"{name} has no tuned settings"):
            tuned_settings(name)


def test_what_is_recommended_can_be_had():
    assert RECOMMENDED.keys() == ACTION_KINDS.keys()
    for kind, choice in RECOMMENDED.items():
        assert kind in algorithms()[choice.algorithm].actions
        assert not choice.tuned or tuned_settings(choice.algorithm)


def test_what_lcb_adds():
    specs = {name: algorithms()[name].spec for name in ("me-sac", "me-sac+lcb", "me-ddpg", "me-ddpg+lcb")}
    bound = Pessimism(beta=0.25, policy=True)
    assert specs["me-ddpg+lcb"] == replace(specs["me-ddpg"], pessimism=bound)
    assert specs["me-sac+lcb"] == replace(specs["me-sac"], pessimism=bound, policy_average=PolicyAverage())
