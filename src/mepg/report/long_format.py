"""Learning curves as CSV in long format, as SimBa, SimbaV2 and DR.Q publish theirs: a line for each evaluation.

Read are also means and standard deviations over runs, under these names of columns or others that are common.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError
from mepg.report.runs import Run
from mepg.report.statistics import Floats
from mepg.report.tables import group_variants, not_a_formula, short_name
from mepg.storage.files import MAX_TEXT_BYTES, Damaged, read_whole

COLUMNS = ("exp_name", "env_name", "seed", "metric", "env_step", "value")  # that are written, after pandas' index
# What is read, by name and in any order: the names that a column may have. Other columns are ignored.
NAMES = {
    "algorithm": ("algorithm", "exp_name", "exp"),
    "env": ("env", "env_name"),
    "seed": ("seed",),
    "metric": ("metric",),
    "step": ("step", "env_step"),
    "value": ("value", "mean"),
    "std": ("std",),
}
MAX_MAGNITUDE = 1e100  # of a number: means and variances of such numbers are finite too
RETURN = "avg_return"  # the mean return of an evaluation; other metrics are ignored


class PublishedCurve(NamedTuple):
    """The learning curve of one run of others. Where they give a mean and a standard deviation over runs, two such
    curves stand for them, one deviation below the mean and one above: these two have that mean and that deviation.
    """

    label: str
    env: str
    steps: npt.NDArray[np.int64]  # [T]
    means: Floats
    hours: Floats | None = None  # the format has none


def to_long_format(runs: Sequence[Run]) -> str:
    """The mean return of every evaluation so far."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *COLUMNS])
    rows, _ = group_variants(runs)
    values = (
        (not_a_formula(label), not_a_formula(run.env), run.config.seed, RETURN, step, value)
        for label, members in rows.items()
        for run in members
        for step, value in zip(run.steps.tolist(), run.means.tolist(), strict=True)
    )
    writer.writerows([number, *row] for number, row in enumerate(values))
    return text.getvalue()


def read_long_format(path: Path) -> list[PublishedCurve]:
    """The curves in a file; a UsageError names the line and the column that are not in the format."""
    try:
        text = read_whole(path, most=MAX_TEXT_BYTES).decode("utf-8-sig")
    except Damaged as damage:
        raise UsageError(f"{path} cannot be read: {damage}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not text in UTF-8") from None
    runs: dict[tuple[str, str, str], dict[int, float]] = {}
    for line, cells in _lines(path, text):
        step, value = _integer(path, line, cells, "step"), _finite(path, line, cells, "value")
        if "seed" in cells:
            values = {str(_integer(path, line, cells, "seed")): value}
        else:
            std = _finite(path, line, cells, "std")
            if std < 0:
                raise UsageError(f"{path}, line {line}, column std: {cells['std']!r:.50} is below 0")
            values = {"mean - std": value - std, "mean + std": value + std}
        if cells.get("metric", RETURN) != RETURN:
            continue
        for run, mean in values.items():
            means = runs.setdefault((cells["algorithm"], cells["env"], run), {})
            if step in means:
                raise UsageError(
                    f"{path}, line {line}: a second value of {cells['algorithm']!r:.50}"
                    + (f", seed {run}," if "seed" in cells else "")
                    + f" at step {step}"
                )
            means[step] = mean
    if not runs:
        if any(True for _ in _lines(path, text)):
            raise UsageError(f"{path}, column metric: there is no {RETURN} in it, and nothing else is drawn")
        raise UsageError(f"{path}, line 2: there is nothing below the head")
    return [
        PublishedCurve(
            f"{name} ({path.name})", env, np.array(sorted(means)), np.array([means[step] for step in sorted(means)])
        )
        for (name, env, _), means in runs.items()
    ]


def on_environments(curves: Iterable[PublishedCurve], envs: Iterable[str]) -> dict[str, list[PublishedCurve]]:
    """The curves on one of these environments, by label. `Ant_v4` is `Ant-v4`, `Hopper` is PyBullet's."""
    known = {_normalised(name): env for env in envs for name in (short_name(env), env)}
    by_label: dict[str, list[PublishedCurve]] = {}
    for curve in curves:
        if (env := known.get(_normalised(curve.env))) is not None:
            by_label.setdefault(curve.label, []).append(curve._replace(env=env))
    return by_label


def _normalised(env: str) -> str:
    return env.lower().replace("_", "-")


def _lines(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line below the head, and its cells by the names of `NAMES`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    head: list[str] = []
    try:
        for cells in reader:
            if not head:
                head = cells
                columns = _columns(path, head)
            elif cells and len(cells) != len(head):
                raise UsageError(f"{path}, line {reader.line_num}, column {min(len(cells), len(head)) + 1}: "
                                 f"{len(cells)} cells where the head has {len(head)}")  # fmt: skip
            elif cells:
                yield reader.line_num, {name: cells[column] for name, column in columns.items()}
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not CSV: {error}") from None
    if not head:
        raise UsageError(f"{path}, line 1: the file is empty; its head should be ,{','.join(COLUMNS)}")


def _columns(path: Path, head: Sequence[str]) -> dict[str, int]:
    """Where each column is that the file has; a UsageError names the one that it lacks."""
    for column in (column for columns in NAMES.values() for column in columns):
        if head.count(column) > 1:
            raise UsageError(f"{path}, line 1: there are {head.count(column)} columns {column}")
    found = {
        name: head.index(column)
        for name, columns in NAMES.items()
        for column in [next((column for column in columns if column in head), None)]
        if column is not None
    }
    for name in ("algorithm", "env", "step", "value"):
        if name not in found:
            raise UsageError(f"{path}, line 1: there is no column {' or '.join(NAMES[name])}; {_EXAMPLES}")
    if not {"seed", "std"} & found.keys():
        raise UsageError(f"{path}, line 1: there is neither a column seed nor mean and std; {_EXAMPLES}")
    return found


_EXAMPLES = f"the head should be ,{','.join(COLUMNS)} or algorithm,env,step,mean,std"


def _finite(path: Path, line: int, cells: Mapping[str, str], name: str) -> float:
    try:
        value = float(cells[name])
        if not abs(value) < MAX_MAGNITUDE:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{path}, line {line}, column {name}: {cells[name]!r:.50} is not a finite number below {MAX_MAGNITUDE:g}"
        ) from None
    return value


def _integer(path: Path, line: int, cells: Mapping[str, str], name: str) -> int:
    """Pandas writes whole numbers as 50000.0 where a column once had a gap."""
    value = _finite(path, line, cells, name)
    if not 0 <= value == int(value) < 2**53:
        raise UsageError(f"{path}, line {line}, column {name}: {cells[name]!r:.50} is not a whole number, 0 or more")
    return int(value)
