"""Whether a published run is true: its beginning is run again, and every number compared with what was published."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from typing import NamedTuple

from mepg.errors import UsageError
from mepg.run.assembly import open_loop
from mepg.run.files import Damaged, read_until
from mepg.run.folder import Folder, versions
from mepg.run.loop import Record

TOLERANCE = 1e-3  # of a number, on another machine


class Difference(NamedTuple):
    """A number that came out differently."""

    step: int
    name: str
    published: float
    here: float

    @property
    def large(self) -> bool:
        """More than another machine's rounding makes of it, before that has had time to grow."""
        if not math.isfinite(self.published):
            return True
        return abs(self.here - self.published) > TOLERANCE * max(1.0, abs(self.published))

    def __str__(self) -> str:
        return f"step {self.step:,}, {self.name}: {self.published!r} published, {self.here!r} here"


class Verdict(NamedTuple):
    """What a comparison found."""

    until: int  # the last step that was compared
    numbers: int  # how many
    differences: list[Difference]
    elsewhere: list[str]  # in what machine, versions or commit differ from the published run's; empty: in nothing
    learned: bool  # whether numbers of steps that learn were compared before the first large difference

    @property
    def exact(self) -> bool:
        return not self.differences

    @property
    def departs(self) -> int | None:
        """The step of the first large difference, at which a comparison ends."""
        return next((one.step for one in self.differences if one.large), None)

    @property
    def agrees(self) -> bool:
        """Bit for bit; or, computed elsewhere, until roundings have grown so large that nothing can be compared."""
        return self.exact or (bool(self.elsewhere) and (self.departs is None or self._has_grown))

    @property
    def _has_grown(self) -> bool:
        """Rounding begins small: a large difference right after numbers that agreed bit for bit is something else."""
        return self.learned and any(one.step < self.differences[-1].step for one in self.differences)


def verify(folder: Folder, steps: int, env_id: str | None = None) -> Verdict:
    """Run the first `steps` again. Nothing is written. `env_id`: see `Folder.env`."""
    config = folder.config()
    if folder.result(config) is None:
        raise UsageError(f"{folder.path} holds an unfinished run: only a finished one can be verified")
    published = _published(folder)
    until = min(steps, config.steps) // config.envs * config.envs
    if until < min(published):
        raise UsageError(
            f"{folder.path} has no published numbers before step {min(published):,}: give it --steps {min(published)}"
        )
    folder.env(env_id)
    differences: list[Difference] = []
    numbers, last, learned = 0, 0, False
    # How long a run is to be changes nothing about its beginning, apart from one more evaluation at its end.
    with open_loop(replace(config, steps=until)) as loop:
        for record in loop:
            if record.step not in published:
                continue
            found, there = _numbers(record), published[record.step]
            if unknown := [name for name in there if name not in found]:
                raise UsageError(f"{folder.path} publishes {unknown[0]} of step {record.step:,}, which is not computed")
            here = [Difference(record.step, name, value, found[name]) for name, value in there.items()]
            differences += [one for one in here if one.published != one.here]
            numbers, last = numbers + len(there), record.step
            if any(one.large for one in differences):
                break
            learned = learned or record.step > config.spec.warmup
    return Verdict(last, numbers, differences, changed(folder), learned)


def changed(folder: Folder) -> list[str]:
    """What has changed since the run was made, of all that bits depend on; what it does not say is unknown."""
    was, now = folder.versions(), versions(folder.config().backend)
    return [f"{name}: {was.get(name, 'unknown')} then, {now[name]} now" for name in now if was.get(name) != now[name]]


def _numbers(record: Record) -> dict[str, float]:
    found = {name: value for name, value in (record.metrics or {}).items() if not name.startswith("time/")}
    for number, (total, length) in enumerate(record.evaluation or ()):
        found |= {f"eval/{number}/return": total, f"eval/{number}/length": float(length)}
    return found


def _published(folder: Folder) -> dict[int, dict[str, float]]:
    """Every number that the run has published, by step."""
    config = folder.config()
    rows: dict[int, dict[str, float]] = {}
    ending = folder.ending(config)
    sealed = None if ending is None else ending.files.get(folder.metrics_file.name)
    try:
        text = "" if sealed is None else read_until(folder.metrics_file, sealed).decode("ascii")
        for row in csv.DictReader(text.splitlines()):
            step = int(row.pop("time/total_timesteps"))
            rows[step] = {name: float(value) for name, value in row.items() if value and not name.startswith("time/")}
    except (Damaged, OSError, KeyError, ValueError, TypeError, AttributeError) as damage:
        raise UsageError(f"{folder.metrics_file} cannot be read: {damage}") from None
    for step, episodes in folder.evaluations(config).items():
        for number, (total, length) in enumerate(episodes):
            rows.setdefault(step, {}).update({f"eval/{number}/return": total, f"eval/{number}/length": float(length)})
    return rows
