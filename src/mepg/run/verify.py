"""Whether a published run is true: its beginning is run again, and every number compared with what was published."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mepg.errors import UsageError, failures_at
from mepg.storage.checkpoint import flatten
from mepg.storage.files import Damaged, count, finite, is_there, read_until
from mepg.storage.folder import Folder, versions
from mepg.storage.policy import online_networks, read_networks, ready_to_learn
from mepg.training.assembly import open_loop
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.training.loop import Evaluations, Loop, Record
from mepg.words import many

TOLERANCE = 1e-3  # of a number, on another machine
SHUFFLES = 20_000  # of published returns and those here, to see how far apart chance alone would put them
RARE = 1 / 5_000  # of these shuffles: no chance, nor rounding


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


class PolicyVerdict(NamedTuple):
    """Whether a published policy is the run's own."""

    file: str
    agrees: bool  # or at least does not disagree by more than rounding elsewhere may do
    exact: bool
    found: str  # in words


class Verdict(NamedTuple):
    """What a comparison found."""

    until: int  # the last step that was compared
    numbers: int  # how many
    differences: list[Difference]
    elsewhere: list[str]  # in what machine, versions or commit differ from the published run's; empty: in nothing
    learned: bool  # whether numbers of steps that learn were compared before the first large difference
    policies: list[PolicyVerdict]  # of those that are published

    @property
    def exact(self) -> bool:
        return not self.differences and all(policy.exact for policy in self.policies)

    @property
    def departs(self) -> int | None:
        """The step of the first large difference, at which a comparison ends."""
        return next((one.step for one in self.differences if one.large), None)

    @property
    def agrees(self) -> bool:
        """Bit for bit; or, computed elsewhere, until roundings have grown so large that nothing can be compared."""
        return self.numbers_agree and all(policy.agrees for policy in self.policies)

    @property
    def numbers_agree(self) -> bool:
        return not self.differences or (bool(self.elsewhere) and (self.departs is None or self._has_grown))

    @property
    def _has_grown(self) -> bool:
        """Rounding begins small: a large difference right after numbers that agreed bit for bit is something else."""
        return self.learned and any(one.step < self.differences[-1].step for one in self.differences)


class _Published(NamedTuple):
    """A policy as its file has it."""

    file: str
    networks: Any
    step: int
    episodes: list[Episode]  # of the evaluation at that step


def verify(folder: Folder, steps: int, env_id: str | None = None) -> Verdict:
    """Run the first `steps` again, and compare the published policies too. Nothing is written.

    :param env_id: see `Folder.env`
    """
    config = folder.config()
    if folder.result(config) is None:
        raise UsageError(f"{folder.path} holds an unfinished run: only a finished one can be verified")
    published, elsewhere = _published(folder), changed(folder)
    until = min(steps, config.steps) // config.envs * config.envs
    if until < min(published):
        raise UsageError(
            f"{folder.path} has no published numbers before step {min(published):,}: give it --steps {min(published)}"
        )
    folder.env(env_id)
    differences: list[Difference] = []
    numbers, last, learned, evaluated, alike = 0, 0, False, False, False
    # How long a run is to be changes nothing about its beginning, apart from one more evaluation at its end.
    with open_loop(replace(config, steps=until)) as loop:
        policies, verdicts = _policies(folder, config, loop.program.template)
        for record in loop:
            if record.step not in published:
                continue
            found, there = _numbers(record), published[record.step]
            if unknown := [name for name in there if name not in found]:
                raise UsageError(f"{folder.path} publishes {unknown[0]} of step {record.step:,}, which is not computed")
            here = [Difference(record.step, name, value, found[name]) for name, value in there.items()]
            differences += [one for one in here if one.published != one.here]
            numbers, last = numbers + len(there), record.step
            evaluated = evaluated or "eval/0/return" in there
            # Where every number so far is the same bit for bit, rounding is the same: then so is a policy.
            alike = not elsewhere or (evaluated and not differences)
            for policy in [policy for policy in policies if policy.step == record.step]:
                if (verdict := _compare_networks(policy, loop.state, alike)) is not None:
                    verdicts.append(verdict)
                    policies.remove(policy)
            if any(one.large for one in differences):
                break
            learned = learned or record.step > config.spec.warmup
        verdicts += [_play(policy, loop, alike) for policy in policies]
    return Verdict(last, numbers, differences, elsewhere, learned, verdicts)


