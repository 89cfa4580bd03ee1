"""What a model is made with."""

import pytest

import mepg
from tests.api.models import TINY, make


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "CnnPolicy"}, "there is only 'MlpPolicy'"),
        ({"device": "cuda"}, "mepg computes on the CPU"),
        ({"env": "CartPole-v1"}, r"CartPole-v1 has Discrete\(2\): use dqn, me-dqn"),
        ({"env": "Nowhere-v0"}, "unknown environment"),
        ({"env": 7}, "int is not a kind of environment: give an id"),
        ({"threads": 2}, "this process computes with 1"),
        ({"use_sde": True}, "use_sde=True is not supported"),
        ({"tuned": "yes"}, "tuned must be true or false, not 'yes'"),
        ({"tuned": True, "spec": mepg.ME_SAC.default_spec}, "leave out tuned, or spec"),
        ({"n_envs": 0}, "n_envs must be a whole number, at least 1"),
    ],
)
def test_bad_arguments(trained, arguments, says):
    with pytest.raises(mepg.UsageError, match=says):
        mepg.ME_SAC(**{"policy": "MlpPolicy", "env": "StubPlain-v0", **TINY, **arguments})


@pytest.mark.parametrize(
    ("argument", "value"), [("seed", "3"), ("seed", -1), ("seed", 1.5), ("n_envs", "2"), ("n_envs", 0)]
)
def test_numbers_that_are_none(argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        make(**{argument: value})


def test_tuned_settings_and_an_argument_that_overrides_one():
    model = make(tuned=True, tau=0.01)
    assert (model.learning_rate, model.tau, model.gamma) == (7.3e-4, 0.01, 0.99)
    assert make().learning_rate == make(tuned=None).learning_rate == 3e-4
    with pytest.raises(mepg.UsageError, match="ace has no tuned settings"):
        mepg.ACE("MlpPolicy", "StubScaled-v0", tuned=True)


def test_what_all_models_have_in_common_is_no_model():
    with pytest.raises(mepg.UsageError, match=r"use ME_SAC, or mepg\.algorithm\('me-sac-r'\)"):
        mepg.Model("MlpPolicy", "StubPlain-v0")
