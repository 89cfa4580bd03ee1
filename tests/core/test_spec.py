"""Table 5 row by row, and what it means for two specs to be equal."""

from dataclasses import replace

import pytest

from mepg.algos import algorithms
from mepg.algos.crossq import CrossQ
from mepg.algos.ddpg import DDPG, TD3
from mepg.algos.dqn import DQN, Epsilon, ValueSpec
from mepg.algos.mepg import ME_DDPG, ME_SAC
from mepg.algos.sac import SAC
from mepg.algos.sunrise import SUNRISE
from mepg.core.spec import Dropout, Gaussian, Noise, Pessimism, PolicyAverage, Quantiles, Search, Spec, Temperature
from mepg.settings import from_json, to_json

OF_ITS_OWN = (CrossQ,)  # with their authors' settings


@pytest.mark.parametrize(
    "name",
    [name for name, a in algorithms().items() if isinstance(a.spec, Spec) and not isinstance(a.spec, OF_ITS_OWN)],
)
def test_table_5_shared(name):
    spec = algorithms()[name].spec
    assert spec.discount == 0.99
    assert spec.replay_size == 10**6
    assert (spec.actor_lr, spec.critic_lr) == (3e-4, 3e-4)
    assert spec.hidden == ((400, 300) if name == "ace-flat" else (256, 256))  # D12
    assert spec.batch_size == 256
    assert spec.warmup == 25_000
    assert spec.target_rate == 0.005
    assert spec.target_every == (1 if name.startswith(("redq", "droq", "sunrise")) else 2)  # D9


@pytest.mark.parametrize("spec", [TD3, ME_DDPG])
def test_table_5_td3_and_me_ddpg(spec):
    assert spec.exploration == Noise(std=0.1)  # D8
    assert spec.smoothing == Noise(std=0.2, clip=0.5)
    assert spec.actor_every == 2


@pytest.mark.parametrize("spec", [SAC, ME_SAC])
def test_table_5_sac_and_me_sac(spec):
    assert spec.temperature.target_entropy is None  # -dim A
    assert spec.temperature.lr == 1e-4
    assert spec.temperature.initial == 0.1  # D10
    assert spec.gaussian == Gaussian(log_std=(-5, 2), bound="tanh")


@pytest.mark.parametrize("spec", [ME_DDPG, ME_SAC])
def test_table_5_dropout(spec):
    assert spec.dropout == Dropout(p=0.1, masks="consistent", layers="last", rows="sample")
    assert spec.critics == 1


def test_baselines_have_their_critics():
    assert (DDPG.critics, TD3.critics, SAC.critics) == (1, 2, 2)
    assert (DDPG.actor_every, SAC.actor_every) == (1, 1)


def test_collapses():
    specs = {name: algorithm.spec for name, algorithm in algorithms().items()}
    without_dropout = replace(ME_DDPG, dropout=None)
    assert replace(TD3, critics=1) == without_dropout == specs["me-ddpg-do"]
    assert replace(without_dropout, smoothing=None, actor_every=1) == DDPG
    assert replace(TD3, dropout=Dropout()) == specs["me-ddpg+cdq"]
    assert replace(ME_SAC, dropout=None, critics=2, actor_every=1) == SAC
    assert replace(ME_SAC, dropout=Dropout(p=0)) == specs["me-sac-do"]
    assert replace(specs["me-sac+cdq"], dropout=None, actor_every=1) == SAC
    assert replace(specs["me-dqn"], dropout=Dropout(p=0)) == specs["dqn"]
    assert replace(specs["qr-dqn"], quantiles=Quantiles(count=1)) == specs["dqn"]
    alone = {"critics": 1, "quantiles": Quantiles(count=1), "huber": None}
    assert replace(specs["tqc"], **alone) == replace(SAC, critics=1)
    assert replace(specs["me-tqc"], dropout=Dropout(p=0), actor_every=1) == replace(specs["tqc"], critics=1)
    assert replace(specs["me-crossq"], dropout=Dropout(p=0)) == replace(specs["crossq"], critics=1)
    assert specs["me-crossq-do"] == replace(specs["crossq"], critics=1)
    # REDQ and DroQ come down to SAC, given its schedule and its view of two critics
    like_sac = {"policy_q": "min", "actor_every": 1, "target_every": 2, "updates_per_step": 1}
    assert replace(specs["redq"], critics=2, subset=2, **like_sac) == SAC
    assert replace(specs["droq"], dropout=Dropout(p=0), layer_norm=False, **like_sac) == SAC
    assert replace(specs["redq-utd20"], updates_per_step=1) == specs["redq"]
    assert specs.pop("me-dqn-do") == specs["dqn"], "the only one: it stands beside the paper's other -do"
    assert len(set(specs.values())) == len(specs), "two names for one algorithm"


