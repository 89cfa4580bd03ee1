"""What `mepg` and its workers set up in their own process, and the library never does in a user's.

Printing never stops the work: if nobody reads standard output or standard error any more, or their disk is full, what
is printed is dropped. Every error is one line and an exit status. What an environment does to the streams, the umask
and the current folder is not done to us: see `foreign_code`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

from mepg.errors import RunFailure, UsageError

EXIT_FAILURE, EXIT_USAGE = 1, 2


@contextlib.contextmanager
def cli_environment() -> Iterator[None]:
    """Find modules beside the user's other files, and draw pictures as files, whatever window others would open."""
    path, backend = list(sys.path), os.environ.pop("MPLBACKEND", None)
    with contextlib.suppress(OSError):  # the folder that we are in may be gone
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = path
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def exit_status(act: Callable[[], int]) -> int:
    """The status that `act` gives; an error in it becomes one line on standard error and its status."""
    try:
        return act()
    except (UsageError, RunFailure) as error:
        said, status = str(error), EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
    except KeyboardInterrupt:
        said, status = "interrupted", 128 + signal.SIGINT
    except OSError as error:  # a full disk, or a folder that is gone: earlier checkpoints are whole
        named = error.filename and error.strerror
        said, status = f"{error.filename}: {error.strerror}" if named else str(error), EXIT_FAILURE
    except MemoryError as error:
        said, status = f"there is not enough memory: {error}", EXIT_FAILURE
    except ImportError as error:
        if "failed to map" not in str(error):  # the system's words for a library that does not fit into memory
            raise
        said, status = f"there is not enough memory to load a library: {error}", EXIT_FAILURE
    print(f"mepg: {plain(said)}".replace("\n", "\\n"), file=sys.stderr)  # a folder's name may have an end of line
    return status


class _ForeignCode:
    """`with foreign_code:` around every call of code that is not ours, such as an environment's.

    In a process of our own, what that code sets for the whole process is its own: the streams, the umask and the
    current folder are there again when it is called next, and ours in between. A stream's descriptor that it closed is
    opened again: the next file would get its number, and all that is printed. In a user's process, nothing is changed.
    """

    def __init__(self) -> None:
        self._active, self._depth = False, 0

    @contextlib.contextmanager
    def kept_apart(self) -> Iterator[None]:
        """From now on, as long as this is open."""
        self._umask, self._folder = os.umask(0o022), _current_folder()
        os.umask(self._umask)
        self._their_umask, self._their_folder = self._umask, self._folder
        self._their_streams: Streams | None = None  # ours, until it sets others
        self.descriptors = {number: os.dup(number) for number in (1, 2)}
        self._active = True
        try:
            yield
        finally:
            self._active = False
            for kept in self.descriptors.values():
                os.close(kept)

    def __enter__(self) -> None:
        self._depth += 1
        if not self._active or self._depth > 1:
            return
        self._our_streams = _streams()
        if self._their_streams is not None:
            _set_streams(self._their_streams)
        if self._their_umask != self._umask:
            os.umask(self._their_umask)
        if self._their_folder != self._folder:
            _go_to(self._their_folder)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._active or self._depth:
            return
        streams = _streams()
        self._their_streams = None if streams == self._our_streams else streams
        _set_streams(self._our_streams)
        self._their_umask, self._their_folder = os.umask(self._umask), _current_folder()
        if self._their_folder != self._folder:
            _go_to(self._folder)
        for number in _closed():
            os.dup2(self.descriptors[number], number) if number else _point(number, os.devnull)


foreign_code = _ForeignCode()


Streams = tuple[TextIO | None, ...]


def _streams() -> Streams:
    return sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__


def _set_streams(streams: Streams) -> None:
    sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[assignment, misc]


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  (after every step: a Path takes longer)
    except OSError:  # it is gone
        return ""


def _go_to(folder: str) -> None:
    with contextlib.suppress(OSError):  # it is gone: whoever needs it will say so
        os.chdir(folder)


