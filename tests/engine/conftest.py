"""Workers find the stub environments."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _stubs_for_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))
