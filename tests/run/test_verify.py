"""When a published run counts as true; true and forged ones: tests/commands/test_verify.py."""

import math

import pytest

from mepg.run.verify import Difference, Verdict


def difference(published, here, step=1000):
    return Difference(step, "train/critic_loss", published, here)


@pytest.mark.parametrize(
    ("published", "here", "large"),
    [
        (5.0, 5.004, False),
        (5.0, 5.006, True),
        (-2000.0, -2001.9, False),
        (-2000.0, -2002.1, True),
        (0.0, 0.0009, False),  # near 0, a thousandth of 1
        (0.0, 0.0011, True),
        (math.nan, 1.0, True),
        (math.inf, 1.0, True),
    ],
)
def test_what_rounding_may_do_to_a_number(published, here, large):
    assert difference(published, here).large is large


def verdict(*differences, elsewhere=(), learned=False):
    return Verdict(3000, 20, list(differences), list(elsewhere), learned)


def test_the_same_bits_are_true_wherever_they_were_computed():
    for elsewhere in ((), ("processor: another then",)):
        found = verdict(elsewhere=elsewhere)
        assert (found.exact, found.agrees, found.departs) == (True, True, None)


def test_on_the_same_machine_no_digit_may_differ():
    found = verdict(difference(5.0, 5.0 + 1e-9), learned=True)
    assert (found.exact, found.agrees, found.departs) == (False, False, None)


def test_elsewhere_small_differences_are_rounding_and_large_ones_only_after_some_learning():
    small, large = difference(5.0, 5.001), difference(5.0, 6.0, step=2000)
    there = ["processor: another then"]
    assert verdict(small, elsewhere=there).agrees
    assert verdict(small, large, elsewhere=there, learned=True).agrees
    assert verdict(small, large, elsewhere=there).departs == 2000
    assert not verdict(small, large, elsewhere=there).agrees, "nothing had been learned whose rounding could grow"
