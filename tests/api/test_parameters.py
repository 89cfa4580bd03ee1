"""The numbers of an agent's state, by name."""

import io

import numpy as np
import pytest

import mepg
from tests.api.models import OBS, make, states_equal
from tests.conftest import leaves_equal


def test_parameters_by_name(trained):
    parameters = trained.get_parameters()
    assert parameters["actor"]["params"]["0"]["w"].shape == (3, 8)
    before = trained.predict(OBS, deterministic=True)[0]
    parameters["actor"]["params"]["0"]["w"] *= 0  # a copy
    np.testing.assert_array_equal(trained.predict(OBS, deterministic=True)[0], before)


def test_parameters_of_another_model(trained):
    other = make(seed=9)
    assert not states_equal(other, trained)
    other.set_parameters(trained.get_parameters())
    assert states_equal(other, trained)
    np.testing.assert_array_equal(
        other.predict(OBS, deterministic=True)[0], trained.predict(OBS, deterministic=True)[0]
    )
    other.learn(40)
    assert not states_equal(other, trained), "and it goes on from there, alone"


def test_parameters_of_a_file(trained, tmp_path):
    trained.save(tmp_path / "model")
    trained.save(file := io.BytesIO())
    for location in tmp_path / "model", str(tmp_path / "model.zip"), file:
        other = make(seed=9)
        other.set_parameters(location)
        assert states_equal(other, trained)


def test_some_of_the_parameters(trained):
    other, weights = make(seed=9), trained.get_parameters()["actor"]["params"]
    before = other.get_parameters()
    some = {"actor": {"params": weights}}
    with pytest.raises(mepg.UsageError, match=r"updates is missing: exact_match=False sets only what is given"):
        other.set_parameters(some)
    other.set_parameters(some, exact_match=False)
    after = other.get_parameters()
    assert leaves_equal(after["actor"]["params"], weights)
    assert leaves_equal(after["critic"], before["critic"])
    other.set_parameters({"actor": {"params": {"0": {"b": [0.5] * 8}}}}, exact_match=False)
    np.testing.assert_array_equal(other.get_parameters()["actor"]["params"]["0"]["b"], np.full(8, 0.5, np.float32))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros(3), r"actor\.params\.0\.b has shape \(8,\), not \(3,\)"),
        ([np.nan] * 8, "holds a number that is not finite"),
        ([1e300] * 8, "holds a number that is not finite"),
        (["a"] * 8, "has to be numbers of type float32"),
        ([[1], [1, 2]], "has to be numbers of type float32"),
        (None, "has to be numbers of type float32"),
        (np.zeros(8, complex), "has to be numbers of type float32"),
    ],
)
def test_parameters_that_do_not_fit_change_nothing(trained, value, says):
    before = trained.get_parameters()
    given = {"actor": {"params": {"0": {"w": np.zeros((3, 8)), "b": value}}}}
    with pytest.raises(mepg.UsageError, match=says) as error:
        trained.set_parameters(given, exact_match=False)
    assert "\n" not in str(error.value)
    assert leaves_equal(trained.get_parameters(), before)


def test_parameters_that_are_not_there(trained, tmp_path):
    with pytest.raises(mepg.UsageError, match=r"unknown parameter 'actor\.parms'; did you mean 'actor\.params"):
        trained.set_parameters({"actor": {"parms": 1}}, exact_match=False)
    with pytest.raises(mepg.UsageError, match="there is neither a model"):
        trained.set_parameters(tmp_path / "nowhere")
    make(mepg.ME_DDPG).save(tmp_path / "other")
    with pytest.raises(mepg.UsageError, match="missing"):
        trained.set_parameters(tmp_path / "other")
