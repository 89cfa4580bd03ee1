"""The search space of `mepg tune`: ranges and choices for fields of a spec."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mepg.algos import LoopFields
from mepg.errors import UsageError
from mepg.settings import apply_settings, describe, parse_value

if TYPE_CHECKING:
    import optuna

# Around the paper's values. A field is searched if the algorithm's spec has it, and it is on.
DEFAULT = {
    "actor_lr": "1e-4:1e-3:log",
    "critic_lr": "1e-4:1e-3:log",
    "lr": "3e-5:1e-3:log",
    "temperature.lr": "3e-5:1e-3:log",
    "discount": "0.98,0.99,0.995",
    "target_rate": "0.001:0.02:log",
    "dropout.p": "0.01:0.3",
    "exploration.std": "0.05:0.3",
    "epsilon.end": "0.01:0.1",
    "epsilon.steps": "2000:20000:log",
    "backup_temperature": "5:50:log",
}


class Range(NamedTuple):
    """Any number between two, both included."""

    low: float
    high: float
    log: bool
    integer: bool  # whole numbers only

    def suggest(self, trial: optuna.Trial, field: str) -> float:
        """Optuna's proposal; the same one again if the trial has asked before."""
        if self.integer:
            return trial.suggest_int(field, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(field, self.low, self.high, log=self.log)

    def setting(self, value: float) -> str:
        """As `--set` takes it, rounded to four digits but still within the range."""
        return str(value) if self.integer else str(min(max(float(f"{value:.4g}"), self.low), self.high))


class Choice(NamedTuple):
    """One of several values, as `--set` takes them."""

    values: tuple[str, ...]

    def suggest(self, trial: optuna.Trial, field: str) -> str:
        """Optuna's proposal; the same one again if the trial has asked before."""
        return trial.suggest_categorical(field, self.values)

    def setting(self, value: str) -> str:
        """As `--set` takes it."""
        return value


Space = dict[str, Range | Choice]


def default_space(spec: LoopFields) -> Space:
    """The part of `DEFAULT` that this algorithm has."""
    active = {field for field, text in describe(spec).items() if text != "none"}
    space: Space = {}
    for field, text in DEFAULT.items():
        with contextlib.suppress(UsageError):  # CrossQ's target_rate can only be 1
            space |= parse_space(spec, [f"{field}={text}"]) if field in active else {}
    return space


def parse_space(spec: LoopFields, texts: Iterable[str]) -> Space:
    """From `dropout.p=0.01:0.3`, `actor_lr=1e-4:1e-3:log` and `batch_size=64,256`; a UsageError for anything else."""
    space: Space = {}
    for text in texts:
        field, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not values:
            raise UsageError(f"--space {text!r}: write field=low:high, field=low:high:log or field=a,b,c")
        if field in space:
            raise UsageError(f"--space {field} is given twice")
        space[field] = _range(spec, field, values) if ":" in values else _choice(spec, field, values)
    if not space:
        raise UsageError("there is nothing to search: give a --space")
    return space


def _range(spec: LoopFields, field: str, text: str) -> Range:
    low, high, *rest = text.split(":")
    if rest not in ([], ["log"]):
        raise UsageError(f"--space {field}={text}: after low:high there can only be :log")
    ends = [parse_value(type(spec), field, end) for end in (low, high)]
    if not all(type(end) in (int, float) for end in ends):
        raise UsageError(f"--space {field}={text}: a range is of numbers; write {field}=a,b,c")
    if not ends[0] < ends[1]:
        raise UsageError(f"--space {field}={text}: the lower end comes first")
    if rest and ends[0] <= 0:
        raise UsageError(f"--space {field}={text}: on a logarithmic scale both ends are above 0")
    for end in (low, high):
        apply_settings(spec, [f"{field}={end}"])  # raises if the spec refuses the value
    return Range(ends[0], ends[1], log=bool(rest), integer=all(type(end) is int for end in ends))


def _choice(spec: LoopFields, field: str, text: str) -> Choice:
    # A comma separates two values, so the numbers of one value are joined by x: hidden=64x64,256x256.
    values = tuple(re.sub(r"(?<=\d)x(?=\d)", ",", value.strip()) for value in text.split(","))
    for value in values:
        apply_settings(spec, [f"{field}={value}"])  # raises if the spec refuses the value
    return Choice(values)
