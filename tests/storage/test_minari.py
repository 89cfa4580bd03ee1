"""Datasets that Minari's own collector has written, without a network."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.storage import minari as module
from mepg.storage.data import read_data
from tests.run.processes import run_mepg
from tests.training.recordings import collect, record

pytest.importorskip("h5py", reason="Minari is not installed: pip install 'mepg[minari]'")
pytest.importorskip("minari", reason="Minari is not installed: pip install 'mepg[minari]'")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


@pytest.mark.parametrize("env", ["StubScaled-v0", "CartPole-v1", "tests.envs.own:Reach-v0"])
def test_every_transition_is_there(root, env):
    """A Box and a Discrete of actions; a Dict in a Dict, a Tuple, a Discrete among the observations."""
    collect(env, "some/random-v0")
    expected, found = record(env), read_data("some/random-v0")
    assert found.name == "some/random-v0"
    assert found.columns.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found.columns[name], column, err_msg=name)


def test_a_dataset_by_its_id_its_folder_and_the_folder_in_it(root):
    collect("StubPlain-v0", "plain/random-v0", episodes=1)
    assert module.local_folder("plain/random-v0") == root / "plain" / "random-v0"
    folder = root / "plain" / "random-v0"
    found = [read_data(name).sha256 for name in ("plain/random-v0", str(folder), str(folder / "data"))]
    assert len(set(found)) == 1
    assert module.is_dataset(folder)
    assert not module.is_dataset(root)


def test_nothing_is_fetched_and_minari_is_imported_only_when_it_is_needed(root):
    collect("StubPlain-v0", "plain/random-v0", episodes=1)
    code = """
import socket, sys
from mepg.storage.data import read_data
assert not {"minari", "h5py"} & set(sys.modules)
socket.socket.connect = None
print(len(read_data("plain/random-v0").columns["rewards"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "50\n"), done.stderr


def test_without_its_spaces_it_would_run_code(root, tmp_path):
    """Minari would make the environment that its metadata names, from any module."""
    collect("StubPlain-v0", "plain/random-v0", episodes=1)
    file = root / "plain" / "random-v0" / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    (tmp_path / "runs_code.py").write_text("open('ran', 'w')")
    metadata["env_spec"] = metadata["env_spec"].replace('"entry_point": "', '"entry_point": "runs_code:Env')
    del metadata["action_space"]
    file.write_text(json.dumps(metadata))
    with pytest.raises(UsageError, match=r"plain/random-v0 does not say its spaces .*, and Minari would run code"):
        read_data("plain/random-v0")
    file.write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        read_data("plain/random-v0")


def test_a_damaged_or_an_empty_one(root):
    collect("StubPlain-v0", "plain/random-v0", episodes=1)
    data = root / "plain" / "random-v0" / "data"
    whole, about = (data / "main_data.hdf5").read_bytes(), (data / "metadata.json").read_text()
    (data / "main_data.hdf5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="the dataset plain/random-v0 is damaged, or of an unknown kind: ") as error:
        read_data("plain/random-v0")
    assert "\n" not in str(error.value)
    (data / "main_data.hdf5").write_bytes(whole)
    (data / "metadata.json").write_text(json.dumps({**json.loads(about), "total_episodes": 0, "total_steps": 0}))
    with pytest.raises(UsageError, match="plain/random-v0 is empty: there is no transition in it"):
        read_data("plain/random-v0")
    (data / "metadata.json").unlink()
    with pytest.raises(UsageError, match=r"holds no Minari dataset: there is no data/metadata.json in it"):
        read_data("plain/random-v0")


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("minari", "data plain/random-v0 needs minari, which is not installed: pip install 'mepg[minari]'"),
        (
            "h5py",
            "the dataset plain/random-v0: ImportError: h5py is not installed. Please install it using `pip install",
        ),
    ],
)
def test_without_the_extra_it_says_what_to_install(root, tmp_path, package, says):
    collect("StubPlain-v0", "plain/random-v0", episodes=1)
    done = run_mepg("train", "ddpg", "--env", "Pendulum-v1", "--data", "plain/random-v0", cwd=tmp_path, hide=[package])
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
