"""Files from strangers: they can neither run code, nor reach outside their folder, nor take the memory."""

import io
import json
import os
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from mepg.cli import main
from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.storage.files import Damaged, open_lock, read_json, read_npz, read_sealed_arrays, read_whole, write_atomic
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.training.config import Config
from tests.conftest import SPACES
from tests.run import stubs  # noqa: F401  (registers environments)

TERABYTE = 2**40


def safetensors_that_claims(shape, stop, size=64):
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, stop]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def npz_that_claims(shape, kind="<f4", size=64):
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": kind, "fortran_order": False, "shape": shape})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("results.npy", member.getvalue() + bytes(size))
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        safetensors_that_claims([TERABYTE // 4], TERABYTE),
        safetensors_that_claims([2**32, 2**32], 64),
        safetensors_that_claims([TERABYTE], 64),
        (TERABYTE).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
    ],
)
def test_a_safetensors_header_is_believed_only_as_far_as_its_bytes(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Damaged):
        read_sealed_arrays(tmp_path / "x.safetensors")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


@pytest.mark.parametrize(
    "content",
    [
        npz_that_claims((TERABYTE // 4,)),
        npz_that_claims((2**32, 2**32)),
        npz_that_claims((-1, -16)),
        npz_that_claims((16,), "|O"),
        npz_that_claims((16,), "<U1"),
    ],
)
def test_nor_is_that_of_an_npz(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(Damaged):
        read_npz(tmp_path / "x.npz")


def test_nothing_that_grows_when_it_is_opened(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("results.npy", bytes(10**7))
    with pytest.raises(Damaged, match="compressed"):
        read_npz(tmp_path / "x.npz")


def test_a_file_that_is_larger_than_any_of_ours_is_not_read(tmp_path):
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(TERABYTE)  # takes no room on the disk
    with pytest.raises(Damaged, match="more than"):
        read_json(tmp_path / "run.json")
    with pytest.raises(Damaged, match="more than"):
        read_whole(tmp_path / "run.json")


def test_what_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    (tmp_path / "policy.safetensors").symlink_to("/dev/zero")
    for name in ("run.json", "policy.safetensors"):
        with pytest.raises(Damaged, match="is not a file"):
            read_whole(tmp_path / name)


def test_nothing_is_written_where_a_link_leads(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("dear to me")
    run = tmp_path / "run"
    run.mkdir()
    for name in (".run.json.writing", "run.json", ".lock"):
        (run / name).symlink_to(precious)
    write_atomic(run / "run.json", b"{}")
    with pytest.raises(OSError, match="symbolic"):
        open_lock(run / ".lock")
    assert precious.read_text() == "dear to me"
    assert not (run / "run.json").is_symlink()


def module_that_tells(folder):
    (folder / "stranger.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    config = Config.make("me-sac", env="stranger:Any-v0")
    Folder(folder / "run").claim(config, SPACES).close()
    (folder / "best.json").write_text(json.dumps({"algorithm": "me-sac", "env": "stranger:Any-v0"}))


@pytest.mark.parametrize(
    "argv",
    [
        ["eval", "run"],
        ["inspect", "run"],
        ["export", "run", "--numpy", "out"],
        ["export", "run", "--c", "policy.h"],
        ["export", "run", "--card"],
        ["train", "--config", "best.json"],
    ],
)
def test_a_module_that_a_file_names_is_not_imported(tmp_path, monkeypatch, capsys, argv):
    module_that_tells(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert "if you trust it, add --env stranger:Any-v0" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_unless_the_user_names_it_too(tmp_path):
    module_that_tells(tmp_path)
    argv = [sys.executable, "-m", "mepg", "eval", "run", "--env", "stranger:Any-v0"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, True)
    assert "unknown environment" in done.stderr


def test_from_python_neither(tmp_path, monkeypatch):
    import mepg

    module_that_tells(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="import stranger first"):
        mepg.load("run")
    assert not (tmp_path / "ran").exists()


def test_a_config_that_asks_for_more_than_there_is(tmp_path):
    """A run.json can name networks of any size; what is not in the file of the policy takes no memory."""
    settings = ["hidden=65536,65536,65536", "critics=1000", "replay_size=1000000000"]
    folder = Folder(tmp_path / "run")
    folder.claim(Config.make("me-sac", settings, env="StubPlain-v0"), Env("StubPlain-v0").spaces).close()
    folder.policy_file.write_bytes(b"")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match="damaged policy"):
        load_policy(folder, Env("StubPlain-v0").spaces)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_control_characters_do_not_reach_the_terminal(tmp_path, capsys):
    hostile = "\x1b]0;owned\x07\x1b[2J"
    assert main(["train", "me-sac", "--env", hostile, "--out", str(tmp_path / "x")]) == 2
    assert "\x1b" not in capsys.readouterr().err
    Folder(tmp_path / "run").claim(Config.make("me-sac", env=hostile), SPACES).close()
    for argv in (["eval", str(tmp_path / "run")], ["report", str(tmp_path), "--out", str(tmp_path / "page.html")]):
        main(argv)
        captured = capsys.readouterr()
        assert "\x1b" not in captured.err + captured.out
