"""Learning curves, of one run and over seeds, and heat maps."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mepg.report.long_format import PublishedCurve, on_environments
from mepg.report.runs import Run
from mepg.report.statistics import Floats
from mepg.report.tables import group_variants, short_name
from mepg.storage.files import write_atomic
from mepg.training.loop import Evaluations
from mepg.words import many

Evaluated = Run | PublishedCurve  # what a learning curve is drawn of

WINDOW = 10  # evaluations, for the paper's 200; fewer for shorter runs
INK, LINE = "#444444", "#1f5fa8"
# Complete, so that no style of the user's shows through.
STYLE = style.context(["default", {
    "figure.constrained_layout.use": True, "figure.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlelocation": "left", "axes.titlesize": 10, "axes.titlecolor": INK, "axes.labelsize": 9,
    "axes.labelcolor": INK, "xtick.labelsize": 8, "ytick.labelsize": 8, "xtick.color": INK, "ytick.color": INK,
    "text.color": INK, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#dddddd",
    "grid.linewidth": 0.6, "legend.fontsize": 8, "legend.frameon": False, "svg.hashsalt": "mepg",
}])  # fmt: skip
COLOURS = (
    "#1f6fb4", "#d1495b", "#2a9d60", "#d98a00", "#7d55c7", "#0f9fae",
    "#9a6147", "#c2549d", "#7a828e", "#8a9a0b", "#4a5be0", "#b0720f",
)  # fmt: skip
FORMATS: dict[str, dict[str, Any]] = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}


class Curve(NamedTuple):
    """Return against steps for one row and environment. `runs` is the number of runs that reached each step."""

    label: str
    colour: str
    steps: list[int]  # [T]
    mean: list[float]
    half_std: list[float]
    runs: list[int]
    hours: list[float] | None = None  # core-hours at these steps, the mean over seeds; None: not known for all
    thin: bool = False  # others'


class Curves(NamedTuple):
    """A figure: a panel for each environment, and one legend."""

    name: str
    title: str
    panels: dict[str, list[Curve]]
    caption: str = ""
    hours_caption: str = ""  # that is added over core-hours

    @property
    def legend(self) -> dict[str, str]:
        """Colours by label."""
        return {curve.label: curve.colour for panel in self.panels.values() for curve in panel}

    @property
    def over_hours(self) -> Curves | None:
        """The same curves over core-hours, those for which they are known."""
        timed = {env: [curve for curve in panel if curve.hours is not None] for env, panel in self.panels.items()}
        panels = {env: panel for env, panel in timed.items() if panel}
        caption = self.caption + self.hours_caption
        return self._replace(name=f"{self.name}-hours", panels=panels, caption=caption) if panels else None


def variant_curves(runs: Sequence[Run], baselines: Sequence[PublishedCurve] = ()) -> Curves:
    """Curves of any runs: one for each variant and environment, over its seeds."""
    variants, _ = group_variants(runs)
    envs = sorted({run.env for run in runs})
    return make_curves("own-curves", "Learning curves", variants, envs=envs, baselines=baselines)


def make_curves(
    name: str,
    title: str,
    runs_by_label: Mapping[str, Sequence[Run]],
    *,
    envs: Sequence[str],
    graded: bool = False,
    baselines: Sequence[PublishedCurve] = (),
) -> Curves:
    """A curve for each label and environment that has runs, and a thin one for the baselines on the same environments.

    `graded` colours go from the first label to the last.
    """
    evaluated = {label: [run for run in runs if len(run.steps)] for label, runs in runs_by_label.items()}
    drawn: dict[str, Sequence[Evaluated]] = {label: runs for label, runs in evaluated.items() if runs}
    drawn |= on_environments(baselines, {run.env for runs in drawn.values() for run in runs})
    colours = _colours(list(drawn), graded)
    panels = {
        env: [
            _curve(label, colours[label], members)._replace(thin=label not in evaluated)
            for label, runs in drawn.items()
            if (members := [run for run in runs if run.env == env])
        ]
        for env in envs
    }
    return Curves(name, title, {env: panel for env, panel in panels.items() if panel})


def smooth(values: Floats, window: int = WINDOW) -> Floats:
    """A trailing moving average over up to `window` values."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    averages: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return averages


