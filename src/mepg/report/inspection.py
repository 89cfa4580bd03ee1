"""Pictures of what critics believe: of one run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from mepg.report.figures import INK, plain, thousands, to_picture
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
        f"  Q is {bias_in_words(one)} on average; error {one.error:.3g}, standard deviation {one.spread:.3g}",
    ]
    if one.covered:
        lines.append(
            f"  of the returns, the 50% band holds {one.covered[0.5]:.0%} and the 95% band {one.covered[0.95]:.0%}"
        )
    else:
        lines.append("  one critic and no masks: there is no band")
    if one.noise_ratio is not None:
        noise = f"{one.noise_ratio:.3g} times as noisy as one does"
        lines.append(f"  two independent masks would make the Bellman residual {noise}")
    return "\n".join(lines)


@style.context("default")  # whatever the process has chosen
def draw_inspections(found: Sequence[Inspection]) -> bytes:
    """A .png: over an episode, Q and what followed; one against the other; how often the band holds; noise."""
    if len(found) == 1:
        figure = Figure(figsize=(10, 6.6), layout="constrained")
        columns = [list(figure.subplots(2, 2).flat)]
    else:
        comparable = len({one.env for one in found}) == 1
        figure = Figure(figsize=(4.4 * len(found), 12), layout="constrained")
        columns = list(figure.subplots(4, len(found), sharey="row" if comparable else "none").T)
    for column, one in zip(columns, found, strict=True):
        over_time, against, calibration, noise = column
        _draw_over_time(over_time, one)
        _draw_against(against, one)
        _draw_calibration(calibration, one)
        _draw_noise(noise, one)
        for axes in column:
            axes.tick_params(labelsize=8, colors=INK)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color="#e4e4e4", lw=0.6)
            axes.set_axisbelow(True)
    return to_picture(figure, "png", dpi=120)


def _draw_over_time(axes: Any, one: Inspection) -> None:
    q, std = np.array(one.first.q), np.array(one.first.std)
    steps = np.arange(len(q))
    if std.any():
        axes.fill_between(steps, q - 1.96 * std, q + 1.96 * std, color=BELIEF, alpha=0.22, lw=0, label="95% band")
    axes.plot(steps, q, color=BELIEF, lw=1.4, label="Q")
    axes.plot(steps, one.first.truth, color=TRUTH, lw=1.2, ls="--", label="return that followed")
    title = f"{plain(f'{one.algorithm} on {one.env}')}\n{plain(one.run)}: seed {one.seed}, step {one.step:,}"
    axes.set_title(title, loc="left", color=INK, fontsize=11, parse_math=False)
    _label(axes, "step of the first episode", "discounted return")
    axes.legend(fontsize=8, frameon=False)


def _draw_against(axes: Any, one: Inspection) -> None:
    ends = [min(one.some.q + one.some.truth), max(one.some.q + one.some.truth)]
    axes.plot(ends, ends, color=TRUTH, lw=1, ls="--")
    band = 1.96 * np.array(one.some.std)
    axes.errorbar(one.some.truth, one.some.q, band, fmt="o", ms=2.5, color=BELIEF, elinewidth=0.5, alpha=0.45)
    text = f"on average {bias_in_words(one)}; error {one.error:.3g}, spread {one.spread:.3g}"
    axes.set_title(text, loc="left", color=INK, fontsize=9)
    _label(axes, f"return that followed ({many(one.episodes, 'episode')})", "Q and its 95% band")


def _draw_calibration(axes: Any, one: Inspection) -> None:
    if not one.covered:
        _say(axes, "one critic and no masks: no band")
        return
    axes.plot([0, 1], [0, 1], color=TRUTH, lw=1, ls="--", label="as it should be")
    axes.plot([*one.covered], [*one.covered.values()], color=BELIEF, lw=1.6, marker="o", ms=3.5, label="as it is")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=8, frameon=False)
    _label(axes, "level of the band", "share of returns within it")


def _draw_noise(axes: Any, one: Inspection) -> None:
    if not one.noise.steps:
        _say(axes, "no noise of masks in metrics.csv")
        return
    marker = "o" if len(one.noise.steps) <= 40 else None
    axes.plot(one.noise.steps, one.noise.two_masks, color=SECOND, lw=1.4, marker=marker, ms=3, label="two masks")
    axes.plot(one.noise.steps, one.noise.one_mask, color=BELIEF, lw=1.4, marker=marker, ms=3, label="the same mask")
    axes.set_yscale("log")
    axes.legend(fontsize=8, frameon=False)
    if one.noise_ratio is not None:
        times = f"{one.noise_ratio:.3g} times as much"
        axes.set_title(f"at the end two masks add {times}", loc="left", color=INK, fontsize=9)
    thousands(axes.xaxis)
    _label(axes, "environment steps of training", "variance that masks add\nto the Bellman residual")


def bias_in_words(one: Inspection) -> str:
    """Which way the critics are wrong."""
    return f"{abs(one.bias):.3g} too {'high' if one.bias > 0 else 'low'}"


def _say(axes: Any, words: str) -> None:
    """In place of a drawing."""
    axes.text(0.5, 0.5, words, ha="center", va="center", color=INK, fontsize=9, transform=axes.transAxes)
    axes.set_axis_off()


def _label(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK, fontsize=9)
    axes.set_ylabel(y, color=INK, fontsize=9)
