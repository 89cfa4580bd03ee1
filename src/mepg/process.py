"""What `mepg` and its workers set up in their own process. In a user's process, the library does none of this.

Printing never stops the work: if standard output or standard error is closed, or on a full disk, what is printed is
dropped. Every error becomes one line and an exit status. An environment that changes the streams, the umask or the
current folder does not change ours: see `foreign_code`.
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

from mepg.errors import RunFailure, UsageError, with_cause

EXIT_FAILURE, EXIT_USAGE = 1, 2


@contextlib.contextmanager
def cli_environment() -> Iterator[None]:
    """Import modules from the current folder too, and let matplotlib draw into files, not into windows."""
    path, backend = list(sys.path), os.environ.pop("MPLBACKEND", None)
    with contextlib.suppress(OSError):  # the current folder may have been deleted
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = path
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def exit_status(main: Callable[[], int]) -> int:
    """The status that `main` returns. An error becomes one line on standard error, and its exit status."""
    try:
        return main()
    except (UsageError, RunFailure) as error:
        message, status = str(error), EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
    except KeyboardInterrupt:
        message, status = "interrupted", 128 + signal.SIGINT
    except OSError as error:  # a full disk, or a deleted folder: earlier checkpoints are whole
        named = error.filename and error.strerror
        message, status = f"{error.filename}: {error.strerror}" if named else str(error), EXIT_FAILURE
    except MemoryError as error:
        message, status = with_cause("there is not enough memory", error), EXIT_FAILURE
    except ImportError as error:
        if "failed to map" not in str(error):  # the dynamic linker's words for a library that does not fit into memory
            raise
        message, status = f"there is not enough memory to load a library: {error}", EXIT_FAILURE
    print(f"mepg: {printable(message)}".replace("\n", "\\n"), file=sys.stderr)  # a folder's name may have a newline
    return status


class _ForeignCode:
    """`with foreign_code:` around every call of code that is not ours, such as an environment's.

    In a process of our own, that code has its own streams, umask and current folder: whatever it sets is there again
    in its next call, and ours is restored in between. If it closes descriptor 1 or 2, it is opened again: otherwise
    the next file that is opened would get that number, and all that is printed. A user's process is left as it is.
    """

    def __init__(self) -> None:
        self._active, self._depth = False, 0

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Isolate foreign code while this context is open."""
        self._umask, self._folder = os.umask(0o022), _current_folder()
        os.umask(self._umask)
        self._their_umask, self._their_folder = self._umask, self._folder
        self._their_streams: Streams | None = None  # None: the same as ours
        self.descriptors = {number: os.dup(number) for number in (1, 2)}
        self._active = True
        try:
            yield
        finally:
            self._active = False
            for duplicate in self.descriptors.values():
                os.close(duplicate)

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
            _chdir(self._their_folder)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._active or self._depth:
            return
        streams = _streams()
        self._their_streams = None if streams == self._our_streams else streams
        _set_streams(self._our_streams)
        self._their_umask, self._their_folder = os.umask(self._umask), _current_folder()
        if self._their_folder != self._folder:
            _chdir(self._folder)
        for number in _closed_descriptors():
            os.dup2(self.descriptors[number], number) if number else _redirect(number, os.devnull)


foreign_code = _ForeignCode()


Streams = tuple[TextIO | None, ...]


def _streams() -> Streams:
    return sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__


def _set_streams(streams: Streams) -> None:
    sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[assignment, misc]


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  (after every step: a Path takes longer)
    except OSError:  # it was deleted
        return ""


def _chdir(folder: str) -> None:
    with contextlib.suppress(OSError):  # it was deleted: whatever needs it will fail by itself
        os.chdir(folder)


def exit_now(status: int) -> NoReturn:
    """Exit without clean-up. JAX would take most of a second for it, and a signal or an error in that time would look
    like a failure of a run that is safely saved.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def printable(text: object) -> str:
    """Text with control characters escaped: names and messages may come from an untrusted file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in str(text))


