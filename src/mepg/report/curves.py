"""Learning curves."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from mepg.run.files import write_whole
from mepg.run.loop import Evaluations
from mepg.words import many

INK, LINE = "#444444", "#1f5fa8"


@style.context("default")  # whatever the process has chosen
def draw_learning_curve(path: Path, title: str, evaluations: Evaluations) -> None:
    """Return against steps: the mean of each evaluation, and the spread of its episodes."""
    steps = np.array(list(evaluations))
    results = np.array([[episode.total for episode in episodes] for episodes in evaluations.values()])
    mean = results.mean(axis=1)
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    marker = "o" if len(steps) <= 40 else None
    axes.fill_between(steps, results.min(axis=1), results.max(axis=1), color=LINE, alpha=0.15, lw=0)
    axes.plot(steps, mean, color=LINE, lw=2, marker=marker, ms=4)
    axes.annotate(
        f"{mean[-1]:,.0f}", (steps[-1], mean[-1]), xytext=(6, 0), textcoords="offset points", va="center", color=LINE
    )
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel(f"return: mean and range of {many(results.shape[1], 'episode')}", color=INK)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}k" if step else "0")
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    write_whole(path, picture.getvalue())
