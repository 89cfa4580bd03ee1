"""Compiled programs on disk: used again, never trusted when damaged, never in the way."""

import json
import os
import subprocess
import sys

import pytest

from mepg.native import build
from mepg.storage import compilation_cache

COMMAND = ["train", "ddpg", "--env", "Pendulum-v1", "--steps", "40", "--json", "--eval-episodes", "1"]
SETTINGS = ["--set", "warmup=20", "--set", "hidden=8", "--set", "batch_size=8"]


def train(home, out):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["XDG_CACHE_HOME"] = str(home)
    ended = subprocess.run(
        [sys.executable, "-m", "mepg", *COMMAND, *SETTINGS, "--out", str(out)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_second_start_finds_its_programs_and_damage_does_no_harm(tmp_path):
    home = tmp_path / "cache"
    train(home, tmp_path / "first")
    programs = sorted(file for file in home.rglob("*") if file.is_file())
    assert programs, "nothing was kept"
    before = {file: file.stat().st_mtime_ns for file in programs}
    train(home, tmp_path / "second")
    assert {file: file.stat().st_mtime_ns for file in programs} == before, "they were compiled again"

    for number, file in enumerate(programs):
        content = bytearray(file.read_bytes())
        if number % 2:
            content[len(content) // 2] ^= 1
        file.write_bytes(content if number % 2 else content[: len(content) // 2])
    train(home, tmp_path / "third")

    policies = {name: (tmp_path / name / "policy.safetensors").read_bytes() for name in ("first", "second", "third")}
    assert policies["first"] == policies["second"] == policies["third"]


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("")
    train(tmp_path / "file", tmp_path / "run")


def test_the_oldest_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "MAX_CACHE_BYTES", 250)
    for age in range(4):
        file = tmp_path / f"{age}"
        file.write_bytes(b"x" * 100)
        os.utime(file, (1000 - age, 1000 - age))
    compilation_cache._make_room(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "1"]


def test_machines_with_other_instructions_keep_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compilation_cache.folder_for("avx2").is_relative_to(tmp_path)
    assert (
        compilation_cache.folder_for("avx2")
        == compilation_cache.folder_for("avx2")
        != compilation_cache.folder_for("avx2 avx512_bf16")
    )


@pytest.mark.parametrize(
    ("variable", "home", "base"),
    [
        ("cache", "{home}", "{home}/.cache"),
        ("./cache", "{home}", "{home}/.cache"),
        ("", "{home}", "{home}/.cache"),
        (None, "{home}", "{home}/.cache"),
        ("cache", "home", "/dev/null"),
    ],
)
def test_a_relative_path_is_ignored(variable, home, base, tmp_path, monkeypatch):
    """Or a folder would be made wherever one stands: for XLA's programs, and for native code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home.format(home=tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", variable or "")
    if variable is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    for folder in (compilation_cache.folder_for("avx2"), build.cache_folder()):
        assert folder.is_relative_to(base.format(home=tmp_path / "home"))
    with build._build_folder(build.cache_folder()) as (_, kept):
        assert kept == (base != "/dev/null")
    assert {path.name for path in tmp_path.iterdir()} <= {"home"}


def test_a_user_without_a_home(monkeypatch):
    """As in a container, where nobody has entered the user's number anywhere."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    assert compilation_cache.folder_for("avx2").is_relative_to("/dev/null")
