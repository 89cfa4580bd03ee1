"""Pictures of what critics believe: of one run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mepg.report.figures import STYLE, plain, show_steps, to_picture
from mepg.run.inspection import Inspection
from mepg.words import many

BELIEF, TRUTH, SECOND = "#1f6fb4", "#222222", "#d1495b"
MOST = 6  # columns of a picture


def in_words(one: Inspection) -> str:
    """What was found, for a terminal."""
    cut = f", {one.left_out:,} left out as too near to a cut" if one.left_out else ""
    lines = [
        f"{one.run}: {one.algorithm} on {one.env}, seed {one.seed}, step {one.step:,}",
        f"  {many(one.steps, 'step')} of {many(one.episodes, 'episode')}{cut}",
        f"  Q is {_bias(one)} on average; error {one.error:.3g}, standard deviation {one.spread:.3g}",
    ]
    if one.covered:
        half, most = one.covered[0.5], one.covered[0.95]
        lines.append(f"  of the returns, the 50% band holds {half:.0%} and the 95% band {most:.0%}")
    else:
        lines.append("  one critic and no masks: there is no band")
    if one.noise_ratio is not None:
        times = f"{one.noise_ratio:.3g} times"
        lines.append(f"  two independent masks would make the Bellman residual {times} as noisy as one does")
    return "\n".join(lines)


@STYLE
def draw_inspections(found: Sequence[Inspection]) -> bytes:
    """A .png: over an episode, Q and what followed; one against the other; how often the band holds; noise."""
    if len(found) == 1:
        figure = Figure(figsize=(10, 6.6))
        columns = [list(figure.subplots(2, 2).flat)]
    else:
        comparable = len({one.env for one in found}) == 1
        figure = Figure(figsize=(4.4 * len(found), 12))
        columns = list(figure.subplots(4, len(found), sharey="row" if comparable else "none").T)
    for column, one in zip(columns, found, strict=True):
        for axes, draw in zip(column, (_draw_over_time, _draw_against, _draw_calibration, _draw_noise), strict=True):
            axes.grid(True, axis="both")
            draw(axes, one)
    return to_picture(figure, "png", dpi=120)


def _draw_over_time(axes: Any, one: Inspection) -> None:
    q, band = np.array(one.first.q), 1.96 * np.array(one.first.std)
    steps = np.arange(len(q))
    if band.any():
        axes.fill_between(steps, q - band, q + band, color=BELIEF, alpha=0.22, lw=0, label="95% band")
    axes.plot(steps, q, color=BELIEF, lw=1.4, label="Q")
    axes.plot(steps, one.first.truth, color=TRUTH, lw=1.2, ls="--", label="return that followed")
    title = f"{plain(f'{one.algorithm} on {one.env}')}\n{plain(one.run)}: seed {one.seed}, step {one.step:,}"
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.set(xlabel="step of the first episode", ylabel="discounted return")
    axes.legend()


def _draw_against(axes: Any, one: Inspection) -> None:
    ends = [min(one.some.q + one.some.truth), max(one.some.q + one.some.truth)]
    axes.plot(ends, ends, color=TRUTH, lw=1, ls="--")
    band = 1.96 * np.array(one.some.std)
    axes.errorbar(one.some.truth, one.some.q, band, fmt="o", ms=2.5, color=BELIEF, elinewidth=0.5, alpha=0.45)
    axes.set_title(f"on average {_bias(one)}; error {one.error:.3g}, spread {one.spread:.3g}", fontsize=9)
    axes.set(xlabel=f"return that followed ({many(one.episodes, 'episode')})", ylabel="Q and its 95% band")


def _draw_calibration(axes: Any, one: Inspection) -> None:
    if not one.covered:
        _write(axes, "one critic and no masks: no band")
        return
    axes.plot([0, 1], [0, 1], color=TRUTH, lw=1, ls="--", label="as it should be")
    axes.plot([*one.covered], [*one.covered.values()], color=BELIEF, lw=1.6, marker="o", ms=3.5, label="as it is")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the band", ylabel="share of returns within it")
    axes.legend()


def _draw_noise(axes: Any, one: Inspection) -> None:
    if not one.noise.steps:
        _write(axes, "no noise of masks in metrics.csv")
        return
    marker = "o" if len(one.noise.steps) <= 40 else None
    axes.plot(one.noise.steps, one.noise.two_masks, color=SECOND, lw=1.4, marker=marker, ms=3, label="two masks")
    axes.plot(one.noise.steps, one.noise.one_mask, color=BELIEF, lw=1.4, marker=marker, ms=3, label="the same mask")
    axes.set(yscale="log", ylabel="variance that masks add\nto the Bellman residual")
    axes.legend()
    if one.noise_ratio is not None:
        axes.set_title(f"at the end two masks add {one.noise_ratio:.3g} times as much", fontsize=9)
    show_steps(axes, "environment steps of training")


def _bias(one: Inspection) -> str:
    return f"{abs(one.bias):.3g} too {'high' if one.bias > 0 else 'low'}"


def _write(axes: Any, words: str) -> None:
    """Show words in place of a drawing."""
    axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=9, transform=axes.transAxes)
    axes.set_axis_off()
