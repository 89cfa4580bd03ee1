"""What is said when something goes wrong."""

import pytest

from mepg.errors import RunFailure, UsageError, failures_at, one_line, unknown


def test_the_nearest_name_is_suggested_and_no_distant_one():
    assert str(unknown("log", "tensorbord", ["csv", "tensorboard"])) == (
        "unknown log 'tensorbord'; did you mean 'tensorboard'?"
    )
    assert str(unknown("log", "paper", ["csv", "tensorboard"], hint=" (known: csv)")) == (
        "unknown log 'paper' (known: csv)"
    )


def test_a_failure_says_where_and_another_error_goes_through():
    with pytest.raises(RunFailure, match=r"^step 7: first reset: it is gone$"):  # noqa: SIM117
        with failures_at("step 7"), failures_at("first reset"):
            raise RunFailure("it is gone")
    with pytest.raises(UsageError, match=r"^as it was$"), failures_at("step 7"):
        raise UsageError("as it was")


def test_somebody_elses_error_is_one_printable_line():
    class Wordless(Exception):
        def __str__(self):
            raise RuntimeError

    assert one_line(ValueError("two\n  lines\x1b[31m")) == "ValueError: two lines[31m"
    assert one_line(Wordless()) == "Wordless: (no message)"
    assert len(one_line(ValueError("x" * 10_000))) < 600
