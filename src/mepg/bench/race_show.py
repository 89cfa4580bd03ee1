"""What came of the race: a table in Markdown, and a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mepg.bench.contestants import CONTESTANTS, TASKS
from mepg.bench.race import LIMIT, Evaluation, Heat, Results, solved_after
from mepg.bench.show import OURS, THEIRS, table
from mepg.report.figures import FORMATS, INK, STYLE, to_picture
from mepg.report.tables import short_name
from mepg.words import many

CAPTION = (
    "Core-minutes on one core until the mean of three evaluations reaches the threshold. Dots: seeds. "
    f"Crosses: not within {LIMIT / 60:.0f}. Blue: mepg, grey: others."
)

Minutes = list[float | None]  # of each seed, until the task was solved; None: it was not


def minutes_by_task(results: Results) -> dict[str, dict[str, Minutes]]:
    """Core-minutes by task and contestant, of those that have run."""
    found: dict[str, dict[str, Minutes]] = {}
    for task in TASKS:
        for contestant in CONTESTANTS:
            heats = [heat for heat in sorted(results) if (heat.contestant, heat.task) == (contestant, task)]
            if heats:
                found.setdefault(task, {})[contestant] = [_minutes(heat, results[heat]) for heat in heats]
    return found


def _minutes(heat: Heat, evaluations: Sequence[Evaluation]) -> float | None:
    seconds = solved_after(evaluations, TASKS[heat.task])
    return None if seconds is None else seconds / 60


def to_markdown(results: Results) -> str:
    """A row for each contestant, a column for each task."""
    found = minutes_by_task(results)
    heads = ("core-minutes", *(f"{short_name(task)} ({TASKS[task].threshold:,.0f})" for task in found))
    rows = [
        (name, *(_cell(by_name.get(name)) for by_name in found.values()))
        for name in CONTESTANTS
        if any(name in by_name for by_name in found.values())
    ]
    return table("Core-minutes until the task is solved: the mean over seeds, and the range", heads, rows)


def _cell(minutes: Minutes | None) -> str:
    if minutes is None:
        return ""
    solved = [each for each in minutes if each is not None]
    if not solved:
        return f"did not get there in {LIMIT / 60:.0f} ({many(len(minutes), 'seed')})"
    text = f"{np.mean(solved):.1f}"
    if len(solved) > 1:
        text += f" ({min(solved):.1f} to {max(solved):.1f})"
    if len(solved) < len(minutes):
        return f"{text}, {len(solved)} of {many(len(minutes), 'seed')}"
    return text if len(minutes) > 1 else f"{text} (1 seed)"


@STYLE
def draw(results: Results) -> Mapping[str, bytes]:
    """A panel for each task: a bar up to the mean, a dot for each seed, a cross for one that did not get there."""
    found = minutes_by_task(results)
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    names = [name for name in CONTESTANTS if any(name in by_name for by_name in found.values())]
    width = 4.4 * columns + 1
    words = textwrap.wrap(CAPTION, int(13 * width))
    figure = Figure(figsize=(width, rows * (0.24 * len(names) + 0.9) + 0.3 + 0.2 * len(words)))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
    for axes in grid[len(found) :]:
        axes.set_visible(False)
    for axes, (task, by_name) in zip(grid, found.items(), strict=False):
        for row, name in enumerate(names):
            minutes = by_name.get(name, [])
            solved = [each for each in minutes if each is not None]
            if solved:
                axes.barh(row, np.mean(solved), 0.7, color=THEIRS if CONTESTANTS[name].library else OURS, alpha=0.8)
            axes.plot(solved, [row] * len(solved), "o", color=INK, ms=3)
            missed = len(minutes) - len(solved)
            axes.plot([LIMIT / 60] * missed, [row] * missed, "x", color=INK, ms=5)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(left=0)
        axes.set_title(f"{short_name(task)}: {TASKS[task].threshold:,.0f}")
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_axisbelow(True)
    grid[0].invert_yaxis()  # they share it
    figure.supxlabel("\n".join(words))
    return {kind: to_picture(figure, kind) for kind in FORMATS}