def test_equal_meanings_are_equal_and_hash_alike():
    pairs = [
        (Spec(dropout=Dropout(p=0)), Spec()),
        (Spec(smoothing=Noise(std=0)), Spec()),
        (Spec(critics=1, policy_q="first"), Spec(critics=1, policy_q="mean")),
        (Spec(hidden=(8,), dropout=Dropout(layers="all")), Spec(hidden=(8,), dropout=Dropout())),
        (replace(ME_SAC, temperature=Temperature(every=2)), ME_SAC),
        (Spec(critics=3, subset=3), Spec(critics=3)),
        (Spec(quantiles=Quantiles(count=1)), Spec()),
        (replace(DQN, epsilon=Epsilon(start=0, end=0)), replace(DQN, epsilon=None)),
        (replace(DQN, epsilon=Epsilon(start=1, end=1, steps=7)), replace(DQN, epsilon=Epsilon(start=1, end=1))),
        (Spec(dropout=Dropout(place="before")), Spec(dropout=Dropout())),
        (Spec(dropout=Dropout(masks="expected", rows="batch")), Spec(dropout=Dropout(masks="expected"))),
        (
            replace(ME_SAC, temperature=Temperature(lr=None, target_entropy=-9.0)),
            replace(ME_SAC, temperature=Temperature(lr=None)),
        ),
    ]
    for a, b in pairs:
        assert a == b
        assert hash(a) == hash(b)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dropout(p=1.0),
        lambda: Dropout(p=-0.1),
        lambda: Dropout(p=float("nan")),
        lambda: Noise(std=-1),
        lambda: Noise(std=1, clip=0),
        lambda: Gaussian(log_std=(2, -5)),
        lambda: Temperature(initial=0),
        lambda: Spec(critics=0),
        lambda: Spec(critics=2, subset=3),
        lambda: Spec(subset=0),
        lambda: Spec(updates_per_step=0),
        lambda: Spec(hidden=()),
        lambda: Spec(hidden=(256, 0)),
        lambda: Spec(discount=1.1),
        lambda: Spec(n_step=0),
        lambda: Spec(n_step=1001),
        lambda: Spec(target_rate=0),
        lambda: Spec(warmup=-1),
        lambda: Spec(actor_lr=0),
        lambda: Spec(temperature=Temperature()),
        lambda: Spec(dropout=Dropout(masks="expected", layers="all")),
        lambda: Spec(dropout=Dropout(masks="expected", place="before"), layer_norm=True),
        lambda: Spec(dropout=Dropout(masks="expected", policy_mask=True)),
        lambda: Spec(dropout=Dropout(masks="expected"), critics=2),
        lambda: Spec(dropout=Dropout(masks="expected"), quantiles=Quantiles()),
        lambda: Spec(dropout=Dropout(masks="expected"), huber=1.0),
        lambda: Spec(huber=0),
        lambda: Quantiles(count=0),
        lambda: Quantiles(count=5, dropped=5),
        lambda: Quantiles(dropped=-1),
        lambda: Epsilon(start=1.1),
        lambda: Epsilon(end=-0.1),
        lambda: Epsilon(end=float("nan")),
        lambda: Epsilon(steps=0),
        lambda: ValueSpec(max_grad_norm=0),
        lambda: ValueSpec(search=Search()),
        lambda: ValueSpec(search=Search(), dropout=Dropout(layers="all")),
        lambda: Search(proposals=1),
        lambda: Search(kappa=-1),
        lambda: Spec(dropout=Dropout(), search=Search()),
        lambda: replace(SUNRISE, search=Search()),
    ],
)
def test_values_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"must be|needs|set \w+"):
        make()


@pytest.mark.parametrize("name", [name for name in algorithms() if name != "ace"])
def test_looking_ahead_is_a_field_of_all_and_one_step_by_default(name):
    spec = algorithms()[name].spec
    assert spec.n_step == 1
    assert "n_step" not in to_json(spec, defaults=False), "so that a fingerprint does not depend on it"
    further = replace(spec, n_step=3)
    assert to_json(further)["n_step"] == 3
    assert from_json(type(spec), to_json(further)) == further


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dropout": None}, "pessimism needs masks.*set dropout.p, or pessimism=none"),
        ({"dropout": Dropout(layers="all")}, "set dropout.layers=last"),
        ({"layer_norm": True, "dropout": Dropout(place="before")}, "set dropout.layers=last and dropout.place=after"),
    ],
)
def test_pessimism_without_a_closed_form_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        Spec(pessimism=Pessimism(), **changes)


@pytest.mark.parametrize("beta", [-0.1, 10.1])
def test_beta_has_bounds(beta):
    with pytest.raises(ValueError, match=r"beta must be in \[0, 10\]"):
        Pessimism(beta=beta)


def test_an_average_at_the_targets_rate_is_the_targets():
    assert Spec(policy_average=PolicyAverage(rate=0.005)) == Spec(policy_average=PolicyAverage())
