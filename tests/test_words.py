"""1 run, 2 runs."""

import ast
import itertools
import re
from pathlib import Path

import mepg
from mepg.words import duration, many

NOUNS = (
    "run", "step", "episode", "evaluation", "trial", "seed", "core", "environment", "observation", "action", "curve",
    "value", "tie", "task", "second",
)  # fmt: skip
# What stands before such a word and is no number, or never 1.
OTHERS = {"type(space).__name__", "space", "kind", "module", "length", "seconds", "loop.config.spec.warmup", "envs"}


def test_many():
    assert [many(count, "run") for count in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


def test_duration():
    assert [duration(seconds) for seconds in (0.4, 1, 89, 90, 6_000, 200_000)] == [
        "0 seconds", "1 second", "89 seconds", "1.5 minutes", "1.7 hours", "2.3 days",
    ]  # fmt: skip


def test_no_number_is_put_before_a_plural():
    """Which would be wrong for 1."""
    plural = re.compile(rf" ({'|'.join(NOUNS)})s\b(?!/)")
    for path in Path(mepg.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for number, words in itertools.pairwise(parts):
                if isinstance(number, ast.FormattedValue) and ast.unparse(number.value) not in OTHERS:
                    text = words.value if isinstance(words, ast.Constant) else ""
                    assert not plural.match(text), f"{path.name}:{node.lineno}: {ast.unparse(node)}"
