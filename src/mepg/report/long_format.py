"""Learning curves as CSV in long format, as SimBa, SimbaV2 and DR.Q publish theirs: a line for each evaluation."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.errors import UsageError
from mepg.report.runs import Run
from mepg.report.statistics import Floats
from mepg.report.tables import group_variants, not_a_formula, short_name
from mepg.storage.files import MOST_TEXT, Damaged, read_whole

COLUMNS = ("exp_name", "env_name", "seed", "metric", "env_step", "value")  # after the index of pandas
SHORT = ("exp", "env", "seed", "metric", "step", "value")  # is read too
RETURN = "avg_return"  # the mean return of an evaluation; other metrics are ignored


class PublishedCurve(NamedTuple):
    """The learning curve of one run of others."""

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
        text = read_whole(path, most=MOST_TEXT).decode("utf-8-sig")
    except Damaged as damage:
        raise UsageError(f"{path} cannot be read: {damage}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not text in UTF-8") from None
    runs: dict[tuple[str, str, int], dict[int, float]] = {}
    for line, (exp, env, seed, metric, step, value) in _lines(path, text):
        number, env_step = _integer(path, line, "seed", seed), _integer(path, line, "env_step", step)
        mean = _finite(path, line, "value", value)
        if metric != RETURN:
            continue
        means = runs.setdefault((exp, env, number), {})
        if env_step in means:
            raise UsageError(f"{path}, line {line}, column env_step: a second value of {exp!r}, seed {seed}, at {step}")
        means[env_step] = mean
    if not runs:
        raise UsageError(f"{path}, column metric: there is no {RETURN} in it, and nothing else is drawn")
    return [
        PublishedCurve(
            f"{exp} ({path.name})", env, np.array(sorted(means)), np.array([means[step] for step in sorted(means)])
        )
        for (exp, env, _), means in runs.items()
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


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line below the head, and its cells without the index."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    width = 0
    try:
        for cells in reader:
            if not width:
                names = tuple(cells)
                width, indexed = len(names), names[:1] == ("",)
                _check_head(path, names[indexed:])
            elif cells and len(cells) != width:
                raise UsageError(f"{path}, line {reader.line_num}, column {min(len(cells), width) + 1}: "
                                 f"{len(cells)} cells where the head has {width}")  # fmt: skip
            elif cells:
                yield reader.line_num, cells[indexed:]
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not CSV: {error}") from None
    if not width:
        raise UsageError(f"{path}, line 1: the file is empty; its head should be ,{','.join(COLUMNS)}")


def _check_head(path: Path, names: tuple[str, ...]) -> None:
    if names in (COLUMNS, SHORT):
        return
    pairs = enumerate(itertools.zip_longest(names, COLUMNS, fillvalue=""), start=1)
    column, name, wanted = next((column, name, wanted) for column, (name, wanted) in pairs if name != wanted)
    raise UsageError(
        f"{path}, line 1, column {column}: {name!r:.50} instead of {wanted!r}; the head should be ,{','.join(COLUMNS)}"
    )


def _finite(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
        if not np.isfinite(value):
            raise ValueError
    except ValueError:
        raise UsageError(f"{path}, line {line}, column {column}: {text!r:.50} is not a finite number") from None
    return value


def _integer(path: Path, line: int, column: str, text: str) -> int:
    """Pandas writes whole numbers as 50000.0 where a column once had a gap."""
    value = _finite(path, line, column, text)
    if not 0 <= value == int(value) < 2**53:
        raise UsageError(f"{path}, line {line}, column {column}: {text!r:.50} is not a whole number, 0 or more")
    return int(value)
