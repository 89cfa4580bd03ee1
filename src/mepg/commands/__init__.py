"""The commands. Each module here is the command of that name, found without being listed anywhere. It has

    its docstring    one line of help
    add_arguments    adds what it takes to its parser
    answer           carries it out. Among its arguments, `json` says whether the answer is for programs, and `say`
                     prints a line for people before there is an answer
    COMPUTES         True if it computes with JAX, on as many cores as `--threads` says
    SAVES            True if it saves what it has when a signal tells it to stop

What an answer needs is imported where it is computed: `mepg --help` is quick, and JAX starts with the right number of
threads.
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
    """What a command found or did. `mepg.cli` prints `data` as JSON, for programs, or `text`, for people."""

    data: dict[str, Any]
    text: str
    status: int = 0  # of the process


def commands() -> dict[str, ModuleType]:
    """Every command by its name."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}
