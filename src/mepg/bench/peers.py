"""Other libraries, each in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from mepg.errors import RunFailure, unknown
from mepg.signals import process_group

# A CPU build: others are several gigabytes.
TORCH = "torch==2.13.0"
TASKS = ("pybullet", "pybullet_envs_gymnasium", "gymnasium[mujoco]")
# The packages of each library, in the order of installation. Torch is installed first: what follows then keeps it.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "sb3": ((TORCH,), ("stable-baselines3", *TASKS)),
    "sbx": ((TORCH,), ("sbx-rl", *TASKS)),
    "rltools": (("rltools[mkl]", "gymnasium"),),  # needs a C++ compiler
}
_MARK = ".installed"  # a file that lists what has been installed
_SCRIPT = Path(__file__).parent / "peer.py"


class Peer(NamedTuple):
    """A library that is ready to be measured."""

    name: str
    python: Path
    versions: dict[str, str]

    @property
    def command(self) -> list[str]:
        return [str(self.python), str(_SCRIPT)]


def require_known(names: Iterable[str]) -> None:
    """Refuse what is no library to compare with."""
    for name in names:
        if name not in PACKAGES:
            raise unknown("library", name, PACKAGES)


def prepare(name: str, folder: Path, say: Callable[[str], None]) -> Peer:
    """Make the library's virtual environment under `folder`, unless it exists."""
    require_known([name])
    home = folder / name
    python = home / "bin" / "python"
    if not is_installed(name, folder):
        say(f"Installing {_listed(name)} into {home}: once, some minutes, 1 GB")
        _run(home, sys.executable, "-m", "venv", "--clear", str(home))
        for packages in PACKAGES[name]:
            _pip(python, "install", *packages)
        (home / _MARK).write_text(_listed(name))
    installed = dict(line.split("==") for line in _pip(python, "freeze").split() if line.count("==") == 1)
    shown = ("stable_baselines3", "stable-baselines3", "sbx-rl", "sbx_rl", "torch", "jax", "numpy", "rltools", "mkl")
    return Peer(name, python, {key: version for key, version in installed.items() if key in shown})


def is_installed(name: str, folder: Path) -> bool:
    """Whether the library's virtual environment under `folder` has all its packages."""
    mark = folder / name / _MARK
    return mark.is_file() and mark.read_text() == _listed(name)


def _listed(name: str) -> str:
    return ", ".join(package for packages in PACKAGES[name] for package in packages)


def _pip(python: Path, *arguments: str) -> str:
    return _run(python.parent.parent, str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _run(home: Path, *command: str) -> str:
    with process_group(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        output, errors = process.communicate()
    if process.returncode:
        last = (errors.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailure(f"{' '.join(command[2:])} failed in {home}: {last}")
    return str(output)
