"""What --data reads, and what it refuses; Minari's datasets: test_minari.py."""

import io
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.run.session import Session
from mepg.storage.data import read_data, with_data
from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from mepg.training.config import Config, SessionOptions
from mepg.training.data import digest_arrays
from tests.run import stubs  # noqa: F401
from tests.training.recordings import record

CONFIG = Config.make(
    "ddpg", ["hidden=8", "batch_size=8", "warmup=20", "replay_size=64"], env="StubPlain-v0", steps=90, eval_episodes=1
)


def go(config, path, until=None, **options):
    with Session(config, path, SessionOptions(checkpoint_every=20, log=("csv",), **options)) as session:
        for record in session:
            if record.step == until:
                session.stop(15)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One whose ring has wrapped, kept; one that is unfinished; and one that has no replay buffer any more."""
    folder = tmp_path_factory.mktemp("runs")
    go(CONFIG, folder / "kept", keep_replay=True)
    go(CONFIG, folder / "unfinished", until=50)
    go(CONFIG, folder / "finished")
    return folder


def test_columns_of_an_npz(tmp_path):
    """As NumPy writes them: bools, integers, and in either order."""
    columns = record("StubPlain-v0")
    np.savez(tmp_path / "a.npz", **columns)
    found = read_data(str(tmp_path / "a.npz"))
    assert found.name == str(tmp_path / "a.npz")
    assert found.columns.keys() == columns.keys()
    for name, column in columns.items():
        np.testing.assert_array_equal(found.columns[name], column)
        assert found.columns[name].dtype == column.dtype
    np.savez(tmp_path / "b.npz", **{name: np.asfortranarray(column) for name, column in reversed(columns.items())})
    assert read_data(str(tmp_path / "b.npz")).sha256 == found.sha256 == digest_arrays(columns)


@pytest.mark.parametrize(("name", "first", "last"), [("kept", 26, 90), ("unfinished", 0, 50)])
def test_the_replay_buffer_of_a_run(runs, name, first, last):
    found = read_data(str(runs / name))
    chunks = [read_arrays(path)["rows"] for path in sorted((runs / name / "replay").glob("0*.safetensors"))]
    np.testing.assert_array_equal(found.rows, np.concatenate(chunks)[-(last - first) :])
    assert (found.n_step, found.spaces.id) == (1, "StubPlain-v0")
    assert found.to_rows(found.spaces, 1, 0.99) is found.rows


def test_a_damaged_checkpoint_of_a_run_falls_back_to_the_one_before(runs, tmp_path):
    path = shutil.copytree(runs / "unfinished", tmp_path / "run")
    newest, before = sorted((path / "replay").glob("0*.safetensors"), reverse=True)[:2]
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    assert len(read_data(str(path)).rows) == 40
    before.write_bytes(b"")
    with pytest.raises(UsageError, match=f"the replay buffer of {path} is damaged: .*does not match its checksum"):
        read_data(str(path))


def test_a_run_without_a_replay_buffer(runs):
    with pytest.raises(UsageError, match="finished has no replay buffer: it was finished without --keep-replay"):
        read_data(str(runs / "finished"))


def test_a_run_that_is_being_trained(runs, tmp_path):
    path = shutil.copytree(runs / "unfinished", tmp_path / "run")
    with Session(CONFIG, path), pytest.raises(UsageError, match="is being trained, and changes: wait for its end"):
        read_data(str(path))
    assert len(read_data(str(path)).rows) == 50


class Runs:
    """A pickle that would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["replay.pkl", "replay.npz", "replay"])
def test_a_pickle_is_not_opened(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Runs(tmp_path / "ran")))
    with pytest.raises(
        UsageError, match="is a pickle, which could run code, so it is not opened: docs/coming-from-sb3"
    ):
        read_data(str(tmp_path / name))
    assert not (tmp_path / "ran").exists()


def objects():
    content = io.BytesIO()
    np.savez(content, rewards=np.array([print], object))
    return content.getvalue()


def compressed():
    content = io.BytesIO()
    np.savez_compressed(content, rewards=np.zeros(3))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an archive, or it is damaged"),
        (b"PK\x03\x04half a file", "is not an archive, or it is damaged"),
        (objects(), "is not a file of arrays"),
        (compressed(), "is compressed"),
    ],
)
def test_what_is_no_npz(tmp_path, content, says):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match=f"data: a.npz {says}.*; a file of data is an .npz that np.savez wrote"):
        read_data(str(tmp_path / "a.npz"))


def test_what_is_not_there_or_holds_no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with pytest.raises(UsageError, match=r"neither a file or folder a/b-v0 nor a Minari dataset .*/minari/a/b-v0"):
        read_data("a/b-v0")
    with pytest.raises(UsageError, match="holds neither a run nor a Minari dataset"):
        read_data(str(tmp_path))
    assert not (tmp_path / "minari").exists()


def test_data_is_what_it_was(tmp_path):
    columns, file = record("StubPlain-v0"), tmp_path / "a.npz"
    np.savez(file, **columns)
    config, data = with_data(replace(CONFIG, data=str(file)))
    assert config.data_sha256 == data.sha256
    assert with_data(config)[0] == config
    assert with_data(CONFIG) == (CONFIG, None)
    columns["rewards"][0] += 1
    np.savez(file, **columns)
    with pytest.raises(UsageError, match=r"a.npz is not the data that this run began with: its SHA-256 is"):
        with_data(config)


def test_the_replay_buffer_of_a_run_that_began_with_data(tmp_path):
    """It holds the data too, unless that lay beside it."""
    np.savez(tmp_path / "a.npz", **record("StubPlain-v0", episodes=1))
    given = replace(CONFIG, data=str(tmp_path / "a.npz"), steps=30)
    for name, config, count in (("filled", given, 64), ("beside", replace(given, data_share=0.5), 30)):
        go(config, tmp_path / name, keep_replay=True)
        assert len(read_data(str(tmp_path / name)).rows) == count
        assert Folder(tmp_path / name).config().data_sha256 is not None