def program_name() -> str:
    """What to type to start this program again."""
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m mepg"
    return "mepg" if shutil.which("mepg") else shlex.quote(os.path.relpath(sys.argv[0]))


class _UnfailingFile(io.FileIO):
    """A file descriptor to which writing never fails, and which nobody can close."""

    error: OSError | None = None  # after which everything is dropped

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.error = error
            _redirect(self.fileno(), os.devnull)  # also for C code that writes to the descriptor itself
            return len(content)

    def close(self) -> None:
        """Do nothing: other code prints to it too."""


class _UnclosableBuffer(io.BufferedWriter):
    def close(self) -> None:
        self.flush()


class _UnclosableText(io.TextIOWrapper):
    """A stream for a descriptor, which an environment may close, detach or reconfigure without effect on other code
    that prints. Characters that its encoding lacks are written as escapes.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        self.file = _UnfailingFile(descriptor, "w", closefd=False)
        line_buffering = os.isatty(descriptor) or descriptor == 2
        super().__init__(_UnclosableBuffer(self.file), encoding, "backslashreplace", line_buffering=line_buffering)

    def close(self) -> None:
        self.flush()

    def detach(self) -> Any:
        self.flush()
        return self.buffer

    def reconfigure(self, **_: Any) -> None:
        self.flush()


class Output:
    """Where a command's answer is printed."""

    def __init__(self, answer: TextIO) -> None:
        self.answer = answer

    def write_error(self) -> OSError | None:
        """Why not all of the answer could be written. None also for a closed pipe: `head` closes it early."""
        with contextlib.suppress(OSError):
            self.answer.flush()
        error = self.answer.file.error if isinstance(self.answer, _UnclosableText) else None
        return None if error is None or error.errno == errno.EPIPE else error

    @contextlib.contextmanager
    def stdout_for_answer(self) -> Iterator[None]:
        """Keep standard output for the answer: all other output, a C simulator's too, goes to standard error."""
        before, duplicate = sys.stdout, os.dup(1)
        if self.answer is sys.stdout and _is_on(self.answer, 1):
            self.answer = _UnclosableText(duplicate, self.answer.encoding)
        before.flush()
        os.dup2(2, 1)
        os.dup2(2, foreign_code.descriptors[1])
        sys.stdout = sys.stderr
        try:
            yield
        finally:
            ctypes.CDLL(None).fflush(None)  # the C library's own buffer
            for stream in (before, sys.__stdout__, self.answer):
                if stream is not None:
                    stream.flush()
            sys.stdout = before
            os.dup2(duplicate, 1)
            os.dup2(duplicate, foreign_code.descriptors[1])
            os.close(duplicate)


@contextlib.contextmanager
def unfailing_output() -> Iterator[Output]:
    """While this is open, `print` never fails: on a closed stream or pipe, a full disk, an unknown character."""
    for number in _closed_descriptors():  # else the next file that is opened gets its number, and what is printed
        _redirect(number, os.devnull)
    names = [name for name in ("stdout", "stderr") if getattr(sys, name) is getattr(sys, f"__{name}__")]
    before = {name: getattr(sys, name) for name in names}  # the own streams of a notebook or a test stay
    for name, stream in before.items():
        unfailing = _UnclosableText(1 if name == "stdout" else 2, "utf-8" if stream is None else stream.encoding)
        setattr(sys, name, unfailing)
        setattr(sys, f"__{name}__", unfailing)
    try:
        with foreign_code.isolated():
            yield Output(sys.stdout)
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _is_on(stream: IO[str], descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):  # a stream in memory, as in tests
        return False


def _closed_descriptors() -> list[int]:
    """Those of standard input, output and error that are closed."""
    closed = []
    for number in range(3):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)
        except OSError:
            closed.append(number)
    return closed


def _redirect(descriptor: int, path: str) -> None:
    opened = os.open(path, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
