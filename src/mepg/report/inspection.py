"""Q against the returns that followed, in words and pictures: of one run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mepg.report.figures import STYLE, plain, show_steps, to_picture
from mepg.run.inspection import Inspection
from mepg.words import many

BELIEF, TRUTH, SECOND = "#1f6fb4", "#222222", "#d1495b"
MAX_RUNS = 6  # side by side in a picture


def describe(found: Inspection) -> str:
    """For a terminal."""
    followed = "" if found.followed is None else f": {found.mean_q:.3g} where {found.followed:.3g} followed"
    cut = f", {found.left_out:,} left out as too near to a cut" if found.left_out else ""
    lines = [
        f"{found.run}: {found.algorithm} on {found.env}, seed {found.seed}, step {found.step:,}",
        f"  {many(found.steps, 'step')} of {many(found.episodes, 'episode')}{cut}",
        f"  Q is {_bias(found.bias)} on average{followed}",
        f"  error {found.error:.3g}, standard deviation {found.spread:.3g}",
    ]
    if found.bound_bias is not None:
        lines.append(f"  {_bound(found)}, the bound that it learns from, is {_bias(found.bound_bias)} on average")
    if found.covered:
        half, most = found.covered[0.5], found.covered[0.95]
        lines.append(f"  of the returns, the 50% band holds {half:.0%} and the 95% band {most:.0%}")
    else:
        lines.append("  one critic and no masks: there is no band")
    if found.noise_ratio is not None:
        times = f"{found.noise_ratio:.3g} times"
        lines.append(f"  two independent masks would make the Bellman residual {times} as noisy as one does")
    return "\n".join(lines)


@STYLE
def draw_inspections(inspections: Sequence[Inspection]) -> bytes:
    """A .png: Q and the return that followed, over an episode and against each other; coverage of the band; noise."""
    if len(inspections) == 1:
        figure = Figure(figsize=(10, 6.6))
        columns = [list(figure.subplots(2, 2).flat)]
    else:
        comparable = len({found.env for found in inspections}) == 1
        figure = Figure(figsize=(4.4 * len(inspections), 12))
        columns = list(figure.subplots(4, len(inspections), sharey="row" if comparable else "none").T)
    for column, found in zip(columns, inspections, strict=True):
        for axes, draw in zip(column, (_draw_over_time, _draw_against, _draw_calibration, _draw_noise), strict=True):
            axes.grid(True, axis="both")
            draw(axes, found)
    return to_picture(figure, "png", dpi=120)


def _draw_over_time(axes: Axes, found: Inspection) -> None:
    q, band = np.array(found.first.q), 1.96 * np.array(found.first.std)
    steps = np.arange(len(q))
    if band.any():
        axes.fill_between(steps, q - band, q + band, color=BELIEF, alpha=0.22, lw=0, label="95% band")
    axes.plot(steps, q, color=BELIEF, lw=1.4, label="Q")
    if found.beta is not None:
        bound = q - found.beta * np.array(found.first.std)
        axes.plot(steps, bound, color=BELIEF, lw=1, ls=":", label=_bound(found))
    axes.plot(steps, found.first.truth, color=TRUTH, lw=1.2, ls="--", label="return that followed")
    title = f"{plain(f'{found.algorithm} on {found.env}')}\n{plain(found.run)}: seed {found.seed}, step {found.step:,}"
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.set(xlabel="step of the first episode", ylabel="discounted return")
    axes.legend()


def _draw_against(axes: Axes, found: Inspection) -> None:
    ends = [min(found.some.q + found.some.truth), max(found.some.q + found.some.truth)]
    axes.plot(ends, ends, color=TRUTH, lw=1, ls="--")
    band = 1.96 * np.array(found.some.std)
    axes.errorbar(found.some.truth, found.some.q, band, fmt="o", ms=2.5, color=BELIEF, elinewidth=0.5, alpha=0.45)
    axes.set_title(f"on average {_bias(found.bias)}; error {found.error:.3g}, spread {found.spread:.3g}", fontsize=9)
    axes.set(xlabel=f"return that followed ({many(found.episodes, 'episode')})", ylabel="Q and its 95% band")


def _draw_calibration(axes: Axes, found: Inspection) -> None:
    if not found.covered:
        _write(axes, "one critic and no masks: no band")
        return
    axes.plot([0, 1], [0, 1], color=TRUTH, lw=1, ls="--", label="as it should be")
    axes.plot([*found.covered], [*found.covered.values()], color=BELIEF, lw=1.6, marker="o", ms=3.5, label="as it is")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the band", ylabel="share of returns within it")
    axes.legend()


def _draw_noise(axes: Axes, found: Inspection) -> None:
    if not found.noise.steps:
        _write(axes, "no noise of masks in metrics.csv")
        return
    marker = "o" if len(found.noise.steps) <= 40 else None
    axes.plot(found.noise.steps, found.noise.two_masks, color=SECOND, lw=1.4, marker=marker, ms=3, label="two masks")
    axes.plot(found.noise.steps, found.noise.one_mask, color=BELIEF, lw=1.4, marker=marker, ms=3, label="the same mask")
    axes.set(yscale="log", ylabel="variance that masks add\nto the Bellman residual")
    axes.legend()
    if found.noise_ratio is not None:
        axes.set_title(f"at the end two masks add {found.noise_ratio:.3g} times as much", fontsize=9)
    show_steps(axes, "environment steps of training")


def _bias(bias: float) -> str:
    return f"{abs(bias):.3g} too {'high' if bias > 0 else 'low'}"


def _bound(found: Inspection) -> str:
    return f"Q - {found.beta:g} sigma"


def _write(axes: Axes, words: str) -> None:
    """Show words instead of a plot."""
    axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=9, transform=axes.transAxes)
    axes.set_axis_off()
