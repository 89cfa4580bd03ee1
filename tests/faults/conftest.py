"""What a whole run of the suite counted, at its end: kills by the kind of moment, and memory."""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.fixture
def count(record_property):
    """Add to what is counted over all tests, whichever process they run in."""
    return lambda **numbers: record_property("counted", numbers)


def pytest_terminal_summary(terminalreporter):
    total = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, numbers in report.user_properties:
            if name == "counted" and report.when == "call":
                total.update(numbers)
    if total:
        terminalreporter.section("faults")
        for name, number in sorted(total.items()):
            terminalreporter.write_line(f"{number:>8,}  {name.replace('_', ' ')}")
