"""What was found in a run's critics, in words and pictures."""

from mepg.report.inspection import describe, draw_inspections

from .by_hand import make_inspection


def test_words():
    text = describe(make_inspection())
    assert "mine: me-sac on Pendulum-v1, seed 0, step 10" in text
    assert "2 steps of 1 episode, 3 left out as too near to a cut" in text
    assert "Q is 0.5 too low on average: 1.5 where 2 followed\n  error 0.7, standard deviation 0.5" in text
    assert "sigma" not in text
    assert "Q - 2 sigma, the bound that it learns from, is 1.5 too low" in describe(make_inspection(beta=2.0))
    assert "Q is 0.5 too low on average\n" in describe(make_inspection(followed=None))
    assert "the 50% band holds 50%" in text
    assert "2.5 times as noisy" in text
    assert "there is no band" in describe(make_inspection(coverage=None))


def test_pictures():
    one = make_inspection()
    none = one._replace(coverage=None, run="$\\frac{<b>", noise=one.noise._replace(steps=[], one_mask=[], two_masks=[]))
    for found in ([one], [one, none], [one._replace(beta=0.25)]):
        assert draw_inspections(found).startswith(b"\x89PNG")
