"""MEPG: minimalist ensemble policy gradients. A critic with a mask is one of 2^n; the complete one is all of them.

import mepg

model = mepg.ME_SAC("MlpPolicy", "HopperBulletEnv-v0", seed=0)
model.learn(100_000, progress_bar=True)
"""

import sys
from typing import Any

__version__ = "0.1.0"

if sys.platform == "win32":  # files are locked, and processes ended, in ways that Windows does not have
    _NEEDS = "mepg needs Linux or macOS; on Windows, use the Windows Subsystem for Linux: wsl --install"
    if sys.argv[0].replace("\\", "/").rpartition("/")[2].startswith(("mepg", "-m")):  # the program, or python -m mepg
        sys.stderr.write(f"mepg: {_NEEDS.removeprefix('mepg ')}\n")
        sys.exit(2)
    raise ImportError(_NEEDS)


def __getattr__(name: str) -> Any:
    """Import the classes and functions when one is first used: `mepg --help` need not wait for JAX.

    __init__.pyi lists them for editors. `from mepg import flags` asks here too, before it imports that module: so only
    a capital, with which a class begins, or one of these four names is worth the import.
    """
    if name[:1].isupper() or name in ("algorithm", "load", "recommended", "__all__"):
        from mepg.api.classes import exports

        found = exports()
        globals().update(found, __all__=sorted(found))
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'mepg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
