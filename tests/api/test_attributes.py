"""A model's attributes: each can be read, and none can be set in vain."""

import copy
from dataclasses import replace

import pytest

import mepg
from mepg.algos import algorithms
from mepg.api import attributes, unsupported
from mepg.api.arguments import ARGUMENTS, apply_arguments
from tests.run.processes import tensorboard


@pytest.mark.parametrize("name", algorithms())
def test_an_argument_that_is_read_can_be_given_again(name):
    """Every argument of every algorithm: what the attribute says, given to the parent's spec, is the spec."""
    algorithm = algorithms()[name]
    model = mepg.algorithm(name)()
    for argument in ARGUMENTS:
        if hasattr(model, argument):
            again = apply_arguments(algorithm.spec, {argument: getattr(model, argument)}, 1)
            if argument == "learning_rate" and getattr(again, "temperature", None) is not None:
                again = replace(again, temperature=algorithm.spec.temperature)  # whose own rate is given with it
            assert again == algorithm.spec, argument
            continue
        with pytest.raises(AttributeError, match=rf"has no '{argument}': {type(algorithm.spec).__name__} has no"):
            getattr(model, argument)
        with pytest.raises(mepg.UsageError):  # nor can it be given
            apply_arguments(algorithm.spec, {argument: 1}, 1)
    assert model.learning_rate > 0


def test_what_was_given_is_what_is_read():
    given = {"gamma": 0.9, "tau": 0.1, "ent_coef": 0.2, "policy_delay": 3, "dropout_p": 0.4, "n_steps": 2}
    model = mepg.ME_SAC(**given, n_envs=2, gradient_steps=4, policy_kwargs={"net_arch": [8], "layer_norm": True})
    assert {name: getattr(model, name) for name in given} == given
    assert (model.gradient_steps, model.n_envs, model.spec.updates_per_step) == (4, 2, 2)
    assert model.policy_kwargs == {"net_arch": [8], "n_critics": 1, "layer_norm": True, "dropout_rate": 0.4}
    crossq = mepg.CrossQ(policy_kwargs={"net_arch": {"pi": [8], "qf": [16]}, "batch_norm_momentum": 0.05})
    assert crossq.policy_kwargs["net_arch"] == {"pi": [8], "qf": [16]}
    assert crossq.policy_kwargs["batch_norm_momentum"] == 0.05
    assert mepg.TD3(action_noise=0.3).action_noise == 0.3
    assert mepg.SAC().action_noise is None
    assert mepg.SAC(ent_coef="auto_0.5", target_entropy=-3).ent_coef == "auto_0.5"
    assert mepg.SAC(ent_coef=0).ent_coef == 0


@pytest.mark.parametrize("name", [*ARGUMENTS, *unsupported.ARGUMENTS, *unsupported.ATTRIBUTES, *attributes.READ_ONLY])
def test_nothing_is_set_in_vain(trained, name):
    with pytest.raises(AttributeError, match=name) as error:
        setattr(trained, name, 0.9)
    assert "\n" not in str(error.value)
    assert ": " in str(error.value), "a way out"
    assert "no setter" not in str(error.value)


def test_what_can_be_set(trained, capsys, tmp_path):
    model = copy.copy(trained)
    model.note = "a user's own"
    model.num_timesteps = 1_000
    model.verbose, model.tensorboard_log = 1, tmp_path
    model.learn(60, reset_num_timesteps=False, log_interval=1)
    assert model.num_timesteps == 1_060
    assert "total_timesteps" in capsys.readouterr().out
    assert tensorboard(tmp_path / "ME_SAC_1")["time/total_timesteps"]


def test_an_error_in_a_property_is_what_is_seen(trained, monkeypatch):
    def broken(_):
        return {}.no_such_method

    monkeypatch.setattr(mepg.Model, "ep_info_buffer", property(broken))
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'no_such_method'"):
        trained.ep_info_buffer  # noqa: B018
    with pytest.raises(AttributeError, match="'ME_SAC' object has no attribute 'batchsize'"):
        trained.batchsize  # noqa: B018
