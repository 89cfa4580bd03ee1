"""Files that are either whole or not there, and that cannot run code when they are read."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
import stat
import sys
import time
import weakref
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from mepg.errors import UsageError
from mepg.settings import digest
from mepg.system import new_file, sync, temporary_path

Arrays = dict[str, npt.NDArray[Any]]
JsonObject = dict[str, Any]  # checked where it is used

# What is larger was not written by us, and is refused before it is read: 16 GB of arrays, 64 MB of text.
MAX_FILE_BYTES, MAX_TEXT_BYTES = 16 * 2**30, 64 * 2**20

_NUMBERS = re.compile(r"\[\n([-+.,\de\s]+)\]")  # an indented list of them; no string in JSON contains a line break


# What the system says where a file is missing, or something else is in its place.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
_HINTS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "; allow this user to read it (chown or chmod)"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "; close some, or raise the limit (ulimit -n)"),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "; see to the disk or the network drive"),
}


class Damaged(Exception):
    """A file that is missing, cut short or altered."""


class Unreadable(UsageError):
    """A file that the system does not let us read. It may well be whole, so nothing takes its place."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be read: {error.strerror or error}{_HINTS.get(error.errno or 0, '')}")


def write_atomic(path: Path, content: bytes) -> str:
    """Write beside the old file, flush to the disk, and rename into place. Gives the SHA-256."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} exists and is not a file: choose another name")
    temporary = temporary_path(path)
    try:
        with new_file(temporary) as file:
            try:
                file.write(content)
                file.flush()
                sync(file.fileno())
                temporary.rename(path)
            except BaseException:
                temporary.unlink(missing_ok=True)  # on a full disk, half a file is only in the way
                raise
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the name that the user knows
        raise
    sync_folder(path.parent)
    return hashlib.sha256(content).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path, sha256: str | None = None, most: int = MAX_FILE_BYTES) -> bytes:
    """A file's content, compared with its checksum where one is known."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):  # a pipe or a device might never end
            raise Damaged(f"{path.name} is not a file")
        if info.st_size > most:
            raise Damaged(f"{path.name} has {info.st_size:,} bytes, more than the {most:,} that are ever written")
        with path.open("rb") as file:
            content = file.read(info.st_size)
    except MemoryError:
        raise Unreadable(path, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))) from None
    except OSError as error:
        if error.errno not in _MISSING:
            raise Unreadable(path, error) from None
        raise Damaged(f"{path.name}: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise Damaged(f"{path.name}: {error}") from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(f"{path.name} does not match its checksum")
    return content


def path_exists(path: Path) -> bool:
    """Whether there is something of that name. In Python 3.14, `Path.exists` says no also where it may not look."""
    try:
        path.stat()
    except ValueError:
        return False
    except OSError as error:
        if error.errno not in _MISSING:
            raise Unreadable(path, error) from None
        return False
    return True


def list_names(folder: Path) -> list[str]:
    """The names in a folder; none if there is no folder. `Path.glob` finds none also where it may not look."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unreadable(folder, error) from None


def write_json(path: Path, data: object) -> None:
    """JSON for people too: indented, each list of numbers on one line, and without NaN."""
    text = json.dumps(data, indent=2, allow_nan=False)
    write_atomic(path, (_NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n").encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote, or whatever else is there: the caller checks."""
    try:
        return json.loads(read_whole(path, most=MAX_TEXT_BYTES))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path.name} is not JSON: {error}") from None


def write_sealed(path: Path, data: JsonObject) -> None:
    """JSON with a checksum of everything else in it."""
    write_json(path, {**data, "sha256": digest(data)})


def read_sealed(path: Path) -> JsonObject:
    """What `write_sealed` wrote, and nothing else."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise Damaged(f"{path.name} is not a JSON object")
    sha256 = data.pop("sha256", None)
    if sha256 != digest(data):
        raise Damaged(f"{path.name} does not match its checksum")
    return data


def parse_count(value: object) -> int:
    """A whole number, 0 or more, from JSON; a ValueError if it is not one."""
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{str(value)[:50]!r} is not a count")
    return value


def parse_finite(value: object) -> float:
    """A finite number from JSON; a ValueError if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1.8e308:
        raise ValueError(f"{str(value)[:50]!r} is not a number")
    return float(value)


class Checksum(NamedTuple):
    """The SHA-256 of the first `size` bytes of a file; more may follow."""

    size: int
    sha256: str


def checksum(path: Path) -> Checksum | None:
    """The checksum of a file as it is now; None if there is no such file."""
    if not path_exists(path):
        return None
    content = read_whole(path)
    return Checksum(len(content), hashlib.sha256(content).hexdigest())


def read_prefix(path: Path, until: Checksum) -> bytes:
    """The part of a file that a checksum is of: what it held then."""
    if type(until.size) is not int or until.size < 0:  # a file may say anything
        raise Damaged(f"{path.name} cannot have a checksum of {until.size!r} bytes")
    content = read_whole(path)[: until.size]
    if Checksum(len(content), hashlib.sha256(content).hexdigest()) != until:
        raise Damaged(f"{path.name} does not match its checksum")
    return content


