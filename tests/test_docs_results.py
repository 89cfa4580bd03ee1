"""docs/results.md shows what is in results/."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page():
    """docs/results.py, which makes the tables of the page."""
    about = importlib.util.spec_from_file_location("docs_results", ROOT / "docs" / "results.py")
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_runs(page):
    text = page.PAGE.read_text()
    assert page.filled(text, page.tables(page.published())) == text, "results/ has changed: python docs/results.py"


def test_what_is_published_is_small_enough_to_clone():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()) <= 30 * 2**20
