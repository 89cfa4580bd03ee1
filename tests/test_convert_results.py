"""scripts/convert_results.py: a run of format 3 becomes what today's version would have written."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

from mepg.storage.files import (
    checksum,
    read_npz,
    read_sealed,
    read_sealed_arrays,
    write_npz,
    write_sealed,
    write_sealed_arrays,
)
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.storage.policy import save_policy
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from tests.conftest import SPACES


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parent.parent / "scripts" / "convert_results.py"
    spec = importlib.util.spec_from_file_location("convert_results", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_run(path, settings=()):
    config = Config.make("me-sac", ["hidden=8,8", *settings], env="Pendulum-v1", steps=100, eval_every=100)
    folder = Folder(path)
    folder.claim(config, SPACES).close()
    folder.write_evaluations(config, {100: [Episode(1.5, 10)] * config.eval_episodes})
    folder.metrics_file.write_text("time/total_timesteps\n")
    state = config.build(SPACES.sizes).init(jax.random.key(0))
    save_policy(folder, Identity(config, SPACES), state, 100)
    write_sealed(folder.inspection_file, {"config": config.fingerprint, "bias": 0.25})
    folder.finish(config, {"steps": 100, "final_return": 1.5})
    return folder


def as_format_3(folder):
    old = "3" * 64

    def old_names(config):
        spec = dict(config["spec"])
        spec["improve_on"] = spec.pop("policy_q")
        dropout = dict(spec["dropout"])
        dropout["improve_on"] = "masked" if dropout.pop("policy_mask") else "complete"
        return {**config, "spec": spec | {"dropout": dropout}}

    data = read_sealed(folder.config_file)
    write_sealed(folder.config_file, {**data, "format": 3, "config": old_names(data["config"])})
    arrays = read_npz(folder.evaluations_file)
    write_npz(folder.evaluations_file, {**arrays, "config": np.frombuffer(bytes.fromhex(old), np.uint8)})
    write_sealed(folder.inspection_file, {**read_sealed(folder.inspection_file), "config": old})
    result = read_sealed(folder.result_file)
    files = {**result["files"], folder.evaluations_file.name: checksum(folder.evaluations_file)}
    write_sealed(folder.result_file, {**result, "config": old, "files": files})
    networks, about = read_sealed_arrays(folder.policy_file)
    write_sealed_arrays(folder.policy_file, networks, {**about, "config": old_names(about["config"])})


@pytest.mark.parametrize("settings", [[], ["dropout.policy_mask=true"], ["critics=2", "policy_q=first"]])
def test_a_run_of_format_3_becomes_todays(tmp_path, script, settings):
    folder = write_run(tmp_path / "run", settings)
    today = {file.name: file.read_bytes() for file in folder.path.iterdir()}
    as_format_3(folder)
    assert script.convert(folder.path)
    assert {file.name: file.read_bytes() for file in folder.path.iterdir()} == today
    assert not script.convert(folder.path), "it is converted already"


def test_a_file_of_another_run_is_refused(tmp_path, script):
    folder = write_run(tmp_path / "run")
    as_format_3(folder)
    write_sealed(folder.inspection_file, {"config": "0" * 64})
    with pytest.raises(SystemExit, match=r"inspect\.json is another run's"):
        script.convert(folder.path)
