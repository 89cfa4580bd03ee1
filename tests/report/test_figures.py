"""Curves as they are drawn."""

import numpy as np
import pytest

from mepg.report import figures
from mepg.report.figures import Curve, Curves, draw_curves, make_curves, smooth
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


def test_curves_over_hours_never_turn_back(tmp_path):
    """A seed that is dear and stops early does not take the others' hours with it."""
    write_run(tmp_path / "a", make(), rows=["1000,100,36", "2000,50,72", "4000,100,144"])
    write_run(tmp_path / "b", make(seed=1), rows=["1000,1,3600", "2000,1,7200"], finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    (curve,) = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"]).panels["Pendulum-v1"]
    assert curve.hours == pytest.approx([0.505, 1.01, 1.02, 1.03], rel=1e-4)
    known = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"])
    assert known.over_hours is not None
    without = make_curves("name", "title", {"row": [runs[0]._replace(hours=None), runs[1]]}, envs=["Pendulum-v1"])
    assert without.panels["Pendulum-v1"][0].hours is None
    assert without.over_hours is None


@pytest.mark.parametrize(
    "labels", [["sac"], ["me-sac, warmup=1000, eval-every=1000, 8,000 steps", "sac"] * 3, ["x" * 80] * 7]
)
@pytest.mark.parametrize("panels", [1, 2])
def test_a_legend_is_never_cut_off(labels, panels, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "to_picture", lambda figure, kind: drawn.append(figure) or b"")
    curves = [Curve(f"{i}{label}", "red", [0, 10], [0.0, 1.0], [0.0, 0.1], [1, 1]) for i, label in enumerate(labels)]
    draw_curves(Curves("name", "title", {f"Env{i}": curves for i in range(panels)}))
    figure = drawn[0]
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(labels)
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= whole.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= whole.y1
    assert all(axes.get_window_extent().height > 1.2 * figure.dpi for axes in figure.axes), "and leaves room for curves"
