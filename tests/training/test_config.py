"""A run's settings: declared once, checked wherever they come from."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from mepg.core.types import Entry, Sizes
from mepg.errors import UsageError
from mepg.settings import digest, to_json
from mepg.training.config import COUNT, Config, SessionOptions, check_options, option, options_of

GOOD = Config.make("me-sac", env="Pendulum-v1").to_json()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": "many"}, "steps must be a whole number, not 'many'"),
        ({"steps": True}, "steps must be a whole number, not True"),
        ({"steps": 0}, r"steps must be in \[1, 10\^9\], not 0"),
        ({"seed": -1}, r"seed must be in \[0, 4294967295\], not -1"),
        ({"normalize_obs": 1}, "normalize_obs must be true or false, not 1"),
        ({"algorithm": 3}, "algorithm must be text, not 3"),
        ({"env": None}, "env must be text, not None"),
        ({"stepps": 1}, "unknown setting of a run 'stepps'; did you mean 'steps'?"),
        ({"spec": None}, "must be a JSON object"),
    ],
)
def test_what_a_file_says_is_checked(change, says):
    with pytest.raises(UsageError, match=says):
        Config.from_json({**GOOD, **change})


def test_what_a_file_does_not_say_has_its_default():
    for name in options_of(Config):
        without = {key: value for key, value in GOOD.items() if key != name}
        assert Config.from_json(without) == Config.from_json(GOOD)


def test_a_fingerprint_is_made_from_what_differs_from_the_defaults():
    """So a setting, or a field of a spec, that is added later leaves the fingerprints of stored runs as they are."""
    config = Config.make("me-sac", ["n_step=3"], env="Pendulum-v1", seed=7)
    data = to_json(config.spec, defaults=False)
    assert data["n_step"] == 3
    assert not {"huber", "discount"} & data.keys()
    assert config.fingerprint == digest({"algorithm": "me-sac", "spec": data, "env": "Pendulum-v1", "seed": 7})
    for other in (["n_step=2"], ["n_step=3", "huber=1"]):
        assert Config.make("me-sac", other, env="Pendulum-v1", seed=7).fingerprint != config.fingerprint


def test_how_long_a_run_is_to_be_is_no_part_of_what_it_is():
    longer = Config.from_json({**GOOD, "steps": 2 * GOOD["steps"]})
    assert longer.fingerprint == Config.from_json(GOOD).fingerprint
    assert longer.without_length() == Config.from_json(GOOD).without_length()


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan")])
def test_a_sitting_is_checked_in_the_same_way(timeout):
    with pytest.raises(UsageError, match="step-timeout must be a number of seconds above 0, not"):
        SessionOptions(step_timeout=timeout)
    assert SessionOptions(step_timeout=3).step_timeout == 3


def test_every_kind_of_setting():
    @dataclass(frozen=True)
    class Some:
        word: str = option("yes", "any word", "WORD")
        rate: float = option(0.5, "a rate", "X", COUNT)
        names: tuple[str, ...] = option((), "names", "NAME,...")
        plain: int = 3  # not for people

    assert {name: option.value_type for name, option in options_of(Some).items()} == {
        "word": str,
        "rate": float,
        "names": tuple,
    }
    check_options(Some(rate=2))
    with pytest.raises(UsageError, match="word must be text, not 3"):
        check_options(Some(word=3, rate=2))
    with pytest.raises(UsageError, match="names must be a list of names, not 'csv'"):
        check_options(Some(names="csv", rate=2))


def test_configs_from_files_are_checked(tmp_path):
    from mepg.training.config import Config

    good = Config.make("me-sac", env="Pendulum-v1").to_json()
    assert Config.from_json(json.loads(json.dumps(good))) == Config.make("me-sac", env="Pendulum-v1")
    for change in ({"steps": "many"}, {"seed": -1}, {"algorithm": "x"}, {"spec": {"hidden": [0]}}, {"extra": 1}):
        with pytest.raises(UsageError):
            Config.from_json({**good, **change})


ENTRIES = tuple(Entry(name, 2 * place, 2 * place + 2) for place, name in enumerate(["arm.left", "arm.right", "goal"]))
SEEN = Sizes(6, 1, "box", ENTRIES)


def config_that_sees(*names, algorithm="me-sac"):
    return Config.make(algorithm, ["hidden=8,8"], env="Any-v0", actor_obs=names)


def test_the_order_of_names_does_not_matter():
    one, other = config_that_sees("goal", "arm"), config_that_sees("arm", "goal", "goal")
    assert one == other
    assert one.fingerprint == other.fingerprint
    assert Config.from_json(json.loads(json.dumps(one.to_json()))) == one
    plain = Config.make("me-sac", env="Any-v0")
    assert "actor_obs" not in plain.without_length(defaults=False), "older runs keep their fingerprints"


@pytest.mark.parametrize(
    ("names", "places"),
    [(["goal"], [2]), (["goal", "arm.left"], [0, 2]), (["arm"], [0, 1]), (["arm", "arm.left"], [0, 1])],
)
def test_actor_entries_are_found_by_name(names, places):
    seen = config_that_sees(*names).with_actor_entries(SEEN)
    assert seen.actor_entries == tuple(ENTRIES[place] for place in places)
    assert seen.actor_obs_width == 2 * len(places)
    row = np.arange(6.0)
    np.testing.assert_array_equal(
        seen.actor_input(row), np.concatenate([row[2 * place : 2 * place + 2] for place in places])
    )


def test_all_entries_are_as_none():
    assert config_that_sees("arm", "goal").with_actor_entries(SEEN) == SEEN


def test_a_policy_has_to_see_something():
    sizes = Sizes(2, 1, "box", (Entry("goal", 0, 2), Entry("nothing", 2, 2)))
    with pytest.raises(UsageError, match="actor-obs: nothing of Any-v0 holds no numbers"):
        config_that_sees("nothing").with_actor_entries(sizes)
    assert config_that_sees("nothing", "goal").with_actor_entries(sizes).actor_obs_width == 2


def test_a_name_that_looks_like_a_flag_can_be_typed():
    actor_obs = options_of(Config)["actor_obs"]
    assert actor_obs.as_flag(("goal", "a b")) == "--actor-obs 'goal,a b'"
    assert actor_obs.as_flag(("-x", "y")) == "--actor-obs=-x,y"


@pytest.mark.parametrize("name", ["ace", "ace-flat"])
def test_a_policy_that_asks_its_critics_cannot_see_less(name):
    with pytest.raises(UsageError, match=f"actor-obs: {name} acts on all that its critics see; use .*, such as me-sac"):
        config_that_sees("goal", algorithm=name).build(SEEN)


def test_actions_that_are_chosen_by_their_q_cannot_see_less():
    with pytest.raises(UsageError, match="such as me-sac-discrete"):
        config_that_sees("goal", algorithm="me-dqn").build(SEEN._replace(action=3, action_kind="discrete"))


def test_a_run_without_data_says_nothing_about_data():
    """Its files and its fingerprint are those of before there was any."""
    plain = Config.make("me-sac", env="Any-v0")
    for defaults in (True, False):
        assert not any("data" in name for name in plain.to_json(defaults=defaults))
    assert Config.make("me-sac", env="Pendulum-v1", normalize_obs=True).fingerprint.startswith("86e040c643e5faa3")


def test_data_is_what_it_holds_and_not_where_it_was():
    plain = Config.make("me-sac", env="Any-v0")
    here, there = (replace(plain, data=path, data_sha256="0" * 64) for path in ("here.npz", "there.npz"))
    assert here == there
    assert here.fingerprint == there.fingerprint != plain.fingerprint
    assert "data" not in here.without_length()
    assert Config.from_json(json.loads(json.dumps(there.to_json()))).data == "there.npz"
    others = [replace(here, data_sha256="1" * 64), replace(here, data_share=0.5), replace(here, data_share=0.25)]
    assert len({config.fingerprint for config in (here, *others)}) == 4
    assert Config.from_json({**others[1].without_length(), "steps": others[1].steps}) == others[1], (
        "as a policy's file has it"
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"data_share": 0.5}, "data-share is a share of --data: give that too"),
        ({"data": "a.npz", "data_share": 0.0}, "data-share must be above 0 and below 1, not 0.0"),
        ({"data": "a.npz", "data_share": 1.0}, "data-share must be above 0 and below 1, not 1.0"),
        ({"data": " "}, "data must be a path or an ID, not empty"),
        ({"data": 3}, "data must be text, not 3"),
        ({"data": "a.npz", "data_sha256": "0" * 63}, "data_sha256 must be a SHA-256, not '000"),
    ],
)
def test_data_that_cannot_be(values, says):
    with pytest.raises(UsageError, match=says):
        Config.make("me-sac", env="Any-v0", **values)
