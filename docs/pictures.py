"""The pictures and films of docs/results.md that a report does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from mepg.envs.env import Env
from mepg.report.figures import COLOURS, INK, STYLE, show_steps, to_picture
from mepg.report.runs import Run
from mepg.report.tables import short_name
from mepg.run.inspection import Inspection, read_inspection
from mepg.storage.files import write_atomic
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.training.evaluate import play
from mepg.training.keys import episode_seed

FRAMES, EVERY, WIDTH, COUNT = 75, 5, 240, 24  # of a film: 75 pictures, one for every five steps, in 24 colours
PALE = "#c9c9c9"
MOST = 600  # per cent: what is further off has an arrow, so that the others can be told apart


@STYLE
def draw_variants(path: Path, variants: Mapping[str, Sequence[Run]], reference: str) -> None:
    """A line for each variant: its curves above the reference's mean, where they ended, and what Q is off by."""
    figure = Figure(figsize=(10, 0.8 * len(variants) + 0.7))
    grid = figure.subplots(len(variants), 3, sharex="col", sharey="col", width_ratios=(3, 1.6, 1.6))
    usual = variants[reference]
    for (curves, ends, beliefs), (label, runs) in zip(grid, variants.items(), strict=True):
        curves.plot(usual[0].steps, np.mean([run.means for run in usual], axis=0), color=PALE, lw=3)
        for run in runs:
            curves.plot(run.steps, run.means, color=COLOURS[run.config.seed], lw=1.2)
        curves.set_ylabel(label.replace(" (", "\n("), rotation=0, ha="right", va="center")
        curves.locator_params(axis="y", nbins=3)
        _dots(ends, 0, [(run.config.seed, run.means[-1]) for run in runs])
        _dots(beliefs, 0, [(seed, found.bias) for seed, found in inspected(runs)])
        beliefs.axvline(0, color=INK, lw=0.8)
    for axes, title in zip(grid[0], ("return over steps", "last evaluation", "Q less what followed"), strict=True):
        axes.set_title(title)
    for axes in grid[:, 1:].flat:
        axes.set(yticks=[], ylim=(-1, 1))
        axes.grid(axis="x")
    for axes in grid[:-1].flat:
        axes.tick_params(axis="x", length=0)
    grid[-1, 1].set_xlim(left=0)
    show_steps(grid[-1, 0])
    _explain_seeds(figure)
    write_atomic(path, to_picture(figure, "png"))


@STYLE
def draw_beliefs(path: Path, rows: Mapping[str, Mapping[str, Sequence[Run]]], envs: Sequence[str]) -> None:
    """A panel for each environment: by how many per cent of what followed Q was off, with each seed."""
    figure = Figure(figsize=(10, 0.25 * len(rows) + 1.1))
    grid = figure.subplots(1, len(envs), sharey=True)
    for axes, env in zip(grid, envs, strict=True):
        for line, by_env in enumerate(rows.values()):
            found = inspected(by_env[env])
            shares = [(seed, float(100 * each.bias / np.mean(each.some.truth))) for seed, each in found]
            _dots(axes, line, [(seed, share) for seed, share in shares if share <= MOST])
            for seed in (seed for seed, share in shares if share > MOST):
                axes.plot(MOST, line, ">", color=COLOURS[seed], ms=6)
        axes.axvline(0, color=INK, lw=0.8)
        axes.set_title(short_name(env))
        axes.set(yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.5, -0.5))
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:+.0f} %" if share else "0")
        axes.locator_params(axis="x", nbins=4)
    _explain_seeds(figure)
    write_atomic(path, to_picture(figure, "png"))


def inspected(runs: Iterable[Run]) -> list[tuple[int, Inspection]]:
    """What `mepg inspect` found, by seed, of the runs that were inspected."""
    both = ((run.config.seed, read_inspection(Folder(run.path))) for run in runs)
    return [(seed, found) for seed, found in both if found is not None]


def _dots(axes: Any, line: float, values: Sequence[tuple[int, float]]) -> None:
    """Each seed's value as a dot of its colour, their mean as a stroke."""
    if values:
        axes.plot(np.mean([value for _, value in values]), line, "|", color=INK, ms=14, mew=1.5)
    for seed, value in values:
        axes.plot(value, line, "o", color=COLOURS[seed], ms=5, alpha=0.85)


def _explain_seeds(figure: Figure) -> None:
    used = [figure.axes[0].plot([], [], "o", color=colour, ms=5)[0] for colour in COLOURS[:3]]
    figure.legend(used, ["seed 0", "seed 1", "seed 2"], loc="outside upper left", ncols=3)


def film(folder: Folder, path: Path) -> None:
    """The beginning of an episode, small enough for a page."""
    env = Env(folder.env(), "rgb_array")
    policy = load_policy(folder, env.spaces)
    pictures: list[Image.Image] = []
    step = iter(range(10**9))

    def watch() -> None:
        if next(step) % EVERY == 0 and len(pictures) < FRAMES:
            picture = Image.fromarray(env.render())
            height = round(WIDTH * picture.height / picture.width)
            pictures.append(picture.resize((WIDTH, height), Image.Resampling.BOX))

    play(policy.act, env, episode_seed(0, "eval", 0), watch)
    seconds = EVERY / env.fps
    env.close()
    _save(pictures, path, seconds)


def _save(pictures: Sequence[Image.Image], path: Path, seconds: float) -> None:
    """With one palette for all, so that a picture need only say what has changed."""
    palette = pictures[0].quantize(COUNT)
    first, *rest = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    first.save(path, save_all=True, append_images=rest, duration=1000 * seconds, loop=0, optimize=True)
