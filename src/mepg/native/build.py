"""A C++ program as a shared library: compiled once, kept in the user's cache, loaded only if nobody changed it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from mepg.native.processor import Instructions
from mepg.signals import cleaning_up, process_group
from mepg.system import load_per_core

_HEADER = Path(__file__).with_name("kernels.h")
_TIMEOUT = 60  # seconds
# g++ 12.2 -O2 gave wrong code for one kernel of a study. A sum may not depend on what a compiler fuses.
_FLAGS = ("-std=c++20", "-fno-math-errno", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-pthread")
_COMPILERS = ("g++", "clang++")


class CannotBuild(Exception):
    """There is no library. One line: the cause and, where there is one, the way out."""


class CompilerDisabled(CannotBuild):
    """The user has switched the compiler off, with CXX= or CC=."""


class _Untrusted(Exception):
    """A file of the cache must not be loaded."""


def library(text: str, instructions: Instructions) -> ctypes.CDLL:
    """The program as a library, from the cache if it is there."""
    compiler = find_compiler()
    level = "-O2" if any("clang" in Path(word).name for word in compiler) else "-O1"  # it may come after ccache
    command = [*compiler, level, *_FLAGS, *instructions.flags]
    parts = [text, _HEADER.read_text(), *command, _version(*compiler)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder = cache_folder()
    with contextlib.suppress(OSError, _Untrusted, CannotBuild):  # then it is compiled again
        return _load(_trusted(folder, key))
    with _build_folder(folder) as (build, cached):
        path = _compile(command, text, build)
        if not cached:
            return _load(path)
        _store(path, folder, key)
        try:
            return _load(_trusted(folder, key))
        except (OSError, _Untrusted):
            return _load(path)


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
    """Whether a cached library has passed its self-check, as `note_checked` has noted."""
    path = Path(loaded._name)
    note, checked = path.with_suffix(".sha256"), path.with_suffix(".checked")
    with contextlib.suppress(OSError, _Untrusted):
        for file in (note, checked):
            _check(file, stat.S_ISREG)
        return note.read_text() == checked.read_text()
    return False


def note_checked(loaded: ctypes.CDLL) -> None:
    """Note that a library has passed its self-check, so that it is done once for each cached library."""
    path = Path(loaded._name)
    with contextlib.suppress(OSError):  # then it is done again
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(path.with_suffix(".sha256").read_text())
        Path(temporary).replace(path.with_suffix(".checked"))


def save_source(text: str) -> Path:
    """Save a program that turned out to be wrong, for a bug report."""
    with _build_folder(cache_folder()) as (build, cached):
        folder = build.parent if cached else Path(tempfile.gettempdir())
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
    """The user's cache. XDG_CACHE_HOME is ignored if it is not an absolute path, as its specification says."""
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):  # noqa: PTH111  (may raise)
        if os.path.isabs(base):  # noqa: PTH117
            return Path(base, "mepg", name)
    return Path(os.devnull, name)  # cannot be made, and so nothing is cached


@contextlib.contextmanager
def _build_folder(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A new folder, and whether it is in the cache: only if that belongs to the user and can be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(folder, stat.S_ISDIR)
        build, cached = Path(tempfile.mkdtemp(prefix="build-", dir=folder)), True
    except (OSError, _Untrusted):
        build, cached = Path(tempfile.mkdtemp(prefix="mepg-native-")), False
    with cleaning_up(lambda: shutil.rmtree(build, ignore_errors=True)):
        yield build, cached


def _check(path: Path, is_kind: Callable[[int], bool]) -> None:
    """It belongs to the user, nobody else can write to it, and it is no link."""
    found = path.lstat()
    if not is_kind(found.st_mode):
        raise _Untrusted(f"{path} is not what it should be")
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise _Untrusted(f"{path} can be changed by others")


def _trusted(folder: Path, key: str) -> Path:
    """The cached library's path, if folder and file can be trusted and its hash is the one that was noted."""
    path, note = folder / f"{key}.so", folder / f"{key}.sha256"
    _check(folder, stat.S_ISDIR)
    for file in (path, note):
        _check(file, stat.S_ISREG)
    if hashlib.sha256(path.read_bytes()).hexdigest() != note.read_text().strip():
        raise _Untrusted(f"{path} is not what was compiled")
    return path


def _store(path: Path, folder: Path, key: str) -> None:
    """Cache a library. Another process may do the same at the same time, so each file is written atomically."""
    note = path.with_suffix(".sha256")
    with contextlib.suppress(OSError):
        note.write_text(hashlib.sha256(path.read_bytes()).hexdigest())
        copy = path.with_name("copy.so")
        shutil.copyfile(path, copy)
        for file in (copy, note):
            file.chmod(0o600)
        copy.replace(folder / f"{key}.so")
        note.replace(folder / f"{key}.sha256")


def _compile(command: list[str], text: str, build: Path) -> Path:
    source, path = build / "program.cpp", build / "program.so"
    source.write_text(text)
    run_command([*command, f"-I{_HEADER.parent}", "-o", str(path), str(source)])
    if not path.is_file():
        raise CannotBuild(f"{command[0]} gave no library and no reason")
    return path


def run_command(
    command: Sequence[str], *, stdin: bytes = b"", folder: Path | None = None, seconds: float | None = None
) -> bytes:
    """A program's standard output."""
    seconds = _timeout() if seconds is None else seconds
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(process_group(command, cwd=folder, **pipes))
        except OSError as error:
            raise CannotBuild(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            output, errors = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise CannotBuild(f"{command[0]} did not finish within {seconds:.0f} s") from error
    if process.returncode:
        lines = (errors or output).decode(errors="replace").strip().splitlines()
        first = next((line for line in lines if "error" in line), "".join(lines[:1]))
        raise CannotBuild(f"{command[0]} failed: {first or f'exit code {process.returncode}'}")
    return bytes(output)


def _timeout() -> float:
    """Seconds that a compiler gets: more where several processes share a core, since it is not its fault then."""
    return _TIMEOUT * max(1.0, load_per_core())


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotBuild("the compiler's library cannot be loaded") from error
