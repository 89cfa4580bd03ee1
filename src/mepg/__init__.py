"""MEPG: minimalist ensemble policy gradients. A critic with a mask is one of 2^n; the complete one is all of them.

import mepg

model = mepg.ME_SAC("MlpPolicy", "HopperBulletEnv-v0", seed=0)
model.learn(100_000, progress_bar=True)
"""

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if sys.platform == "win32":  # files are locked, and processes ended, in ways that Windows does not have
    _NEEDS = "mepg needs Linux or macOS; on Windows, use the Windows Subsystem for Linux: wsl --install"
    if sys.argv[0].replace("\\", "/").rpartition("/")[2].startswith(("mepg", "-m")):  # the program, or python -m mepg
        sys.stderr.write(f"mepg: {_NEEDS.removeprefix('mepg ')}\n")
        sys.exit(2)
    raise ImportError(_NEEDS)

if TYPE_CHECKING:
    from mepg.api import (
        ACE,
        DDPG,
        DQN,
        ME_DDPG,
        ME_DQN,
        ME_QRDQN,
        ME_SAC,
        ME_TQC,
        QRDQN,
        REDQ,
        SAC,
        SUNRISE,
        TD3,
        TQC,
        CrossQ,
        DroQ,
        ME_CrossQ,
        Model,
        algorithm,
        load,
    )  # fmt: skip
    from mepg.errors import RunFailure, UsageError

__all__ = [
    "ACE", "DDPG", "DQN", "ME_DDPG", "ME_DQN", "ME_QRDQN", "ME_SAC", "ME_TQC", "QRDQN", "REDQ", "SAC", "SUNRISE", "TD3",
    "TQC", "CrossQ", "DroQ", "ME_CrossQ", "Model", "RunFailure", "UsageError", "algorithm", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the names above when they are first used: `mepg --help` need not wait for JAX."""
    if name not in __all__:
        raise AttributeError(f"module 'mepg' has no attribute {name!r}")
    import mepg.api
    import mepg.errors

    return getattr(mepg.api, name, None) or getattr(mepg.errors, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
