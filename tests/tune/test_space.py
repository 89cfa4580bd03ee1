"""What is searched."""

import pytest

from mepg.algos import algorithms
from mepg.errors import UsageError
from mepg.tune import space
from mepg.tune.space import Choice, Range, default_space, parse_space
from tests.tune.studies import ME_SAC


def test_a_space_of_the_users_own():
    texts = [
        "dropout.p=0:0.3",
        "actor_lr=1e-4:1e-3:log",
        "batch_size=64:256",
        "hidden=64x64,256",
        "layer_norm=true,false",
    ]
    assert parse_space(ME_SAC, texts) == {
        "dropout.p": Range(0.0, 0.3, log=False, integer=False),
        "actor_lr": Range(1e-4, 1e-3, log=True, integer=False),
        "batch_size": Range(64, 256, log=False, integer=True),
        "hidden": Choice(("64,64", "256")),
        "layer_norm": Choice(("true", "false")),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("droput.p=0.1:0.2", "unknown field 'droput.p'; did you mean 'dropout.p'?"),
        ("dropout.p", "write field=low:high"),
        ("dropout.p=0.1:1.2", r"dropout.p must be in \[0, 1\)"),
        ("dropout.p=0.1:none:log", "dropout.p must be a number"),
        ("dropout.p=0.3:0.1", "the lower end comes first"),
        ("dropout.p=0:0.1:log", "both ends are above 0"),
        ("dropout.p=0.1:0.2:lin", "there can only be :log"),
        ("init=uniform:orthogonal", "a range is of numbers"),
        ("init=uniform,orthogonl", "init must be one of uniform, orthogonal"),
    ],
)
def test_a_space_that_is_none(text, says):
    with pytest.raises(UsageError, match=says):
        parse_space(ME_SAC, [text])


def test_words_with_an_x_can_be_searched():
    assert parse_space(ME_SAC, ["precision=full,mixed"]) == {"precision": Choice(("full", "mixed"))}
    assert parse_space(ME_SAC, ["hidden=64x64,256"]) == {"hidden": Choice(("64,64", "256"))}


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_has_a_space_around_its_own_values(name):
    found = default_space(algorithms()[name].spec)
    assert "discount" in found
    assert ("dropout.p" in found) == (getattr(algorithms()[name].spec, "dropout", None) is not None)
    assert found.keys() <= space.DEFAULT.keys()
    assert ("target_rate" in found) != name.removeprefix("me-").startswith("crossq"), "which has no target networks"


def test_four_digits_are_enough_and_stay_inside():
    assert Range(0.9, 0.9999, log=False, integer=False).setting(0.99989999) == "0.9999"
    assert Range(1e-4, 1e-3, log=True, integer=False).setting(0.00031234567) == "0.0003123"
    assert Range(1, 9, log=False, integer=True).setting(3) == "3"
