"""A class for each algorithm, from the registry."""

import importlib.util
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest

import mepg
from mepg.algos import Algorithm, algorithms
from mepg.algos.sac import SAC
from mepg.api.classes import exports
from tests.run import stubs  # noqa: F401

ROOT = Path(__file__).parent.parent.parent
NAMED = {entry.python_name: name for name, entry in algorithms().items() if entry.python_name}


def test_the_names_that_people_use():
    """One that is renamed or removed breaks their scripts."""
    assert {
        "ME_SAC", "ME_DDPG", "DDPG", "TD3", "SAC", "REDQ", "SUNRISE", "ACE", "DroQ", "CrossQ", "ME_CrossQ",
        "ME_SAC_LCB", "ME_DDPG_LCB",
        "TQC", "ME_TQC", "DQN", "ME_DQN", "QRDQN", "ME_QRDQN", "SACDiscrete", "ME_SACDiscrete",
    } <= NAMED.keys()  # fmt: skip


@pytest.mark.parametrize("python_name", NAMED)
def test_a_class_is_what_the_registry_says(python_name):
    name = NAMED[python_name]
    kind, entry = getattr(mepg, python_name), algorithms()[name]
    assert issubclass(kind, mepg.Model)
    assert kind is mepg.algorithm(name)
    assert (kind.__name__, kind.algorithm, kind.default_spec) == (python_name, name, entry.spec)
    assert kind.__doc__.lower() == f"{entry.summary.lower()}."
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert python_name in dir(mepg)
    assert python_name in mepg.__all__


def test_python_names_are_unique_and_begin_with_a_capital():
    named = [entry for entry in algorithms().values() if entry.python_name]
    assert len(NAMED) == len(named)
    assert all(name.isidentifier() and name[0].isupper() for name in NAMED), "mepg.__getattr__ relies on the capital"


def test_a_new_algorithm_is_one_entry(monkeypatch):
    monkeypatch.setitem(
        algorithms(), "calm-sac", Algorithm(SAC, "SAC, but calmer", parent="sac", python_name="CalmSAC")
    )
    monkeypatch.setitem(algorithms(), "calm-sac+x", Algorithm(SAC, "without a name of its own"))
    made = exports()["CalmSAC"]
    assert (made.algorithm, made.__doc__) == ("calm-sac", "SAC, but calmer.")
    assert mepg.algorithm("calm-sac+x").__name__ == "CALM_SAC_X"


@pytest.mark.parametrize(
    ("env", "kind", "rate", "scaled"),
    [
        (lambda: "StubScaled-v0", "me-sac+lcb", 7.3e-4, True),
        (lambda: gymnasium.make("StubScaled-v0"), "me-sac+lcb", 7.3e-4, True),
        (lambda: gymnasium.make("StubDiscrete-v0"), "me-dqn", 2.5e-4, False),
        (lambda: gymnasium.make_vec("StubDiscrete-v0", 2, "sync"), "me-dqn", 2.5e-4, False),
    ],
)
def test_what_is_recommended_depends_on_the_actions(env, kind, rate, scaled):
    model = mepg.recommended(env(), seed=1)
    assert (model.algorithm, model.learning_rate, model.seed) == (kind, rate, 1)
    assert model._learner.config.normalize_obs is scaled
    assert not mepg.recommended(env(), normalize_obs=False)._learner.config.normalize_obs
    assert mepg.recommended(env(), tuned=False, learning_rate=1e-3).learning_rate == 1e-3
    spec = replace(model.default_spec, discount=0.5)
    assert mepg.recommended(env(), spec=spec).spec == spec


def test_nothing_is_recommended_for_what_is_no_environment():
    with pytest.raises(mepg.UsageError, match=r"mepg\.recommended\('"):
        mepg.recommended(None)
    with pytest.raises(mepg.UsageError, match="int is not a kind of environment"):
        mepg.recommended(7)


def test_importing_the_package_waits_for_nothing():
    """JAX is imported when a model is first used, not for the package or one of its modules."""
    code = (
        "import sys, mepg; from mepg import flags; hasattr(mepg, 'nothing'); assert 'jax' not in sys.modules; "
        "mepg.ME_SAC; assert 'jax' in sys.modules; from mepg import *; print(dir(mepg), QRDQN)"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ME_SAC" in text
    with pytest.raises(AttributeError, match="no attribute 'PPO'"):
        mepg.PPO  # noqa: B018


def test_editors_see_the_same_classes():
    spec = importlib.util.spec_from_file_location("stub", ROOT / "scripts" / "stub.py")
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    assert stub.PATH.read_text() == stub.text(), "the registry has changed: python scripts/stub.py"
