"""Other libraries."""

from pathlib import Path

import pytest

from mepg.bench import peers
from mepg.bench.peers import prepare
from mepg.errors import RunFailure, UsageError


def test_an_unknown_library_is_refused(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'sbx'"):
        prepare("sb4", tmp_path, print)
    assert not list(tmp_path.iterdir())


def pretended(folder, script):
    """A library's environment whose Python is this script."""
    (folder / "sb3" / "bin").mkdir(parents=True)
    (folder / "sb3" / ".installed").write_text(peers._listed("sb3"))
    python = folder / "sb3" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def test_what_is_installed_is_not_installed_again(tmp_path):
    python = pretended(
        tmp_path, "printf 'stable_baselines3==2.9.0\\ntorch==2.13.0\\nthesis==1\\nhere @ file:///a==b\\n'"
    )
    said = []
    peer = prepare("sb3", tmp_path, said.append)
    assert peer.versions == {"stable_baselines3": "2.9.0", "torch": "2.13.0"}
    assert peer.command == [str(python), str(Path(peers.__file__).with_name("peer.py"))]
    assert said == []


def test_one_that_lacks_a_package_is_not_installed(tmp_path):
    pretended(tmp_path, "true")
    assert peers.is_installed("sb3", tmp_path)
    (tmp_path / "sb3" / ".installed").write_text("torch==2.13.0, stable-baselines3")
    assert not peers.is_installed("sb3", tmp_path)
    assert not peers.is_installed("sbx", tmp_path)


def test_an_installation_that_fails_says_why(tmp_path):
    pretended(tmp_path, "echo 'no such package' >&2; exit 1")
    with pytest.raises(RunFailure, match=r"freeze failed in .*sb3: no such package"):
        prepare("sb3", tmp_path, print)