@STYLE
def draw_learning_curve(path: Path, title: str, evaluations: Evaluations) -> None:
    """The return of one run against steps, as .png: mean and range of the episodes of each evaluation."""
    steps = np.array(list(evaluations))
    results = np.array([[episode.return_ for episode in episodes] for episodes in evaluations.values()])
    mean = results.mean(axis=1)
    figure = Figure(figsize=(7, 3.8))
    axes = figure.subplots()
    marker = "o" if len(steps) <= 40 else None
    axes.fill_between(steps, results.min(axis=1), results.max(axis=1), color=LINE, alpha=0.15, lw=0)
    axes.plot(steps, mean, color=LINE, lw=2, marker=marker, ms=4)
    axes.annotate(
        f"{mean[-1]:,.0f}", (steps[-1], mean[-1]), xytext=(6, 0), textcoords="offset points", va="center", color=LINE
    )
    axes.set(title=title, ylabel=f"return: mean and range of {many(results.shape[1], 'episode')}")
    show_steps(axes, "environment steps")
    write_atomic(path, to_picture(figure, "png"))


@STYLE
def draw_curves(curves: Curves, *, over_hours: bool = False) -> dict[str, bytes]:
    """A panel for each environment, as .png and .svg."""
    columns = 3 if len(curves.panels) in (5, 6) else min(4, len(curves.panels))
    rows = -(-len(curves.panels) // columns)
    labels = [plain(label) for label in curves.legend]
    width = max(3.4 * columns + 0.4, *map(_entry_width, labels))
    legend_columns = _legend_columns(labels, width)
    caption = textwrap.wrap(curves.caption, int(14 * width))
    lines = -(-len(labels) // legend_columns) + len(caption)
    figure = Figure(figsize=(width, 2.7 * rows + 0.7 + 0.2 * lines))
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for axes in grid[len(curves.panels) :]:
        axes.set_visible(False)
    handles = {}
    for axes, (env, panel) in zip(grid, curves.panels.items(), strict=False):
        for curve in panel:
            mean, half = np.array(curve.mean), np.array(curve.half_std)
            x = curve.hours if over_hours and curve.hours is not None else curve.steps
            width, alpha = (0.8, 0.06) if curve.thin else (1.8, 0.15)
            axes.fill_between(x, mean - half, mean + half, color=curve.colour, alpha=alpha, lw=0)
            (handles[curve.label],) = axes.plot(x, mean, color=curve.colour, lw=width, zorder=2 if curve.thin else 3)
        axes.set_title(plain(short_name(env)), parse_math=False)
        thin = [curve for curve in panel if curve.thin]
        if over_hours:
            if thin:  # what others need may be a hundred times as much
                last = max(curve.hours[-1] for curve in panel if curve.hours)
                axes.set(xscale="log", xlim=(last / 10_000, last * 1.5))
            else:
                axes.set_xlim(left=0)
                axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter(lambda hours, _: f"{hours:g}")
        else:
            show_steps(axes)
        _label_ends(axes, thin, over_hours)
    figure.supxlabel("\n".join(["core-hours" if over_hours else "environment steps", *caption]))
    figure.supylabel("return")
    figure.legend(handles.values(), labels, loc="outside upper left", ncols=legend_columns)
    return {kind: to_picture(figure, kind) for kind in FORMATS}


def _label_ends(axes: Axes, curves: Sequence[Curve], over_hours: bool) -> None:
    """The names of thin curves at their ends, apart enough to be read: there are too many for colours alone."""
    low, high = axes.get_ylim()
    below = -np.inf
    for curve in sorted(curves, key=lambda curve: curve.mean[-1]):
        x = (curve.hours if over_hours and curve.hours is not None else curve.steps)[-1]
        below = max(curve.mean[-1], below + 0.036 * (high - low))
        style: dict[str, Any] = {"fontsize": 5.5, "color": curve.colour, "va": "center", "annotation_clip": False}
        axes.annotate(plain(curve.label), (x, below), (3, 0), textcoords="offset points", parse_math=False, **style)


def _entry_width(label: str) -> float:
    """Width in inches of a label and its line in the legend."""
    return 0.6 + 0.07 * len(label)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many as fit into this width, five at most. Entries go down the columns."""
    for columns in range(min(5, len(labels)), 1, -1):
        if sum(max(map(_entry_width, column)) for column in np.array_split(labels, columns)) <= width:
            return columns
    return 1


@STYLE
def draw_heat_map(title: str, envs: Sequence[str], rows: Mapping[str, Mapping[str, float | None]]) -> dict[str, bytes]:
    """Environments down, rows across, as .png and .svg."""
    values = np.array([[row[env] for row in rows.values()] for env in envs], float)  # None becomes NaN
    figure = Figure(figsize=(0.62 * len(rows) + 2.2, 0.4 * len(envs) + 1.3))
    axes = figure.subplots()
    axes.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if value > 0.6 else INK)
    axes.set_xticks(range(len(rows)), [plain(label) for label in rows], rotation=45, ha="right")
    axes.set_yticks(range(len(envs)), [plain(short_name(env)) for env in envs])
    axes.set_title(title)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    axes.tick_params(length=0)
    return {kind: to_picture(figure, kind) for kind in FORMATS}


def _curve(label: str, colour: str, runs: Sequence[Evaluated]) -> Curve:
    # Our runs of one label are evaluated at the same steps. Baselines may not be, and are interpolated.
    steps = np.unique(np.concatenate([run.steps for run in runs]))
    steps = steps[steps >= max(run.steps[0] for run in runs)]
    means = np.array([np.interp(steps, run.steps, run.means, right=np.nan) for run in runs])
    # The standard deviation is that of the evaluations; it is smoothed afterwards.
    window = max(1, min(WINDOW, len(steps) // 20))
    mean, std = smooth(np.nanmean(means, axis=0), window), smooth(np.nanstd(means, axis=0), window)
    count = np.isfinite(means).sum(axis=0)
    hours = _hours(steps, runs)
    return Curve(label, colour, steps.tolist(), _rounded(mean), _rounded(std / 2), count.tolist(), hours)


def _hours(steps: npt.NDArray[np.int64], runs: Sequence[Evaluated]) -> list[float] | None:
    """The sum of the mean costs from one step to the next, of the runs that got that far: so it never falls."""
    known = [(run.steps, run.hours) for run in runs if run.hours is not None]
    if len(known) < len(runs):
        return None
    hours_at = np.array([np.interp(steps, own_steps, hours, right=np.nan) for own_steps, hours in known])
    return _rounded(np.cumsum(np.nanmean(np.diff(hours_at, axis=1, prepend=0.0), axis=0)))


def _rounded(values: Floats) -> list[float]:
    """To as many digits as can be seen."""
    return [float(f"{value:.6g}") for value in values]


def _colours(labels: Sequence[str], graded: bool) -> dict[str, str]:
    if not graded:
        return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    shades = matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, len(labels)))
    return {label: matplotlib.colors.to_hex(shade) for label, shade in zip(labels, shades, strict=True)}


def show_steps(axes: Axes, label: str = "") -> None:
    """Label the x axis with steps, from 0 on: 20k for 20,000."""
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}k" if step else "0")
    axes.set_xlim(left=0)
    axes.set_xlabel(label)


def to_picture(figure: Figure, kind: str, **options: Any) -> bytes:
    """The content of a .png or .svg file. Equal figures give equal files."""
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, **FORMATS[kind] | options)
    return picture.getvalue()


def plain(text: str) -> str:
    """The text in printable ASCII, at most 60 characters of it."""
    printable = "".join(character if " " <= character <= "~" else "?" for character in text)
    return printable if len(printable) <= 60 else printable[:57] + "..."
