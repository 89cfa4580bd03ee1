"""Files of models, and what is none."""

import io
import zipfile

import numpy as np
import pytest

import mepg
from mepg.api.files import read_archive
from tests.api.models import OBS, make
from tests.conftest import leaves_equal


def test_damaged_files_are_refused(trained, tmp_path):
    trained.save(tmp_path / "m")
    whole = (tmp_path / "m.zip").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        if rng.random() < 0.5:
            damaged = damaged[: rng.integers(len(damaged))]
        else:
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        (tmp_path / "d.zip").write_bytes(bytes(damaged))
        try:
            mepg.ME_SAC.load(tmp_path / "d")
        except mepg.UsageError:
            continue
        # The archive's checksums cover what is inside; what is left are dates and flags around it.
        assert leaves_equal(read_archive(tmp_path / "d.zip")[1], read_archive(tmp_path / "m.zip")[1])
    with zipfile.ZipFile(tmp_path / "z.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("model.json", "{}")
        bomb.writestr("arrays.safetensors", bytes(10_000_000))
    with pytest.raises(mepg.UsageError, match="is compressed, which mepg never does"):
        mepg.ME_SAC.load(tmp_path / "z")
    with pytest.raises(mepg.UsageError, match="there is neither a model"):
        mepg.ME_SAC.load(tmp_path / "nothing")


def test_open_files(trained, tmp_path):
    before = trained.predict(OBS, deterministic=True)[0]
    buffer = io.BytesIO()
    trained.save(buffer)
    for _ in range(2):  # wherever it stands
        np.testing.assert_array_equal(mepg.ME_SAC.load(buffer).predict(OBS, deterministic=True)[0], before)
    with (tmp_path / "file").open("w+b") as file:
        trained.save(file)
        file.seek(0)
        assert mepg.load(file).algorithm == "me-sac"
    trained.save(tmp_path / "model")
    assert buffer.getvalue() == (tmp_path / "model.zip").read_bytes()
    with (tmp_path / "model.zip").open("rb") as file:
        assert mepg.load(file, env="StubScaled-v0").n_envs == 1


def test_a_replay_memory_in_an_open_file(trained):
    buffer, other = io.BytesIO(), make()
    trained.save_replay_buffer(buffer)
    other.load_replay_buffer(buffer)
    np.testing.assert_array_equal(other.replay_buffer.read(0, 60), trained.replay_buffer.read(0, 60))


def test_files_that_are_none(trained, tmp_path):
    (tmp_path / "text").write_text("text")
    closed = io.BytesIO()
    closed.close()
    with (tmp_path / "text").open() as text, (tmp_path / "text").open("rb") as to_read:
        for location in text, closed, 7, None, ["a"]:
            with pytest.raises(mepg.UsageError, match=r"give a path, or a file open in binary mode|neither a model"):
                mepg.load(location)
        for location in text, closed, to_read, io.StringIO(), 7, None:
            with pytest.raises(mepg.UsageError, match="give a path, or a file open in binary mode") as error:
                trained.save(location)
            assert "\n" not in str(error.value)
        with pytest.raises(mepg.UsageError, match="is not an archive, or it is damaged"):
            mepg.load(to_read)
    for location in "", ".", "..", "a/..", "/", "a\0b":
        for use in trained.save, trained.save_replay_buffer, trained.load_replay_buffer, mepg.load:
            with pytest.raises(
                mepg.UsageError, match=r"is not the name of a file: give a path such as 'model|neither a"
            ):
                use(location)
    for exclude in "gamma", ["gamma"], 5:
        with pytest.raises(mepg.UsageError, match=r"exclude=\['gamma'\]|exclude=\[5\]"):
            trained.save(tmp_path / "model", exclude=exclude)
    trained.save(tmp_path / "model", exclude="replay_buffer")
    with pytest.raises(mepg.UsageError, match="save_replay_buffer"):
        trained.save(tmp_path / "model", include=["replay_buffer"])
