"""Making environments: their ids, the packages that register them, and workarounds for PyBullet and MuJoCo."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.envs import registration

from mepg.core.types import Sizes
from mepg.envs.bullet import patch_bullet
from mepg.errors import RunFailure, UsageError, one_line, unknown
from mepg.process import foreign_code
from mepg.system import has_screen, platform_tag

# Tasks without PyBullet, with their sizes, so that `mepg list` need not make them.
MUJOCO_TASKS = {
    "Ant-v5": Sizes(obs=105, action=8),
    "HalfCheetah-v5": Sizes(obs=17, action=6),
    "Hopper-v5": Sizes(obs=11, action=3),
    "Humanoid-v5": Sizes(obs=348, action=17),
    "InvertedDoublePendulum-v5": Sizes(obs=9, action=1),
    "InvertedPendulum-v5": Sizes(obs=4, action=1),
    "Reacher-v5": Sizes(obs=10, action=2),
    "Swimmer-v5": Sizes(obs=8, action=2),
    "Walker2d-v5": Sizes(obs=17, action=6),
}
GYMNASIUM_TASKS = {
    "Pendulum-v1": Sizes(obs=3, action=1),
    "MountainCarContinuous-v0": Sizes(obs=2, action=1),
    "CartPole-v1": Sizes(obs=4, action=2, action_kind="discrete"),
    "Acrobot-v1": Sizes(obs=6, action=3, action_kind="discrete"),
}


def make(env_id: str, render_mode: str | None = None, *, time_limit: bool = True) -> gymnasium.Env[Any, Any]:
    """A Gymnasium environment by its id, or by module:id. A UsageError says which package is missing."""
    if render_mode == "rgb_array" and not has_screen():
        _render_without_a_screen(env_id)
    # Not every environment takes this argument.
    rendering: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    with _one_line_errors(env_id, rendering=bool(rendering)):
        _register(env_id)
        limit = None if time_limit else -1
        env = gymnasium.make(env_id, max_episode_steps=limit, disable_env_checker=True, **rendering)
        patch_bullet(env)
    # MinAtar's images of 10 by 10 pixels are small enough for an MLP.
    return gymnasium.wrappers.FlattenObservation(env) if _name(env_id).startswith("MinAtar/") else env


def _render_without_a_screen(env_id: str) -> None:
    """Tell MuJoCo and pygame not to look for a screen, unless the user has told them something else."""
    import ctypes.util  # on a Mac, which has a screen, it would need modules that others may lack

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame's
    if "MUJOCO_GL" not in os.environ:
        # Naming a library that is not there would keep MuJoCo from being imported, in this process, even to learn.
        for name, library in ("egl", "EGL"), ("osmesa", "OSMesa"):  # both can render on the processor
            if ctypes.util.find_library(library):
                os.environ["MUJOCO_GL"] = name
                return
        if _is_mujoco(env_id):
            raise render_error(env_id, OSError("there is no EGL and no OSMesa"))


def full_id(env_id: str) -> str:
    """The id with its version: the newest one if it has none. Runs store it, because the newest may change."""
    parts = registration.ENV_ID_RE.fullmatch(env_id.rpartition(":")[2])
    if parts is None or parts["version"]:  # an invalid id is an error in `make`
        return env_id
    with _one_line_errors(env_id):
        _register(env_id)
        newest = registration.find_highest_version(parts["namespace"], parts["name"])
        return env_id if newest is None else f"{env_id}-v{newest}"


def time_limit_of(env_id: str) -> int | None:
    """The time limit that an id was registered with, in steps."""
    with _one_line_errors(env_id):
        _register(env_id)
        return gymnasium.spec(env_id.rpartition(":")[2]).max_episode_steps


def _register(env_id: str) -> None:
    """Import the package that registers the id."""
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    if name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            import pybullet_envs_gymnasium  # noqa: F401  (registers its tasks)
    if name.startswith("MinAtar/") and name not in gymnasium.registry:
        if importlib.util.find_spec("minatar") is None:
            raise UsageError(f"{name} needs MinAtar, which is not installed: pip install 'mepg[minatar]'")
        importlib.import_module("minatar.gym").register_envs()
    if name.partition("-")[0].endswith("BulletEnv") and "HopperBulletEnv-v0" not in gymnasium.registry:
        raise UsageError(f"{name} needs {how_to_get_pybullet()}")


def has_pybullet() -> bool:
    """Whether PyBullet's tasks can be made here."""
    return all(importlib.util.find_spec(name) for name in ("pybullet", "pybullet_envs_gymnasium"))


def has_mujoco() -> bool:
    """Whether MuJoCo's tasks can be made here."""
    return importlib.util.find_spec("mujoco") is not None


