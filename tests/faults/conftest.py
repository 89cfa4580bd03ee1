"""What a whole run of the suite counted: kills by the kind of moment, and memory."""

from __future__ import annotations

import pytest


@pytest.fixture
def count(record_property):
    """Add to what is counted over all tests, whichever process they run in; tests/conftest.py prints the sums."""
    return lambda **numbers: record_property("counted", numbers)