def leave(status: int) -> NoReturn:
    """End at once. JAX would take most of a second to clean up; a signal or an error in that time would look like a
    failure of a run that is safely saved.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def plain(text: object) -> str:
    """Text without control characters: names and messages may come from a stranger's file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in str(text))


def program() -> str:
    """What to type to start this program again."""
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m mepg"
    return "mepg" if shutil.which("mepg") else shlex.quote(os.path.relpath(sys.argv[0]))


class _Lasting(io.FileIO):
    """A file descriptor to which writing never fails, and which nobody closes."""

    trouble: OSError | None = None  # the first error

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.trouble = error
            _point(self.fileno(), os.devnull)  # also for C code that writes to the descriptor itself
            return len(content)

    def close(self) -> None:
        """It stays open: others print to it too."""


class _LastingBuffer(io.BufferedWriter):
    def close(self) -> None:
        self.flush()


class _LastingText(io.TextIOWrapper):
    """A stream that an environment may close, detach or reconfigure without any effect on others who print."""

    def close(self) -> None:
        self.flush()

    def detach(self) -> Any:
        self.flush()
        return self.buffer

    def reconfigure(self, **_: Any) -> None:
        self.flush()


class Output:
    """What is printed, and where the answer goes."""

    def __init__(self, answer: TextIO) -> None:
        self.answer = answer

    def trouble(self) -> OSError | None:
        """Why not all of the answer could be written; None also where its reader has gone, as `head` does."""
        with contextlib.suppress(OSError):
            self.answer.flush()
        found = getattr(getattr(getattr(self.answer, "buffer", None), "raw", None), "trouble", None)
        return found if isinstance(found, OSError) and found.errno != errno.EPIPE else None

    @contextlib.contextmanager
    def only_answer(self) -> Iterator[None]:
        """Keep standard output for the answer: whatever else is printed, by a simulator in C too, goes to stderr."""
        before, kept = sys.stdout, os.dup(1)
        if self.answer is sys.stdout and _is_on(self.answer, 1):
            self.answer = _open_lasting(kept, self.answer)
        before.flush()
        os.dup2(2, 1)
        os.dup2(2, foreign_code.descriptors[1])
        sys.stdout = sys.stderr
        try:
            yield
        finally:
            ctypes.CDLL(None).fflush(None)  # or it would come out later, from the C library's own buffer
            for stream in (before, sys.__stdout__, self.answer):
                if stream is not None:
                    stream.flush()
            sys.stdout = before
            os.dup2(kept, 1)
            os.dup2(kept, foreign_code.descriptors[1])
            os.close(kept)


@contextlib.contextmanager
def lasting_output() -> Iterator[Output]:
    """While this is open, `print` never fails: on a closed stream, a full disk, a gone reader, an unknown letter."""
    for number in _closed():  # the next file that is opened would get its number, and what is printed
        _point(number, os.devnull)
    names = [name for name in ("stdout", "stderr") if getattr(sys, name) is getattr(sys, f"__{name}__")]
    before = {name: getattr(sys, name) for name in names}  # a notebook's or a test's own streams are left alone
    for name, stream in before.items():
        lasting = _open_lasting(("stdout", "stderr").index(name) + 1, stream)
        setattr(sys, name, lasting)
        setattr(sys, f"__{name}__", lasting)
    try:
        with foreign_code.kept_apart():
            yield Output(sys.stdout)
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _open_lasting(descriptor: int, like: TextIO | None) -> TextIO:
    """A text stream for a descriptor; letters that its encoding lacks are written as escapes."""
    return _LastingText(
        _LastingBuffer(_Lasting(descriptor, "w", closefd=False)),
        encoding=like.encoding if like is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=os.isatty(descriptor) or descriptor == 2,
    )


def _is_on(stream: IO[str], descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):  # in memory, as a test's
        return False


def _closed() -> list[int]:
    """Which of the first three descriptors are."""
    return [number for number in range(3) if not _is_open(number)]


def _is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def _point(descriptor: int, path: str) -> None:
    opened = os.open(path, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
