"""docs/native-walkthrough.md shows what the passes do today."""

import importlib
import sys
from pathlib import Path

import pytest

from mepg.native.library import generate

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def walkthrough(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    yield importlib.import_module("walkthrough")
    for name in ("walkthrough", "markers"):
        sys.modules.pop(name, None)


def test_every_text_is_what_the_code_prints(walkthrough):
    assert walkthrough.PAGE.read_text() == walkthrough.page(), "a pass has changed: python docs/walkthrough.py"


def test_the_passes_are_those_of_a_compiled_function(walkthrough):
    text = generate(walkthrough.row_sums, (walkthrough.X, walkthrough.W), "none", walkthrough.INSTRUCTIONS, 1).text
    assert text.rstrip() in walkthrough.PAGE.read_text()


def test_every_module_is_on_the_page(walkthrough):
    page = walkthrough.PAGE.read_text()
    for path in (DOCS.parent / "src" / "mepg" / "native").iterdir():
        if path.suffix in (".py", ".h") and path.stem != "__init__":
            assert f"`native/{path.name}`" in page
