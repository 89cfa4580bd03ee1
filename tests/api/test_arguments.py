"""Stable-Baselines3's arguments, as settings of a spec."""

from dataclasses import replace

import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.algos.crossq import BatchNormalisation
from mepg.algos.dqn import Epsilon
from mepg.api.arguments import apply_arguments
from mepg.core.spec import Dropout, Noise, Quantiles, Temperature
from mepg.errors import UsageError

SPECS = {name: algorithm.spec for name, algorithm in algorithms().items()}
ME_SAC, TD3 = SPECS["me-sac"], SPECS["td3"]


class NormalActionNoise:
    """As Stable-Baselines3's, whose attributes these are."""

    def __init__(self, mean, sigma):
        self._mu, self._sigma = mean, sigma


def as_numpy(value):
    """The same value, of NumPy's own scalars."""
    if isinstance(value, dict):
        return {name: as_numpy(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(as_numpy, value))
    return np.asarray(value)[()] if isinstance(value, bool | int | float | str) else value


def relu():
    """Named like torch's."""


@pytest.mark.parametrize(
    ("name", "argument", "value", "expected"),
    [
        ("me-sac", "buffer_size", 1e5, {"replay_size": 100_000}),
        ("me-sac", "learning_starts", 100, {"warmup": 100}),
        ("me-sac", "batch_size", 64, {"batch_size": 64}),
        ("me-sac", "tau", 0.02, {"target_rate": 0.02}),
        ("me-sac", "gamma", 1, {"discount": 1.0}),
        ("me-sac", "policy_delay", 3, {"actor_every": 3}),
        ("me-sac", "target_update_interval", 1, {"target_every": 1}),
        ("me-sac", "gradient_steps", 20, {"updates_per_step": 20}),
        ("redq-utd20", "gradient_steps", -1, {"updates_per_step": 1}),
        ("me-sac", "dropout_p", 0.3, {"dropout": Dropout(p=0.3)}),
        ("me-sac", "dropout_p", 0, {"dropout": None}),
        ("td3", "dropout_p", 0.2, {"dropout": Dropout(p=0.2)}),
        ("me-sac", "ent_coef", "auto", {}),
        ("me-sac", "ent_coef", "auto_0.5", {"temperature": Temperature(initial=0.5)}),
        ("me-sac", "ent_coef", 0.2, {"temperature": Temperature(initial=0.2, lr=None)}),
        ("me-sac", "ent_coef", 0.0, {"temperature": None}),
        ("me-sac+fixent", "ent_coef", "auto", {"temperature": Temperature()}),
        ("me-sac", "target_entropy", -7, {"temperature": Temperature(target_entropy=-7.0)}),
        ("me-sac", "target_entropy", "auto", {}),
        ("td3", "action_noise", 0.3, {"exploration": Noise(std=0.3)}),
        ("td3", "action_noise", NormalActionNoise([0.0, 0.0], [0.2, 0.2]), {"exploration": Noise(std=0.2)}),
        ("td3", "target_policy_noise", 0.1, {"smoothing": Noise(std=0.1, clip=0.5)}),
        ("td3", "target_noise_clip", 0.3, {"smoothing": Noise(std=0.2, clip=0.3)}),
        ("td3", "learning_rate", 1e-3, {"actor_lr": 1e-3, "critic_lr": 1e-3}),
        ("me-sac", "learning_rate", 1e-3, {"actor_lr": 1e-3, "critic_lr": 1e-3, "temperature": Temperature(lr=1e-3)}),
        ("ace", "learning_rate", 1e-3, {"lr": 1e-3}),
        ("me-sac", "policy_kwargs", {"net_arch": [400, 300]}, {"hidden": (400, 300)}),
        ("me-sac", "policy_kwargs", {"net_arch": {"pi": [64], "qf": [64]}}, {"hidden": (64,)}),
        ("me-sac", "policy_kwargs", {"n_critics": 3, "layer_norm": True}, {"critics": 3, "layer_norm": True}),
        ("me-sac", "policy_kwargs", {"activation_fn": relu}, {}),
        ("crossq", "policy_kwargs", {"net_arch": [64]}, {"hidden": (64,), "actor_hidden": (64,)}),
        (
            "crossq",
            "policy_kwargs",
            {"net_arch": {"pi": [64], "qf": [1024, 1024]}},
            {"hidden": (1024, 1024), "actor_hidden": (64,)},
        ),
        ("crossq", "policy_kwargs", {"batch_norm": True, "batch_norm_eps": 0.001}, {}),
        ("crossq", "policy_kwargs", {"batch_norm": False}, {"batch_norm": None}),
        (
            "crossq",
            "policy_kwargs",
            {"batch_norm_momentum": 0.05, "renorm_warmup_steps": 1000},
            {"batch_norm": BatchNormalisation(momentum=0.95, warmup=1000)},
        ),
        ("me-sac", "n_steps", 3, {"n_step": 3}),
        ("dqn", "exploration_initial_eps", 0.9, {"epsilon": Epsilon(start=0.9)}),
        ("dqn", "exploration_final_eps", 0.01, {"epsilon": Epsilon(end=0.01)}),
        ("dqn", "exploration_steps", 5e3, {"epsilon": Epsilon(steps=5_000)}),
        ("dqn", "max_grad_norm", 10, {"max_grad_norm": 10.0}),
        ("dqn", "learning_rate", 1e-3, {"critic_lr": 1e-3}),
        ("qr-dqn", "policy_kwargs", {"n_quantiles": 20}, {"quantiles": Quantiles(count=20)}),
        ("tqc", "top_quantiles_to_drop_per_net", 5, {"quantiles": Quantiles(count=25, dropped=5)}),
        ("me-sac", "train_freq", 1, {}),
        ("me-sac", "train_freq", (1, "step"), {}),
        # What asks for nothing is harmless, whoever passes it on.
        ("me-sac", "use_sde", False, {}),
        ("me-sac", "optimize_memory_usage", False, {}),
        ("me-sac", "replay_buffer_class", None, {}),
    ],
)
def test_each_argument_is_a_field(name, argument, value, expected):
    for given in value, as_numpy(value):
        assert apply_arguments(SPECS[name], {argument: given}, 1) == replace(SPECS[name], **expected)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("me-sac", {"learning_rat": 1e-3}, "unknown argument 'learning_rat'; did you mean 'learning_rate'?"),
        (
            "me-sac",
            {"use_sde": True},
            "use_sde=True is not supported: exploration is the policy's own, or action_noise",
        ),
        ("me-sac", {"replay_buffer_class": dict}, "there is one kind of replay buffer"),
        ("me-sac", {"n_steps": 0}, "n_steps=0: n_step must be in [1, 1000], not 0"),
        ("ace", {"n_steps": 3}, "Ace has no n_step"),
        ("me-sac", {"qf_learning_rate": 1e-3}, "give spec=, whose critic_lr it is"),
        ("me-sac", {"learning_rate": lambda left: left}, "schedules are not supported"),
        ("me-sac", {"learning_rate": "fast"}, "actor_lr must be a number, not 'fast'"),
        ("me-sac", {"learning_rate": -1.0}, "lr must be in (0, 1]"),
        ("me-sac", {"batch_size": 0}, "batch_size=0: batch_size must be in [1, 1000000], not 0"),
        ("me-sac", {"batch_size": 1.5}, "batch_size must be a whole number, not '1.5'"),
        ("me-sac", {"gamma": 1.5}, "discount must be in [0, 1]"),
        ("me-sac", {"dropout_p": 1.0}, "dropout.p must be in [0, 1), not 1.0"),
        ("me-sac", {"ent_coef": "often"}, 'it is a number, "auto", or "auto_0.1"'),
        ("me-ddpg", {"ent_coef": 0.1}, "a deterministic policy has no entropy"),
        ("me-ddpg", {"target_entropy": "auto"}, "there is no entropy coefficient that is learned"),
        ("ace", {"policy_delay": 2}, "Ace has no actor_every; its fields are actors"),
        ("ace", {"dropout_p": 0.1}, "Ace has no dropout"),
        ("td3", {"action_noise": NormalActionNoise([0.1], [0.2])}, "noise needs mean 0"),
        ("dqn", {"exploration_fraction": 0.1}, "give exploration_steps"),
        ("dqn", {"exploration_final_eps": 2}, "epsilon.end must be in [0, 1]"),
        ("dqn", {"ent_coef": 0.1}, "ValueSpec has no temperature"),
        ("me-sac", {"exploration_final_eps": 0.1}, "Spec has no epsilon"),
        ("tqc", {"top_quantiles_to_drop_per_net": 25}, "quantiles.dropped must be in [0, 24]"),
        ("me-sac", {"train_freq": 4}, "several for each step are gradient_steps"),
        ("me-sac", {"gradient_steps": 0}, "give a multiple of 1, or -1"),
        ("me-sac", {"policy_kwargs": [256]}, "it is a dictionary, such as"),
        ("me-sac", {"policy_kwargs": {"batch_norm": True}}, "Spec has no batch_norm"),
        ("crossq", {"policy_kwargs": {"batch_norm_eps": 1e-5}}, "batch_norm_eps=1e-05 is not supported: it is 0.001"),
        ("crossq", {"policy_kwargs": {"batch_norm_momentum": 2}}, "batch_norm.momentum must be in [0, 1)"),
        ("crossq", {"policy_kwargs": {"net_arch": {"pi": [8]}}}, "net_arch needs pi and qf"),
        ("crossq", {"tau": 0.005}, "tau=0.005: target_rate must be 1 in CrossQ, not 0.005"),
        ("me-sac", {"policy_kwargs": {"net_arch": {"pi": [1], "qf": [2]}}}, "the same for pi and qf"),
        ("me-sac", {"policy_kwargs": {"net_arch": 256}}, "net_arch is a list of widths"),
        ("me-sac", {"policy_kwargs": {"activation_fn": max}}, "hidden layers are ReLU"),
        ("me-sac", {"policy_kwargs": {"use_sde": True}}, "exploration is the policy's own"),
        ("me-sac", {"policy_kwargs": {"net_arc": [1]}}, "did you mean 'net_arch'?"),
    ],
)
def test_what_cannot_be_is_named_with_what_to_do(name, arguments, says):
    with pytest.raises(UsageError) as error:
        apply_arguments(SPECS[name], arguments, 1)
    assert says in str(error.value)


def test_gradient_steps_are_for_a_step_in_every_environment():
    assert apply_arguments(ME_SAC, {"gradient_steps": 8}, 4).updates_per_step == 2
    assert apply_arguments(ME_SAC, {"gradient_steps": -1}, 4).updates_per_step == 1
    with pytest.raises(UsageError, match="give a multiple of 4, or -1 for one update a step"):
        apply_arguments(ME_SAC, {"gradient_steps": 1}, 4)


def test_several_arguments_come_together():
    spec = apply_arguments(
        ME_SAC, {"gamma": 0.98, "tau": 0.01, "policy_kwargs": {"net_arch": [8]}, "batch_size": None}, 1
    )
    assert spec == replace(ME_SAC, discount=0.98, target_rate=0.01, hidden=(8,))
