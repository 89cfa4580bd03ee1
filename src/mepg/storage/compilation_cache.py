"""Programs that XLA has compiled, kept on disk: starting again takes a few seconds less."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import warnings
from pathlib import Path

import jax

from mepg.native.build import cache_folder
from mepg.system import processor_extensions
from mepg.training.threads import limit_threads

MAX_CACHE_BYTES = 500 * 2**20


def configure_jax(threads: int) -> None:
    """Set JAX up in one of mepg's own processes, before it computes anything: cores, and where programs are kept."""
    # SciPy's OpenBLAS, which computes JAX's QR, reads it when it is loaded. With more threads, initial weights round
    # otherwise.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    limit_threads(threads)
    keep_compiled_programs(processor_extensions())


def keep_compiled_programs(instructions: str) -> None:
    """Have JAX look for a program on disk before it compiles one, unless the user has told it where, or not to.

    The file of a program has a checksum, so one that is damaged is compiled again. The bits of a run do not
    depend on where its program came from. Call it only in mepg's own processes, never in one that imports mepg.
    """
    # A program that cannot be kept or found is compiled; on a full disk, two screens about that would hide the cause.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    if jax.config.values.get("jax_compilation_cache_dir") or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return
    folder = folder_for(instructions)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # it is only a matter of seconds
    _make_room(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def folder_for(instructions: str) -> Path:
    """Machines that share a home folder may differ in the instructions that they understand."""
    machine_hash = hashlib.sha256(f"{platform.machine()} {instructions}".encode()).hexdigest()[:12]
    return cache_folder(f"compiled-{machine_hash}")


def _make_room(folder: Path) -> None:
    """The oldest go first."""
    with contextlib.suppress(OSError):  # another process may be doing the same
        files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
        total = 0
        for file in files:
            total += file.stat().st_size
            if total > MAX_CACHE_BYTES:
                file.unlink()
