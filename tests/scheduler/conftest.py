"""Workers find the stub environments."""

import pytest

from tests.run.processes import PATH


@pytest.fixture(autouse=True)
def _stubs_for_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH)
