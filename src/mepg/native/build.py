"""A C++ program as a library: compiled once, kept in the user's own cache, loaded only if nobody touched it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mepg.native.processor import Instructions
from mepg.signals import cleaning_up
from mepg.system import load_per_core

_HEADER = Path(__file__).with_name("kernels.h")
_SECONDS = 60
# g++ 12.2 -O2 gave wrong code for one kernel of a study. A sum may not depend on what a compiler fuses.
_FLAGS = ("-std=c++20", "-fno-math-errno", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-pthread")
_COMPILERS = ("g++", "clang++")


class CannotBuild(Exception):
    """There is no library. One line: the cause and, where there is one, the way out."""


class CompilerDisabled(CannotBuild):
    """The user has switched the compiler off, with CXX= or CC=."""


class _Untrusted(Exception):
    """What lies in the cache is not to be loaded."""


def library(text: str, instructions: Instructions) -> ctypes.CDLL:
    """The program as a library, from the cache if it is there."""
    compiler = find_compiler()
    level = "-O2" if any("clang" in Path(word).name for word in compiler) else "-O1"  # it may come after ccache
    command = [*compiler, level, *_FLAGS, *instructions.flags]
    parts = [text, _HEADER.read_text(), *command, _version(*compiler)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder = cache_folder()
    with contextlib.suppress(OSError, _Untrusted, CannotBuild):  # then it is compiled again
        return _load(_checked(folder, key))
    with _workplace(folder) as (place, kept):
        made = _compile(command, text, place)
        if not kept:
            return _load(made)
        _keep(made, folder, key)
        try:
            return _load(_checked(folder, key))
        except (OSError, _Untrusted):
            return _load(made)


def find_compiler(variable: str = "CXX", usual: Sequence[str] = _COMPILERS) -> list[str]:
    """The command that the variable says, arguments and all, or the first of the usual ones that is there."""
    said = os.environ.get(variable)
    if said is None:
        for name in usual:
            if path := shutil.which(name):
                return [path]
        raise CannotBuild(f"there is no C++ compiler; install {' or '.join(usual)} (Debian: apt install g++)")
    if path := shutil.which(said):  # its name may have a space in it
        return [path]
    try:
        words = shlex.split(said)
    except ValueError as error:
        raise CannotBuild(f"{variable} is {said!r}, which is not a command: {error}") from None
    if not words:
        raise CompilerDisabled(f"{variable} is set to nothing, which means no compiler")
    if path := shutil.which(words[0]):
        return [path, *words[1:]]
    raise CannotBuild(f"{variable} names {words[0]!r}, which is not there")


def was_checked(loaded: ctypes.CDLL) -> bool:
    """Whether a library that was kept has been compared with what it should compute, as `note_checked` says."""
    path = Path(loaded._name)
    note, checked = path.with_suffix(".sha256"), path.with_suffix(".checked")
    with contextlib.suppress(OSError, _Untrusted):
        for file in (note, checked):
            _check(file, stat.S_ISREG)
        return note.read_text() == checked.read_text()
    return False


def note_checked(loaded: ctypes.CDLL) -> None:
    """So that it is done once for each library that is kept."""
    path = Path(loaded._name)
    with contextlib.suppress(OSError):  # then it is done again
        handle, aside = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(path.with_suffix(".sha256").read_text())
        Path(aside).replace(path.with_suffix(".checked"))


def keep_source(text: str) -> Path:
    """A program that turned out to be wrong, for a report."""
    with _workplace(cache_folder()) as (place, kept):
        folder = place.parent if kept else Path(tempfile.gettempdir())
        handle, path = tempfile.mkstemp(prefix="wrong-", suffix=".cpp", dir=folder)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return Path(path)


def compiler_version() -> str:
    """The compiler's name and version, in one line."""
    return _version(*find_compiler()).partition("\n")[0].strip()


