"""Means, interquartile means and bootstraps, against hand-worked numbers and against rliable."""

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.report import statistics
from mepg.report.statistics import REFERENCE, bootstrap, interquartile_mean, normalise

# [runs, tasks]: made up.
X = np.array(
    [
        [0.52, 0.81, 0.11, 0.95],
        [0.61, 0.72, 0.35, 1.02],
        [0.33, 0.94, 0.20, 0.88],
        [0.47, 0.66, 0.28, 0.97],
        [0.58, 0.79, 0.05, 1.10],
    ]
)
Y = np.array([[0.49, 0.85, 0.20, 0.91], [0.55, 0.60, 0.15, 1.02], [0.60, 0.70, 0.31, 0.83]])


def columns(scores):
    return scores if isinstance(scores, dict) else dict(enumerate(np.transpose(scores)))


def iqm(scores):
    return bootstrap(interquartile_mean, columns(scores)).value


def interval(scores, statistic=interquartile_mean, **options):
    return bootstrap(statistic, columns(scores), **options)[1:]


def probability_of_improvement(x, y, **options):
    return bootstrap(statistics.probability_of_improvement, columns(x), columns(y), **options)


def test_reference_scores_are_0_and_1():
    for env, (low, high) in REFERENCE.items():
        assert normalise(np.array([low, high, (low + high) / 2]), env).tolist() == [0, 1, 0.5]
    with pytest.raises(UsageError, match="ReacherBulletEnv-v0"):
        normalise(1.0, "ReacherBulletEnv-v0")


def test_iqm_by_hand():
    assert iqm(np.array([[100.0], [3.0], [1.0], [2.0], [4.0], [0.0], [5.0], [-50.0]])) == (1 + 2 + 3 + 4) / 4
    # Five values lose one on each side, as scipy's trim_mean rounds down.
    assert iqm({"a": [10.0, 1.0], "b": [2.0, 3.0, -10.0]}) == 2.0


def test_iqm_is_that_of_rliable():
    # aggregate_iqm of rliable 1.2.0
    assert iqm(X) == pytest.approx(0.639, abs=1e-12)
    assert iqm(Y) == pytest.approx(0.6283333333333334, abs=1e-12)
    assert iqm(X[:3, :1]) == pytest.approx(0.48666666666666664, abs=1e-12)
    assert iqm(X[:, :1]) == pytest.approx(0.5233333333333333, abs=1e-12)


def test_probability_of_improvement_by_hand():
    # Task a: of 4 pairs, 3 > 2, 3 > 1 and 2 > 1 are won and 2 = 2 is half a win. Task b: lost.
    found = probability_of_improvement({"a": [3.0, 2.0], "b": [0.0]}, {"a": [2.0, 1.0], "b": [1.0, 2.0]})
    assert found.value == (3.5 / 4 + 0) / 2
    assert found.low <= found.value <= found.high


def test_probability_of_improvement_is_that_of_rliable():
    # probability_of_improvement of rliable 1.2.0
    assert probability_of_improvement(X, Y).value == pytest.approx(0.55, abs=1e-12)
    assert probability_of_improvement(Y, X).value == pytest.approx(0.45, abs=1e-12)
    assert probability_of_improvement(X, X).value == 0.5


def test_intervals_are_those_of_rliable():
    """Get_interval_estimates of rliable 1.2.0, 50,000 and 20,000 repetitions; the last digit is the bootstrap's."""
    assert interval(X, repetitions=20_000) == pytest.approx((0.583, 0.697), abs=0.003)
    assert interval(Y, repetitions=20_000) == pytest.approx((0.57166667, 0.69333333), abs=0.003)
    found = probability_of_improvement(X, Y, repetitions=20_000)
    assert (found.low, found.high) == pytest.approx((0.3375, 0.75), abs=0.01)


def test_resampling_stays_within_a_task():
    """Runs that agree within each task leave nothing to chance, however far apart the tasks are."""
    scores = {"a": [0.0] * 5, "b": [1.0] * 3}
    assert interval(scores) == (iqm(scores), iqm(scores))


def test_the_interval_repeats_and_holds_the_estimate():
    low, high = interval(X)
    assert (low, high) == interval(X)
    assert (low, high) != interval(X, seed=1)
    assert low < iqm(X) < high


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """A percentile bootstrap of 10 runs on 4 tasks is a little too narrow: between 85 and 99 in 100."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = interval(rng.normal(size=(10, 4)), repetitions=300)
        covered += low <= 0 <= high
    assert 0.85 <= covered / 200 <= 0.99


def test_any_statistic_of_the_tasks_can_be_bootstrapped():
    def mean_of_means(tasks):
        return np.mean([runs.mean(axis=-1) for runs in tasks], axis=0)

    low, high = interval(X, mean_of_means)
    assert low < X.mean() < high
    assert (low, high) != interval(X, interquartile_mean)


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [1.0], "b": []}, np.zeros((0, 3))])
def test_scores_without_runs_are_refused(scores):
    with pytest.raises(UsageError):
        iqm(scores)


def test_tasks_have_to_match():
    with pytest.raises(UsageError, match="same tasks"):
        probability_of_improvement({"a": [1.0]}, {"b": [1.0]})
