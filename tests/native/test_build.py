"""Compiling, keeping, loading: nothing that another could have written is loaded."""

import os
import stat
import threading

import pytest

from mepg.native import build
from mepg.native.build import CannotBuild, library
from mepg.native.processor import KNOWN

PLAIN = KNOWN["plain"]
TEXT = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mepg" / "native"


@pytest.fixture
def compiles(monkeypatch):
    """How often the compiler was called."""
    calls, compile_ = [], build._compile
    monkeypatch.setattr(build, "_compile", lambda *given: calls.append(1) or compile_(*given))
    return calls


@pytest.mark.usefixtures("compiler")
def test_a_library_is_compiled_once(folder, compiles):
    assert [library(TEXT, PLAIN).answer() for _ in range(3)] == [42] * 3
    assert len(compiles) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def attack_a_byte(folder, file):
    other = file.with_name("other")  # not the same file: that one is in this process's memory
    other.write_bytes(file.read_bytes() + b"\0")
    other.chmod(0o600)
    other.replace(file)


def attack_with_a_link(folder, file):
    file.rename(folder / "elsewhere.so")
    file.symlink_to(folder / "elsewhere.so")


def attack_the_file(folder, file):
    file.chmod(0o666)


def attack_the_folder(folder, file):
    folder.chmod(0o777)


def attack_the_note(folder, file):
    file.with_suffix(".sha256").write_text("0" * 64)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "attack", [attack_a_byte, attack_with_a_link, attack_the_file, attack_the_folder, attack_the_note]
)
def test_a_cache_that_was_touched_is_not_loaded(folder, compiles, attack):
    library(TEXT, PLAIN)
    attack(folder, next(folder.glob("*.so")))
    assert library(TEXT, PLAIN).answer() == 42
    assert len(compiles) == 2


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_belongs_to_another_is_not_loaded(folder, compiles, monkeypatch):
    library(TEXT, PLAIN)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert library(TEXT, PLAIN).answer() == 42
    assert len(compiles) == 2


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_be_written_costs_only_time(folder):
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_text("a file where a folder should be")
    assert library(TEXT, PLAIN).answer() == 42


@pytest.mark.usefixtures("compiler")
def test_two_may_build_at_once(folder):
    found = []
    threads = [threading.Thread(target=lambda: found.append(library(TEXT, PLAIN).answer())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [42] * 3


def compiler(tmp_path, monkeypatch, script):
    path = tmp_path / "g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(path) if name == "g++" else None)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo program.cpp:1: error: no good; exit 1", "failed: program.cpp:1: error: no good"),
        ("exit 0", "gave no library"),
        (
            'for last; do :; done; test "$1" = --version || for i; do test "$o" = -o && echo x > "$i"; o=$i; done',
            "loaded",
        ),
        ('test "$1" = --version || sleep 3000', "did not finish"),
    ],
)
def test_a_bad_compiler_is_one_error(folder, tmp_path, monkeypatch, script, message):
    monkeypatch.setattr(build, "_timeout", lambda: 3)
    compiler(tmp_path, monkeypatch, script)
    with pytest.raises(CannotBuild, match=message) as caught:
        library(TEXT, PLAIN)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("command", ["g++ -O3 -DNAME", "env 'A B=1' g++"])
def test_a_compiler_may_be_a_command_with_arguments(folder, monkeypatch, command):
    monkeypatch.setenv("CXX", command)
    assert library(TEXT, PLAIN).answer() == 42
    assert build.compiler_version().startswith("g++")


def test_no_compiler_is_one_error(folder, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(CannotBuild, match="install"):
        library(TEXT, PLAIN)


def test_a_compiler_gets_longer_where_others_share_its_core(monkeypatch):
    monkeypatch.setattr(build.os, "cpu_count", lambda: 2)
    for load, seconds in ((0.5, 60), (2.0, 60), (8.0, 240)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert build._timeout() == seconds
