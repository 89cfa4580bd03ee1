"""Learning curves over seeds and heat maps over p, as the paper draws them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from mepg.paper.tables import short_name
from mepg.report.runs import Run, Vector

WINDOW = 10  # evaluations, of the paper's 200; of fewer, fewer
INK = "#444444"
COLOURS = (
    "#1f6fb4", "#d1495b", "#2a9d60", "#d98a00", "#7d55c7", "#0f9fae",
    "#9a6147", "#c2549d", "#7a828e", "#8a9a0b", "#4a5be0", "#b0720f",
)  # fmt: skip
# Without a date, equal runs give equal files.
FORMATS: dict[str, dict[str, Any]] = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}


class Curve(NamedTuple):
    """Return against steps for one row and environment. Where fewer runs got so far, `runs` says how many."""

    label: str
    colour: str
    steps: list[int]  # [T]
    mean: list[float]
    half_std: list[float]
    runs: list[int]


class Panel(NamedTuple):
    """All curves on one environment."""

    env: str
    curves: list[Curve]


class Curves(NamedTuple):
    """A figure: panels that share a legend."""

    name: str
    title: str
    panels: list[Panel]

    @property
    def legend(self) -> dict[str, str]:
        """Each label's colour."""
        return {curve.label: curve.colour for panel in self.panels for curve in panel.curves}


def make_curves(
    name: str, title: str, rows: Mapping[str, Sequence[Run]], *, envs: Sequence[str], graded: bool = False
) -> Curves:
    """A curve for each row and environment that has runs; `graded` colours go from the first row to the last."""
    rows = {label: [run for run in runs if len(run.steps)] for label, runs in rows.items()}
    rows = {label: runs for label, runs in rows.items() if runs}
    colours = _colours(list(rows), graded)
    panels = []
    for env in envs:
        there = {label: [run for run in runs if run.config.env == env] for label, runs in rows.items()}
        curves = [_curve(label, colours[label], runs) for label, runs in there.items() if runs]
        if curves:
            panels.append(Panel(env, curves))
    return Curves(name, title, panels)


def smooth(values: Vector, window: int = WINDOW) -> Vector:
    """Each value with those before it, up to `window` of them, averaged."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    averages: Vector = (sums[ends] - sums[starts]) / (ends - starts)
    return averages


@style.context("default")  # whatever the process has chosen
def draw_curves(curves: Curves) -> dict[str, bytes]:
    """A panel for each environment, as .png and .svg."""
    columns = min(4, len(curves.panels))
    lines = -(-len(curves.panels) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.4, 2.7 * lines + 0.9), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    handles = {}
    for axes, panel in zip(grid.flat, curves.panels, strict=False):
        axes.set_visible(True)
        for curve in panel.curves:
            mean, half = np.array(curve.mean), np.array(curve.half_std)
            axes.fill_between(curve.steps, mean - half, mean + half, color=curve.colour, alpha=0.15, lw=0)
            (handles[curve.label],) = axes.plot(curve.steps, mean, color=curve.colour, lw=1.6)
        axes.set_title(plain(short_name(panel.env)), loc="left", color=INK, fontsize=10, parse_math=False)
        axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}k" if step else "0")
        axes.set_xlim(left=0)
        axes.tick_params(labelsize=8, colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", lw=0.6)
    figure.supxlabel("environment steps", color=INK, fontsize=9)
    figure.supylabel("return", color=INK, fontsize=9)
    labels = [plain(label) for label in handles]
    figure.legend(
        handles.values(), labels, loc="outside upper left", ncols=min(5, len(labels)), fontsize=8, frameon=False
    )
    return _as_files(figure)


@style.context("default")
def draw_heat_map(title: str, envs: Sequence[str], rows: Mapping[str, Mapping[str, float | None]]) -> dict[str, bytes]:
    """Figure 3: environments down, rows across, as .png and .svg."""
    values = np.array([[np.nan if row[env] is None else row[env] for row in rows.values()] for env in envs], float)
    figure = Figure(figsize=(0.62 * len(rows) + 2.2, 0.4 * len(envs) + 1.3), layout="constrained")
    axes = figure.subplots()
    axes.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if value > 0.8 else INK)
    axes.set_xticks(range(len(rows)), [plain(label) for label in rows], fontsize=8, color=INK, rotation=45, ha="right")
    axes.set_yticks(range(len(envs)), [plain(short_name(env)) for env in envs], fontsize=8, color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return _as_files(figure)


def _curve(label: str, colour: str, runs: Sequence[Run]) -> Curve:
    longest = max((run.steps for run in runs), key=len)
    means = np.full((len(runs), len(longest)), np.nan)
    for row, run in zip(means, runs, strict=True):
        row[: len(run.steps)] = run.means
    # The spread is that of the evaluations themselves; only then is it smoothed, for the eye.
    window = max(1, min(WINDOW, len(longest) // 20))
    mean, std = smooth(np.nanmean(means, axis=0), window), smooth(np.nanstd(means, axis=0), window)
    count = np.isfinite(means).sum(axis=0)
    return Curve(label, colour, longest.tolist(), mean.tolist(), (std / 2).tolist(), count.tolist())


def _colours(labels: Sequence[str], graded: bool) -> dict[str, str]:
    if not graded:
        return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    shades = matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, len(labels)))
    return {label: matplotlib.colors.to_hex(shade) for label, shade in zip(labels, shades, strict=True)}


def _as_files(figure: Figure) -> dict[str, bytes]:
    pictures = {}
    with matplotlib.rc_context({"svg.hashsalt": "mepg"}):
        for kind, options in FORMATS.items():
            picture = io.BytesIO()
            figure.savefig(picture, format=kind, **options)
            pictures[kind] = picture.getvalue()
    return pictures


def plain(text: str) -> str:
    """What every font has, and not too much of it."""
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return printable if len(printable) <= 60 else printable[:57] + "..."
