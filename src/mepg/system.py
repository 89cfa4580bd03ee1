"""The operating system: no other module asks which one it is, or what it can do.

Linux has everything here. macOS has neither CPU affinity nor /proc: what is missing is done another way, or left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

PR_SET_PDEATHSIG = 1  # of Linux's prctl
POLL = 1.0  # seconds between two checks that the parent is still there


def platform_tag() -> tuple[str, str]:
    """The system and the processor's architecture, as packages name them: ("linux", "x86_64"), ("darwin", "arm64")."""
    return sys.platform, platform.machine()


def has_screen() -> bool:
    """Whether a window can be opened here."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    count = getattr(os, "process_cpu_count", os.cpu_count)()  # the former is new in Python 3.13
    return list(range(count or 1))


def pin(to: Collection[int], pid: int = 0) -> None:
    """Keep all threads of a process on these cores; where the system cannot, they stay free."""
    if not hasattr(os, "sched_setaffinity"):
        return
    tasks = Path(f"/proc/{pid or os.getpid()}/task")
    for thread in [int(task.name) for task in tasks.iterdir()] if tasks.is_dir() else [pid]:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(thread, to)


def load_per_core() -> float:
    """The load average for each core; 0 where the system does not report it."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0


def processor_name() -> str:
    """The processor's brand name."""
    return _cpuinfo("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine()


def processor_extensions() -> str:
    """The names of the processor's instruction sets, as Linux writes them; empty where it is unknown."""
    if flags := _cpuinfo("flags", "Features"):
        return flags
    if platform.machine() == "arm64":  # Apple's ARM processors; Linux calls their common extension asimd
        return "asimd"
    # macOS writes the same names in capitals: "AVX2", "AVX512F".
    return f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}".lower().strip()


def cpu_time(pid: int) -> str:
    """A text that changes whenever another process has used more processor time.

    Where the system does not report it, the clock's time, so that no process seems stuck.
    """
    with contextlib.suppress(OSError):
        return " ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    return _output_of("ps", "-o", "time=", "-p", str(pid)) or str(time.monotonic())


def peak_memory() -> int:
    """The peak resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_memory() -> int:
    """The resident memory of this process, in bytes; its peak where the system does not report it otherwise."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return peak_memory()


def release_free_memory() -> None:
    """Return to the system what the C library's allocator keeps of memory that was freed; only glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def sync(descriptor: int) -> None:
    """Flush a file, or the names in a folder, to disk, so that it survives a power cut."""
    full_fsync = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
    if full_fsync is not None:
        with contextlib.suppress(OSError):  # a network drive may not support it
            fcntl.fcntl(descriptor, full_fsync)
            return
    os.fsync(descriptor)


def temporary_path(path: Path, suffix: str = "") -> Path:
    """Where a file is written before it is renamed to `path`: the same for every process.

    A long name is cut, because the file system allows 255 bytes. Files with the same beginning wait for each other.
    """
    return path.with_name(f".{path.name[:60]}.writing{suffix}")  # a character takes four bytes at most


def new_file(path: Path) -> BinaryIO:
    """A file of this name that nobody else writes: another process that does is waited for.

    What a killed process left there, or a link that leads elsewhere, is replaced.
    """
    while True:
        try:
            file = path.open("xb")
        except FileExistsError:
            _wait_for_writer(path)
            continue
        _lock(file.fileno())
        if _same(file.fileno(), path):
            return file
        file.close()  # before we had locked it, someone took it for a killed process's


def _wait_for_writer(path: Path) -> None:
    """Until whoever writes this file has put it in its place; if nobody does any more, it is removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError:  # a link, or another user's
        path.unlink(missing_ok=True)
        return
    try:
        _lock(descriptor)
        if _same(descriptor, path):
            path.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Wait for it; a file system without locks gives none."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def end_with_parent(parent: int) -> None:
    """Receive SIGTERM when the parent process dies. If it is dead already, exit.

    :param parent: its id, from itself: a process that has lost its parent is given another
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    else:
        threading.Thread(target=_terminate_when_orphaned, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        raise SystemExit(128 + signal.SIGTERM)


class _Stack(ctypes.Structure):
    """Linux's stack_t."""

    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


DISABLED, SIZE = 2, 2**16
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
_signal_stacks: list[ctypes.Array[ctypes.c_char]] = []  # never freed: a signal may come at any time


@contextlib.contextmanager
def signals_off_the_heap() -> Iterator[None]:
    """Give this thread an alternate signal stack, and block signals in threads that are started meanwhile.

    The system writes a signal's frame below the stack pointer. While oneDNN multiplies matrices for JAX, that register
    may point into a buffer on the heap: what precedes the buffer is overwritten, and the process later aborts with
    "corrupted size vs. prev_size". Python's handlers use the alternate stack of a thread that has one.
    """
    if sys.platform != "linux":
        yield
        return
    libc, stack = ctypes.CDLL(None), _Stack()
    libc.sigaltstack(None, ctypes.byref(stack))
    if stack.flags & DISABLED:
        _signal_stacks.append(ctypes.create_string_buffer(SIZE))
        libc.sigaltstack(ctypes.byref(_Stack(ctypes.addressof(_signal_stacks[-1]), 0, SIZE)), None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _terminate_when_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os.kill(os.getpid(), signal.SIGTERM)


def _cpuinfo(*names: str) -> str:
    """The first line of /proc/cpuinfo that has one of these names; empty if there is none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    return ""


def _sysctl(name: str) -> str:
    return _output_of("sysctl", "-n", name) if sys.platform == "darwin" else ""


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
