"""Other libraries, each in a virtual environment of its own: none of them ever enters ours."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mepg.errors import RunFailure, unknown

# A CPU build of torch; without saying so, several gigabytes of another come along.
TORCH = "torch==2.13.0"
TASKS = ("pybullet", "pybullet_envs_gymnasium")
# What is installed for each, one after the other. Torch by itself: what comes later is then content with it.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "sb3": ((TORCH,), ("stable-baselines3", *TASKS)),
    "sbx": ((TORCH,), ("sbx-rl", *TASKS)),
    "rltools": (("rltools[mkl]", "gymnasium"),),  # compiled by the C++ compiler that is there, with MKL's products
}
_SCRIPT = Path(__file__).parent / "peer.py"


class Peer(NamedTuple):
    """A library that is ready to be measured."""

    name: str
    python: Path
    versions: dict[str, str]

    @property
    def command(self) -> list[str]:
        return [str(self.python), str(_SCRIPT)]


def prepare(name: str, folder: Path, say: Callable[[str], None]) -> Peer:
    """Make the library's environment under `folder`, unless it is there already."""
    if name not in PACKAGES:
        raise unknown("library", name, PACKAGES)
    home = folder / name
    python, done = home / "bin" / "python", home / ".installed"
    if not done.exists():
        everything = ", ".join(package for packages in PACKAGES[name] for package in packages)
        say(f"Installing {everything} into {home}: once, some minutes, 1 GB")
        venv.create(home, with_pip=True, clear=True)
        for packages in PACKAGES[name]:
            _pip(python, "install", *packages)
        done.touch()
    listed = _pip(python, "freeze").split()
    known = dict(line.split("==") for line in listed if line.count("==") == 1)
    wanted = ("stable_baselines3", "stable-baselines3", "sbx-rl", "sbx_rl", "torch", "jax", "numpy", "rltools", "mkl")
    return Peer(name, python, {key: version for key, version in known.items() if key in wanted})


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailure(f"{' '.join(arguments)} failed in {python.parent.parent}: {last}")
    return ended.stdout
