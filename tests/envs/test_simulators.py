"""An id without a version is the newest of today; what is written down says which."""

import json
import zipfile
from importlib.util import find_spec

import pytest

import mepg
from mepg.cli import main
from mepg.envs import simulators
from mepg.envs.simulators import full_id
from mepg.errors import UsageError
from mepg.paper.experiments import select
from mepg.training.config import Config
from tests.run import noisy, stubs  # noqa: F401

TINY = ["--set", "warmup=20", "--set", "hidden=8,8", "--set", "batch_size=8", "--eval-episodes", "1", "--log", "csv"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Pendulum", "Pendulum-v1"),
        ("Pendulum-v1", "Pendulum-v1"),
        ("HopperBulletEnv", "HopperBulletEnv-v0"),
        ("tests.run.noisy:Noisy", "tests.run.noisy:Noisy-v12"),
        ("tests.run.noisy:Noisy-v1", "tests.run.noisy:Noisy-v1"),
        ("Nowhere", "Nowhere"),  # which making it says
    ],
)
def test_full_id(said, meant):
    assert full_id(said) == meant
    assert Config.make("me-sac", env=said).env == meant


def test_a_module_that_is_not_there():
    with pytest.raises(UsageError, match="neither in this folder nor installed"):
        full_id("nowhere_at_all:X")


def test_train_and_what_follows(capsys):
    assert main(["train", "me-sac", "--env", "tests.run.noisy:Noisy", "--steps", "40", *TINY, "--json"]) == 0
    folder = json.loads(capsys.readouterr().out)["run"]
    assert "Noisy-v12" in folder
    with open(f"{folder}/run.json") as file:  # noqa: PTH123
        assert json.load(file)["config"]["env"] == "tests.run.noisy:Noisy-v12"
    for said in ("tests.run.noisy:Noisy", "tests.run.noisy:Noisy-v12"):
        assert main(["eval", folder, "--episodes", "1", "--env", said, "--json"]) == 0
        mepg.load(folder, env=said)
    assert main(["eval", folder, "--env", "tests.run.noisy:Noisy-v1"]) == 2


def test_from_python(tmp_path):
    tiny = {"learning_starts": 20, "batch_size": 8, "policy_kwargs": {"net_arch": [8, 8]}, "buffer_size": 100}
    model = mepg.ME_SAC("MlpPolicy", "Pendulum", **tiny)
    model.save("model")
    with zipfile.ZipFile("model.zip") as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    assert any(b"Pendulum-v1" in text for text in texts)


def test_reproduce(capsys):
    assert main(["reproduce", "table1", "--envs", "HoperBulletEnv"]) == 2
    assert "did you mean 'HopperBulletEnv-v0'?" in capsys.readouterr().err
    assert select("table1", "smoke", envs=["HopperBulletEnv"]).experiment.envs == ("HopperBulletEnv-v0",)


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("LunarLander-v3", "LunarLander-v3 needs Box2D, which is not installed: pip install 'mepg[box2d]'"),
        (
            "MinAtar/Breakout-v1",
            "MinAtar/Breakout-v1 needs MinAtar, which is not installed: pip install 'mepg[minatar]'",
        ),
    ],
)
def test_an_extra_that_is_missing_is_named(env_id, says):
    if find_spec({"LunarLander-v3": "Box2D"}.get(env_id, "minatar")):
        pytest.skip("it is installed")
    with pytest.raises(UsageError) as error:
        simulators.make(env_id)
    assert str(error.value) == says


def test_minatars_pictures_are_rows():
    pytest.importorskip("minatar", reason="pip install 'mepg[minatar]'")
    env = simulators.make("MinAtar/Breakout-v1")
    assert env.observation_space.shape == (400,)
    assert env.reset(seed=0)[0].shape == (400,)
