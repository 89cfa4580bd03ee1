"""--set, and specs in JSON."""

import json
from dataclasses import dataclass, replace

import pytest

from mepg.algos import algorithms
from mepg.algos.ddpg import DDPG, TD3
from mepg.algos.mepg import ME_DDPG, ME_SAC
from mepg.algos.sac import SAC
from mepg.core.spec import Dropout, Gaussian, Noise, Search, Spec, Temperature
from mepg.errors import UsageError
from mepg.settings import apply_settings, describe, from_json, to_json


@pytest.mark.parametrize(
    ("spec", "settings", "expected"),
    [
        (ME_SAC, ["dropout.p=0.3"], replace(ME_SAC, dropout=Dropout(p=0.3))),
        (ME_SAC, ["hidden=400,300"], replace(ME_SAC, hidden=(400, 300))),
        (TD3, ["dropout.p=0.1"], replace(TD3, dropout=Dropout())),  # ME-TD3
        (TD3, ["smoothing=none"], replace(TD3, smoothing=None)),
        (DDPG, ["smoothing.clip=0.5", "smoothing.std=0.2"], replace(DDPG, smoothing=Noise(std=0.2, clip=0.5))),
        (ME_SAC, ["dropout.p=0"], replace(ME_SAC, dropout=None)),
        (ME_SAC, ["warmup=1_000"], replace(ME_SAC, warmup=1000)),
        (ME_SAC, ["layer_norm=true"], replace(ME_SAC, layer_norm=True)),
        (ME_SAC, ["critics=10", "subset=2"], replace(ME_SAC, critics=10, subset=2)),
        # the other readings that DECISIONS names
        (ME_SAC, ["dropout.layers=all"], replace(ME_SAC, dropout=Dropout(layers="all"))),  # D1
        (ME_SAC, ["dropout.rows=batch"], replace(ME_SAC, dropout=Dropout(rows="batch"))),  # D2
        (ME_SAC, ["temperature.every=1"], replace(ME_SAC, temperature=Temperature(every=1))),  # D7
        (ME_DDPG, ["exploration.std=0.2"], replace(ME_DDPG, exploration=Noise(std=0.2))),  # D8
        (ME_DDPG, ["actor_every=1", "target_every=1"], replace(ME_DDPG, actor_every=1, target_every=1)),  # D9
        (SAC, ["gaussian.log_std=-20,2"], replace(SAC, gaussian=Gaussian(log_std=(-20, 2)))),  # D10
        (
            SAC,
            ["gaussian.log_std=-20,2", "gaussian.bound=clip"],
            replace(SAC, gaussian=Gaussian(log_std=(-20, 2), bound="clip")),
        ),
        (ME_SAC, ["dropout.masks=online"], replace(ME_SAC, dropout=Dropout(masks="online"))),  # D18
        (ME_SAC, ["dropout.masks=expected"], replace(ME_SAC, dropout=Dropout(masks="expected"))),
        (ME_SAC, ["search.how=thompson"], replace(ME_SAC, search=Search(how="thompson"))),
        (ME_SAC, ["search.kappa=2", "search.proposals=4"], replace(ME_SAC, search=Search(kappa=2, proposals=4))),
        (ME_SAC, ["temperature.lr=none"], replace(ME_SAC, temperature=Temperature(lr=None))),  # D21
    ],
)
def test_set(spec, settings, expected):
    assert apply_settings(spec, settings) == expected


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("droput.p=0.3", "did you mean 'dropout.p'"),
        ("dropout.q=0.3", "unknown field 'dropout.q'"),
        ("hiden=1", "did you mean 'hidden'"),
        ("dropout.p=1", "dropout.p must be in [0, 1), not 1.0"),
        ("dropout.p=many", "dropout.p must be a number"),
        ("dropout.p=nan", "dropout.p must be a number"),
        (
            "dropout=0.3",
            "dropout must be set by its fields (p, masks, layers, rows, shared, place, policy_mask) or none",
        ),
        ("dropout.masks=some", "one of consistent, independent, online, expected"),
        ("hidden=", "numbers separated by commas"),
        ("batch_size=1.5", "batch_size must be a whole number"),
        ("discount.x=1", "plain value"),
        ("smoothing.clip=0.5", "set smoothing.std too"),
        ("nonsense", "write field=value"),
        ("gaussian.log_std=1", "numbers separated by commas"),
        ("search.how=luck", "one of ucb, thompson"),
        ("search.proposals=1", "search.proposals must be in [2, 10000]"),
        ("gaussian=none", "temperature needs a stochastic policy"),
    ],
)
def test_bad_settings_say_what_is_wrong(setting, says):
    with pytest.raises(UsageError) as error:
        apply_settings(ME_SAC, [setting])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", algorithms())
def test_json_and_back(name):
    spec = algorithms()[name].spec
    assert from_json(type(spec), json.loads(json.dumps(to_json(spec)))) == spec


@pytest.mark.parametrize("name", algorithms())
def test_what_is_described_can_be_set(name):
    spec = algorithms()[name].spec
    assert apply_settings(spec, [f"{field}={text}" for field, text in describe(spec).items()]) == spec


@pytest.mark.parametrize("data", [{"hidden": [256], "x": 1}, {"dropout": {"q": 1}}, {"batch_size": "many"}, [1], None])
def test_json_that_is_no_spec_is_refused(data):
    with pytest.raises(UsageError):
        from_json(Spec, data)


def test_defaults_can_be_left_out():
    @dataclass(frozen=True, kw_only=True)
    class Inner:
        p: float = 0.5

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        width: int
        depth: int = 2
        inner: Inner | None = None

    assert to_json(Outer(width=8), defaults=False) == {"width": 8}
    assert to_json(Outer(width=8, depth=3, inner=Inner()), defaults=False) == {"width": 8, "depth": 3, "inner": {}}
    assert to_json(Outer(width=8)) == {"width": 8, "depth": 2, "inner": None}
