"""Writes src/mepg/__init__.pyi, where editors and type checkers find the classes that mepg makes when it is used.

python scripts/stub.py            after an algorithm was given a `python_name`
"""

from __future__ import annotations

from pathlib import Path

from mepg.algos import algorithms
from mepg.api.classes import class_of

PATH = Path(__file__).parent.parent / "src" / "mepg" / "__init__.pyi"
HEAD = """# Written by scripts/stub.py from the registry of algorithms.
# ruff: noqa
from mepg.api.classes import algorithm as algorithm, load as load, recommended as recommended
from mepg.api.model import Model as Model
from mepg.errors import RunFailure as RunFailure, UsageError as UsageError

__version__: str
"""


def text() -> str:
    """The stub: a class for each algorithm that has one."""
    named = {entry.python_name: class_of(name) for name, entry in algorithms().items() if entry.python_name}
    return HEAD + "".join(f'\nclass {name}(Model):\n    """{made.__doc__}"""\n' for name, made in sorted(named.items()))


if __name__ == "__main__":
    PATH.write_text(text())
