"""Every artifact says what it is, and is used only where it fits."""

import json

import gymnasium
import pytest

import mepg
from mepg.api.files import read_archive, to_archive
from mepg.cli import main
from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.settings import from_json, to_json
from mepg.storage.identity import Identity
from mepg.training.config import Config
from tests.run.stubs import Box

TINY = ["--steps", "60", "--set", "warmup=20", "--set", "hidden=8,8", "--eval-every", "30", "--eval-episodes", "1"]
bounds = {"low": -1.0, "high": 1.0}


@pytest.fixture(scope="module", autouse=True)
def changing():
    """An environment whose bounds are what a package's next version might make them."""
    gymnasium.register("Changing-v0", lambda: Box(**bounds), max_episode_steps=10)
    yield
    gymnasium.registry.pop("Changing-v0")


@pytest.fixture(scope="module")
def run(tmp_path_factory, changing):
    folder = tmp_path_factory.mktemp("identity") / "run"
    assert main(["train", "me-ddpg", "--env", "Changing-v0", "--out", str(folder), *TINY]) == 0
    return folder


def test_a_policy_is_played_only_where_it_fits(run, tmp_path, monkeypatch, capsys):
    commands = [
        ["eval", str(run)],
        ["inspect", str(run)],
        ["export", str(run), "--onnx", str(tmp_path / "policy.onnx")],
        ["export", str(run), "--card"],
    ]
    monkeypatch.setitem(bounds, "high", 2.0)
    for command in commands:
        assert main(command) == 2
        says = "trained on Changing-v0 with actions to [1.0, 1.0], and Changing-v0 has [2.0, 2.0]"
        assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(bounds, "high", 1.0)
    assert main(commands[0]) == 0


def test_a_run_a_policy_and_a_model_say_the_same(run, tmp_path):
    model = mepg.load(run)
    model.save(tmp_path / "model")
    about, _ = read_archive(tmp_path / "model.zip")
    ours = json.loads((run / "run.json").read_text())
    assert about["sizes"] == ours["sizes"]
    assert about["action_bounds"] == ours["action_bounds"]
    for name in ("algorithm", "spec", "env", "seed", "normalize_obs"):
        assert about["config"][name] == ours["config"][name]


def test_a_model_of_another_format_is_refused(run, tmp_path):
    mepg.load(run).save(tmp_path / "model")
    about, arrays = read_archive(tmp_path / "model.zip")
    (tmp_path / "new.zip").write_bytes(to_archive({**about, "format": 3}, arrays))
    with pytest.raises(UsageError, match="format 3, which this version"):
        mepg.load(tmp_path / "new")


def test_identities_survive_json():
    env = Env("Changing-v0")
    identity = Identity(Config.make("me-sac", ["dropout.p=0.3"], env="Changing-v0", seed=3), env.spaces)
    again = Identity.from_json(json.loads(json.dumps(identity.to_json())))
    assert again.config == identity.config
    assert again.spaces is not None
    assert again.spaces.difference(env.spaces) is None
    again.require_fit(env.spaces)
    spec = identity.config.spec
    assert from_json(type(spec), to_json(spec)) == spec