def _policies(folder: Folder, config: Config, template: Any) -> tuple[list[_Published], list[PolicyVerdict]]:
    """The published policies, and a verdict on each that cannot be the run's own whatever is computed."""
    evaluations, found, verdicts = folder.evaluations(config), [], []
    for path, step in ((folder.policy_file, max(evaluations)), (folder.best_file, _best(evaluations))):
        if not is_there(path):
            continue
        try:
            networks, about = read_networks(path, config, template)
            if count(about.get("step", config.steps)) != step:
                raise Damaged(f"it is of step {about['step']:,}, not {step:,}")
            mean = _mean(evaluations[step])
            if path == folder.best_file and not math.isclose(finite(about["return"]), mean, rel_tol=1e-12):
                raise Damaged(f"it claims a return of {about['return']!r}, and its evaluation has {mean!r}")
            found.append(_Published(path.name, networks, step, evaluations[step]))
        except (Damaged, KeyError, TypeError, ValueError) as damage:
            verdicts.append(PolicyVerdict(path.name, False, False, f"does NOT agree: {damage}"))
    return found, verdicts


def _best(evaluations: Evaluations) -> int:
    """The step of the best evaluation, the first of those that are equally good."""
    return max(evaluations, key=lambda step: _mean(evaluations[step]))


def _mean(episodes: list[Episode]) -> float:
    return float(np.mean([episode.total for episode in episodes]))


def _compare_networks(policy: _Published, state: Any, alike: bool) -> PolicyVerdict | None:
    """With those that were computed here. None if other rounding may have taken them too far apart for that.

    :param alike: this machine rounds as the one that published it
    """
    there, here = (flatten(networks, "agent") for networks in (policy.networks, online_networks(state)))
    differences = []
    for name in there:
        of_file, of_run = there[name].astype(np.float64).ravel(), here[name].astype(np.float64).ravel()
        if not np.array_equal(of_file, of_run):
            farthest = np.argmax(np.abs(of_file - of_run) / np.maximum(1.0, np.abs(of_file)))
            differences.append(Difference(policy.step, name, float(of_file[farthest]), float(of_run[farthest])))
    what = f"{many(sum(array.size for array in there.values()), 'number')} of step {policy.step:,}"
    if not differences:
        return PolicyVerdict(policy.file, True, True, f"agrees bit for bit: {what}")
    if alike:
        return PolicyVerdict(policy.file, False, False, f"does NOT agree: {differences[0]}")
    if any(one.large for one in differences):
        return None
    return PolicyVerdict(policy.file, True, False, f"agrees to {TOLERANCE:.1%}, computed elsewhere: {what}")


def _play(policy: _Published, loop: Loop, alike: bool) -> PolicyVerdict:
    """On the seeds of its evaluation; `alike`: see `_compare_networks`."""
    loop.restart(ready_to_learn(policy.networks, loop.program.template), policy.step, 0)
    with failures_at(policy.file):
        episodes = loop.evaluate()
    there, here = (_numbers(Record(policy.step, [], [], None, played)) for played in (policy.episodes, episodes))
    differences = [
        Difference(policy.step, name, there[name], here[name]) for name in there if there[name] != here[name]
    ]
    what = f"{many(len(episodes), 'episode')}, played on the seeds of step {policy.step:,}"
    if not differences:
        return PolicyVerdict(policy.file, True, True, f"agrees bit for bit: {what}")
    if alike:
        return PolicyVerdict(policy.file, False, False, f"does NOT agree when it is played: {differences[0]}")
    what += f"; their mean return is {_mean(policy.episodes):,.1f} published, {_mean(episodes):,.1f} here"
    if not any(one.large for one in differences):
        return PolicyVerdict(policy.file, True, False, f"agrees to {TOLERANCE:.1%}, computed elsewhere: {what}")
    if far_apart(policy.episodes, episodes):
        return PolicyVerdict(policy.file, False, False, f"does NOT agree: {what}")
    apart = "could not be compared, as rounding elsewhere may set an episode on another course"
    return PolicyVerdict(policy.file, True, False, f"{apart}: {what}")


def far_apart(published: list[Episode], here: list[Episode]) -> bool:
    """Whether the mean returns are so far apart as hardly any random division of all these episodes puts them.

    Rounding sets the episodes of a chaotic simulator on other courses, but they remain the same policy's.
    """
    means = Difference(0, "eval/mean_reward", _mean(published), _mean(here))
    totals = np.array([episode.total for episode in published + here])
    shuffled = np.random.default_rng(0).permuted(np.tile(totals, (SHUFFLES, 1)), axis=1)
    parts = np.split(shuffled, [len(published)], axis=1)
    apart = np.abs(parts[0].mean(axis=1) - parts[1].mean(axis=1))
    as_far = apart >= abs(means.here - means.published) * (1 - 1e-9)  # sums in another order differ a little
    return means.large and bool(as_far.mean() < RARE)


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