def first_task() -> str:
    """A task to try first, of those that can be made here."""
    return "HopperBulletEnv-v0" if has_pybullet() else "Hopper-v5" if has_mujoco() else "Pendulum-v1"


def how_to_get_pybullet() -> str:
    """How to install PyBullet or its fork, where they have wheels (docs/machines.md), and what to use instead."""
    python, machine = sys.version_info[:2], platform_tag()
    missing = "PyBullet, which is not installed: pip install"
    if python < (3, 12) and machine == ("linux", "x86_64"):
        install = f"{missing} 'mepg[bullet]'; or"
    elif python < (3, 14) and machine in (("linux", "x86_64"), ("darwin", "arm64")):
        install = f"{missing} pybullet-arm64, then pip install --no-deps pybullet_envs_gymnasium; or"
    else:
        install = f"PyBullet, which has no package for Python {python[0]}.{python[1]} on {' '.join(machine)}:"
    mujoco = "" if has_mujoco() else " (pip install 'mepg[mujoco]')"
    return f"{install} take a MuJoCo task such as Hopper-v5{mujoco}, or one of Gymnasium's own, Pendulum-v1"


@contextlib.contextmanager
def _one_line_errors(env_id: str, *, rendering: bool = False) -> Iterator[None]:
    """Turn errors of Gymnasium, of an environment, or of the module that registers it into a one-line UsageError."""
    module, _, name = env_id.rpartition(":")
    try:
        with foreign_code:
            yield
    except UsageError:
        raise
    except gymnasium.error.UnregisteredEnv:
        raise unknown(
            "environment",
            env_id,
            gymnasium.registry,
            hint=" (mepg list names some; for one of your own, use module:id)",
        ) from None
    except ModuleNotFoundError as error:
        missing = error.name or getattr(error.__cause__, "name", None) or env_id.partition(":")[0]
        package = missing.partition(".")[0]
        if package == module.partition(".")[0]:
            raise UsageError(
                f"{env_id} names the module {package!r}, which is neither in this folder nor installed: "
                "run mepg in the folder that holds it, or add that folder to PYTHONPATH"
            ) from None
        raise UsageError(f"{env_id} needs {package!r}, which is not installed: pip install {package}") from None
    except gymnasium.error.Error as error:
        for package, extra in _EXTRAS.items():
            if isinstance(error, gymnasium.error.DependencyNotInstalled) and _is_from(extra, name):
                raise UsageError(
                    f"{env_id} needs {package}, which is not installed: pip install 'mepg[{extra}]'"
                ) from None
        raise UsageError(f"environment {env_id!r} cannot be made: {' '.join(str(error).split())}") from None
    except (Exception, SystemExit) as error:  # the code of the environment, or of the module that registers it
        if rendering and _is_mujoco(name):  # it looks for a graphics library as soon as it is imported
            raise render_error(env_id, error) from None
        raise UsageError(f"environment {env_id!r} cannot be made: {one_line(error)}") from None


def render_error(env_id: str, error: BaseException) -> UsageError | RunFailure:
    """The error for an environment that cannot be rendered."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled) and "pygame" in str(error):
        return UsageError(f"drawing {env_id} needs pygame, which is not installed: pip install pygame-ce")
    if not _is_mujoco(env_id):
        return RunFailure(f"{env_id} cannot be drawn: {one_line(error)}")
    return UsageError(
        f"{env_id} cannot be drawn without a screen here ({one_line(error)}): "
        "on Debian, apt-get install libegl1 libgl1-mesa-dri"
    )


_EXTRAS = {"MuJoCo": "mujoco", "Box2D": "box2d"}  # packages that Gymnasium's own environments need, and mepg's extras


def _is_from(folder: str, env_id: str) -> bool:
    known = gymnasium.registry.get(_name(env_id))
    return known is not None and str(known.entry_point).startswith(f"gymnasium.envs.{folder}")


def _is_mujoco(env_id: str) -> bool:
    return _is_from("mujoco", env_id)


def _name(env_id: str) -> str:
    return env_id.rpartition(":")[2]


def connect_first_client(env_id: str) -> None:
    """PyBullet's camera always uses the first client of the process, so make sure that there is one."""
    pybullet = sys.modules.get("pybullet") if "BulletEnv" in env_id else None
    if pybullet is not None and not pybullet.isConnected(0):
        pybullet.connect(pybullet.DIRECT)


@contextlib.contextmanager
def quiet(env_id: str) -> Iterator[None]:
    """Discard what PyBullet prints when it starts: it belongs neither on the terminal nor in --json's output."""
    try:
        saved = [os.dup(1), os.dup(2)] if "BulletEnv" in env_id else []
    except OSError:  # they are closed
        saved = []
    if not saved:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # the C library's own buffer
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, devnull):
            os.close(descriptor)
