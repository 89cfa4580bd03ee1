"""The commands. Each module here is the command of that name; they are not listed anywhere else. A command has

    a docstring      one line of help
    add_arguments    adds its arguments to its parser. A flag's help ends with its default in parentheses, as --help
                     promises: `flags.add_count` and its like write it there, for others it is typed
    answer           runs it. Of its arguments, `json` is True for --json, and `say` prints a line before there is an
                     answer (nothing with --json)
    COMPUTES         True if it computes with JAX: on one core, or on `--threads` if it has that flag. (verify sets
                     JAX up itself, with as many threads as its runs had)
    SAVES            True if it saves its work when a signal asks it to stop

One that reads a run may meet an algorithm or an environment of somebody's own, whose module is imported only if the
user names it: `flags.add_algorithm`, `flags.add_env`.

Imports are inside `answer`: `mepg --help` stays quick, and JAX starts with the right number of threads.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from types import ModuleType
from typing import Any, NamedTuple

Parser = argparse.ArgumentParser
Arguments = argparse.Namespace


class Answer(NamedTuple):
    """What a command found or did."""

    data: dict[str, Any]  # printed with --json
    text: str  # printed without
    status: int = 0  # the exit status


def commands() -> dict[str, ModuleType]:
    """Every command by its name."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}