@cache
def _version(*compiler: str) -> str:
    return run_command([*compiler, "--version"]).decode(errors="replace")


def cache_folder(name: str = "native") -> Path:
    """The user's own, for what can be made again. Like all programs, we ignore a path that is not absolute."""
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):  # noqa: PTH111  (may raise)
        if os.path.isabs(base):  # noqa: PTH117
            return Path(base, "mepg", name)
    return Path(os.devnull, name)  # cannot be made, and so nothing is kept


@contextlib.contextmanager
def _workplace(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A new folder, in the cache if that is the user's own and can be written: then what is made can be kept."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(folder, stat.S_ISDIR)
        place, kept = Path(tempfile.mkdtemp(prefix="build-", dir=folder)), True
    except (OSError, _Untrusted):
        place, kept = Path(tempfile.mkdtemp(prefix="mepg-native-")), False
    with cleaning_up(lambda: shutil.rmtree(place, ignore_errors=True)):
        yield place, kept


def _check(path: Path, is_kind: object) -> None:
    """It belongs to the user, nobody else can write it, and it is no link."""
    found = path.lstat()
    if not is_kind(found.st_mode):  # type: ignore[operator]
        raise _Untrusted(f"{path} is not what it should be")
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise _Untrusted(f"{path} can be changed by others")


def _checked(folder: Path, key: str) -> Path:
    """The library's path, if folder and file can be trusted and its hash is the one that was noted."""
    path, note = folder / f"{key}.so", folder / f"{key}.sha256"
    _check(folder, stat.S_ISDIR)
    for file in (path, note):
        _check(file, stat.S_ISREG)
    if hashlib.sha256(path.read_bytes()).hexdigest() != note.read_text().strip():
        raise _Untrusted(f"{path} is not what was compiled")
    return path


def _keep(made: Path, folder: Path, key: str) -> None:
    """Another process may do the same at the same time: each file appears at once, and whole."""
    note = made.with_suffix(".sha256")
    with contextlib.suppress(OSError):
        note.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        copy = made.with_name("kept.so")
        shutil.copyfile(made, copy)
        for file in (copy, note):
            file.chmod(0o600)
        copy.replace(folder / f"{key}.so")
        note.replace(folder / f"{key}.sha256")


def _compile(command: list[str], text: str, place: Path) -> Path:
    source, made = place / "program.cpp", place / "program.so"
    source.write_text(text)
    run_command([*command, f"-I{_HEADER.parent}", "-o", str(made), str(source)])
    if not made.is_file():
        raise CannotBuild(f"{command[0]} gave no library and no reason")
    return made


def run_command(
    command: Sequence[str], *, stdin: bytes = b"", folder: Path | None = None, seconds: float | None = None
) -> bytes:
    """A program's standard output. It gets a process group of its own, so that what it has started ends with it."""
    seconds = _patience() if seconds is None else seconds
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be started: {error.strerror}") from error
    with process, killed_at_exit(process):
        try:
            output, errors = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise CannotBuild(f"{command[0]} did not finish within {seconds:.0f} s") from error
    if process.returncode:
        lines = (errors or output).decode(errors="replace").strip().splitlines()
        first = next((line for line in lines if "error" in line), "".join(lines[:1]))
        raise CannotBuild(f"{command[0]} failed: {first or f'exit code {process.returncode}'}")
    return output


def killed_at_exit(process: subprocess.Popen[Any]) -> contextlib.AbstractContextManager[None]:
    """Kill it at the end of the block, if it is still there, and all that it has started in its group."""

    def kill() -> None:
        if process.returncode is None:  # else its number may be another's by now
            os.killpg(process.pid, signal.SIGKILL)

    return cleaning_up(kill)


def _patience() -> float:
    """Seconds that a compiler gets: more where several processes share a core, since it is not its fault then."""
    return _SECONDS * max(1.0, load_per_core())


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotBuild("the compiler's library cannot be loaded") from error
