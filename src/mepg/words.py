"""Numbers with their nouns and units."""

from __future__ import annotations


def many(count: float, noun: str) -> str:
    """1 run, 2 runs, 1,000 runs."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """45 seconds, 2.5 minutes, 3.0 hours, 4.2 days."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return many(round(seconds), "second")
