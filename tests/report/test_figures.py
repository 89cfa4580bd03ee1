"""Curves as they are drawn."""

import numpy as np
import pytest

from mepg.report.figures import make_curves, smooth
from mepg.report.runs import collect

from .by_hand import make, write_run


def test_smoothing_by_hand():
    assert smooth(np.array([1.0, 3.0, 5.0, 7.0]), window=2).tolist() == [1, 2, 4, 6]
    assert smooth(np.arange(20.0))[-1] == np.arange(10, 20).mean()


def test_curves_of_runs_that_got_differently_far(tmp_path):
    write_run(tmp_path / "a", make(seed=0))
    write_run(tmp_path / "b", make(seed=1), finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    curves = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"])
    (curve,) = curves.panels["Pendulum-v1"]
    first, second = (run.means for run in runs)
    assert curve.runs == [2, 2, 1, 1]
    assert curve.mean[0] == pytest.approx((first[0] + second[0]) / 2, rel=1e-5)
    assert curve.half_std[0] == pytest.approx(abs(first[0] - second[0]) / 4, rel=1e-5)
    assert curve.mean[-1] == pytest.approx(first[-1], rel=1e-5), "four evaluations are too few to be smoothed"
