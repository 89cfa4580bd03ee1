"""The tables and pictures of docs/expect.md: `python docs/seeds.py RUNS PICTURE THRESHOLD`, of one task's seeds."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

from mepg.report.figures import INK, STYLE, show_steps, to_picture
from mepg.report.runs import Run, collect
from mepg.storage.files import write_atomic


def row(run: Run, threshold: float) -> str:
    """The run's line of the table."""
    above = next((f"{step:,}" for step, mean in zip(run.steps, run.means, strict=True) if mean > threshold), "never")
    late = run.means[run.steps > run.steps[-1] - (25_000 if run.steps[-1] > 25_000 else 5_000)]
    numbers = (f"{value:.0f}" for value in (run.means[-1], run.means.max()))
    return f"| {run.config.seed} | {' | '.join(numbers)} | {above} | {late.min():.0f} |"


@STYLE
def draw(path: Path, runs: list[Run], threshold: float) -> None:
    """A curve for each seed, and the threshold."""
    figure = Figure(figsize=(8.8, 4.6))
    axes = figure.subplots()
    for run in runs:
        axes.plot(run.steps, run.means, lw=1.4, label=f"seed {run.config.seed}", color=f"C{run.config.seed}")
    axes.axhline(threshold, color=INK, lw=0.8, ls="--")
    axes.set(title=f"{runs[0].config.algorithm} on {runs[0].env}", ylabel="return: mean of 10 episodes")
    axes.legend(ncol=2, loc="lower right", fontsize="small")
    show_steps(axes)
    write_atomic(path, to_picture(figure, "png"))


if __name__ == "__main__":
    folder, picture, threshold = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    runs = sorted(collect([folder])[0], key=lambda run: run.config.seed)
    print("\n".join(row(run, threshold) for run in runs))
    draw(picture, runs, threshold)
