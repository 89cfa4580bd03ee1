"""When a published run counts as true; true and forged ones: tests/commands/test_verify.py."""

import math

import pytest

from mepg.run.verify import Difference, PolicyVerdict, Verdict, differ_significantly
from mepg.training.evaluate import Episode


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


def verdict(*differences, elsewhere=(), learned=False, policies=()):
    return Verdict(3000, 20, list(differences), list(elsewhere), learned, list(policies))


def test_the_same_bits_are_true_wherever_they_were_computed():
    for elsewhere in ((), ("processor: another then",)):
        found = verdict(elsewhere=elsewhere)
        assert (found.exact, found.agrees, found.first_large_step) == (True, True, None)


def test_on_the_same_machine_no_digit_may_differ():
    found = verdict(difference(5.0, 5.0 + 1e-9), learned=True)
    assert (found.exact, found.agrees, found.first_large_step) == (False, False, None)


def test_elsewhere_small_differences_are_rounding_and_large_ones_only_after_some_learning():
    small, large = difference(5.0, 5.001), difference(5.0, 6.0, step=2000)
    there = ["processor: another then"]
    assert verdict(small, elsewhere=there).agrees
    assert verdict(small, large, elsewhere=there, learned=True).agrees
    assert verdict(small, large, elsewhere=there).first_large_step == 2000
    assert not verdict(small, large, elsewhere=there).agrees, "nothing had been learned whose rounding could grow"


def test_a_run_is_as_true_as_its_policies():
    own = PolicyVerdict("policy.safetensors", True, True, "")
    rounded, foreign = own._replace(exact=False), own._replace(exact=False, agrees=False)
    assert (verdict(policies=[own]).exact, verdict(policies=[own]).agrees) == (True, True)
    assert (verdict(policies=[own, rounded]).exact, verdict(policies=[own, rounded]).agrees) == (False, True)
    assert (verdict(policies=[own, foreign]).agrees, verdict(policies=[own, foreign]).numbers_agree) == (False, True)


# Of policies in results/desk-200000: as they were published, and as XLA's rounding, not native code's, plays them here.
HALF_CHEETAH = [1585, 1537, 1569, 1536, 1586, 1511, 895, 1475, 1560, 1500]
ITS_ROUNDED = [1268, 1472, 1511, 1260, 1518, 1269, 63, 1354, 1529, 1485]


@pytest.mark.parametrize(
    ("published", "here", "apart"),
    [
        (HALF_CHEETAH, ITS_ROUNDED, False),
        (HALF_CHEETAH, [total - 900 for total in HALF_CHEETAH], True),
        (HALF_CHEETAH, list(range(800, 810)), True),
        ([500] * 10, [500] * 10, False),
        ([500] * 10, [9] * 10, True),
        ([500] * 10, [500.4] * 10, False),  # within the tolerance
        ([500] * 10, [500] * 9 + [300], False),  # one of them fell
        ([500] * 4, [9] * 4, False),  # one division in 35 is like that: too few to say
        ([500], [9], False),
    ],
)
def test_episodes_that_rounding_has_set_on_other_courses_are_compared_as_a_whole(published, here, apart):
    assert (
        differ_significantly(*([Episode(float(total), 1) for total in totals] for totals in (published, here))) is apart
    )
