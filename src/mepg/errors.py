"""Errors whose message is one line for the user."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UsageError(Exception):
    """The request cannot be carried out. One line: the cause and the way out."""


class RunFailure(Exception):
    """A run had to stop. One line: at which step, and why."""


@contextlib.contextmanager
def failures_at(location: str) -> Iterator[None]:
    """Prefix a RunFailure's message with `location`."""
    try:
        yield
    except RunFailure as failure:
        raise RunFailure(f"{location}: {failure}") from failure


def with_cause(text: str, error: BaseException) -> str:
    """The text, and what the error says, if anything: Python's MemoryError says nothing."""
    return f"{text}: {error}" if str(error) else text


def one_line(error: BaseException) -> str:
    """The class and message of any exception."""
    try:
        message = " ".join(str(error).split())[:500]
    except Exception:
        message = "(no message)"
    return f"{type(error).__name__}: {''.join(c for c in message if c.isprintable())}"


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """The error for a `name` that is not `known`, with the most similar one that is."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind} {name!r}{suggestion}{hint}")
