"""docs/results.md, docs/one-critic.md, README.md and the tables of speed show what was measured."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def script(monkeypatch):
    """One of docs/*.py, by name."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    yield importlib.import_module
    for path in (ROOT / "docs").glob("*.py"):
        sys.modules.pop(path.stem, None)  # names that others may want


def test_the_tables_are_those_of_the_runs(script):
    made = script("results")
    pages = made.pages(made.published())
    assert all(path.read_text() == page for path, page in pages.items()), "results/ has changed: python docs/results.py"


def test_the_speeds_are_those_of_one_benchmark(script):
    made = script("speeds")
    pages = made.pages(json.loads(made.RESULTS.read_text()))
    assert all(path.read_text() == page for path, page in pages.items()), (
        "bench.json has changed: python docs/speeds.py"
    )


def test_what_is_published_is_small_enough_to_clone():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()) <= 60e6