def open_lock(path: Path) -> TextIO:
    """Open a lock file; never one that a link leads to."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    return os.fdopen(descriptor, "r+")


def acquire(lock: TextIO, *, shared: bool = False, seconds: float = 0.0) -> TextIO:
    """Lock a file until this process closes it; a BlockingIOError if another has locked it.

    A process that is forked meanwhile, by an environment, does not go on holding it when this one has ended.

    :param shared: others may lock it too, if they share it
    :param seconds: how long to wait for another
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            _acquired.add(lock)
            return lock


_acquired: weakref.WeakSet[TextIO] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [lock.close() for lock in list(_acquired)])


def write_npz(path: Path, arrays: Arrays) -> None:
    """A file of arrays for others to read: `np.load(path)`."""
    write_atomic(path, to_npz(arrays))


def read_npz(path: Path, sha256: str | None = None) -> Arrays:
    """What `write_npz` wrote."""
    return from_npz(read_whole(path, sha256), path.name)


def to_npz(arrays: Arrays) -> bytes:
    """Arrays as the bytes of an .npz file."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def from_npz(content: bytes, name: str) -> Arrays:
    """Back from the bytes of the .npz file called `name`: plain numbers, in no more memory than the file has bytes."""
    try:
        return {each.removesuffix(".npy"): _read_npy(inner) for each, inner in from_zip(content, name).items()}
    except (ValueError, TypeError, EOFError) as error:
        raise Damaged(f"{name} is not a file of arrays: {error}") from None


def from_zip(content: bytes, name: str) -> dict[str, bytes]:
    """The files in an archive, by name. A compressed one is refused: it could fill the memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise Damaged(f"{name} is compressed, which mepg never does")
            if sum(member.file_size for member in members) > len(content):
                raise Damaged(f"{name} holds less than it says")
            return {member.filename: archive.read(member) for member in members}
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise Damaged(f"{name} is not an archive, or it is damaged: {error}") from None


def _read_npy(content: bytes) -> npt.NDArray[Any]:
    """An array, if its header agrees with the size of what follows."""
    stream = io.BytesIO(content)
    np.lib.format.read_magic(stream)
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = len(content) - stream.tell()
    if dtype.kind not in "biuf" or min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"an array of {dtype} and shape {shape} in {rest} bytes")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape, order="F" if by_columns else "C")


def write_arrays(path: Path, arrays: Arrays) -> str:
    """A safetensors file; gives its SHA-256."""
    return write_atomic(path, _to_safetensors(arrays))


def read_arrays(path: Path, sha256: str | None = None) -> Arrays:
    """The arrays of a safetensors file, by name."""
    return _from_safetensors(path, read_whole(path, sha256))


def write_sealed_arrays(path: Path, arrays: Arrays, metadata: JsonObject) -> None:
    """A safetensors file that says what it is, and holds its own checksum."""
    # One entry: safetensors writes several in any order, and equal runs should leave equal files.
    text = {"mepg": json.dumps({**metadata, "sha256": _sha256_of_both(arrays, metadata)})}
    write_atomic(path, _to_safetensors(arrays, text))


def read_sealed_arrays(path: Path) -> tuple[Arrays, JsonObject]:
    """What `write_sealed_arrays` wrote."""
    content = read_whole(path)
    arrays = _from_safetensors(path, content)
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = json.loads(header["__metadata__"]["mepg"])
        matches = metadata.pop("sha256") == _sha256_of_both(arrays, metadata)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path.name} does not say what it is: {error!r}") from None
    if not matches:
        raise Damaged(f"{path.name} does not match its checksum")
    return arrays, metadata


def _sha256_of_both(arrays: Arrays, metadata: JsonObject) -> str:
    return hashlib.sha256(_to_safetensors(arrays) + digest(metadata).encode()).hexdigest()


def _to_safetensors(arrays: Arrays, text: dict[str, str] | None = None) -> bytes:
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()}, text)


def _from_safetensors(path: Path, content: bytes) -> Arrays:
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path.name} is not a safetensors file: {error}") from None


def require_trusted_env(env_id: str, named: str | None, file: Path) -> str:
    """The environment's id in a file, if the user trusts it.

    Making module:id imports the module, which runs its code, and the file may come from anyone.

    :param named: what the user named on the command line, with or without its version
    """
    module, colon, _ = env_id.rpartition(":")
    if named is not None and not re.fullmatch(rf"{re.escape(named)}(-v\d+)?", env_id):
        raise UsageError(f"{file} names the environment {env_id}, not {named}")
    if colon and named is None and module not in sys.modules:
        raise UsageError(
            f"{file} names the environment {env_id}, and importing {module} runs its code: "
            f"if you trust it, add --env {env_id} (in Python: import {module} first)"
        )
    return env_id


def not_writable(folder: Path, error: OSError) -> UsageError:
    """The error for a folder that the system will not let us use."""
    return UsageError(f"{folder} cannot be written: {error.strerror or error}")
