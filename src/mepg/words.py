"""Numbers in sentences."""

from __future__ import annotations


def many(count: float, what: str) -> str:
    """1 run, 2 runs, 1,000 runs."""
    return f"{count:,} {what}{'s' * (count != 1)}"
