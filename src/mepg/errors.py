"""What can go wrong, in words for the person at the keyboard."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UsageError(Exception):
    """Something that was asked for cannot be done. One line: the cause and the way out."""


class RunFailure(Exception):
    """A run that had to stop: what happened, at which step."""


@contextlib.contextmanager
def failures_at(place: str) -> Iterator[None]:
    """Put `place` in front of a RunFailure's message."""
    try:
        yield
    except RunFailure as failure:
        raise RunFailure(f"{place}: {failure}") from failure


def one_line(error: BaseException) -> str:
    """An error of somebody else's code: its class, and what it says."""
    try:
        said = " ".join(str(error).split())[:500]
    except Exception:
        said = "(no message)"
    return f"{type(error).__name__}: {''.join(c for c in said if c.isprintable())}"


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """The error for a `name` that is not `known`, with the nearest that is."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind} {name!r}{suggestion}{hint}")
