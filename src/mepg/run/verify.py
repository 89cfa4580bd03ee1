"""Whether a published run can be reproduced: its beginning is run again, and every published number compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mepg.errors import UsageError, failures_at
from mepg.storage.checkpoint import PyTree, flatten
from mepg.storage.data import with_data
from mepg.storage.files import Damaged, parse_count, parse_finite, path_exists
from mepg.storage.folder import Folder, Result, versions
from mepg.storage.policy import online_networks, read_networks, restore_trainables
from mepg.training.assembly import open_loop
from mepg.training.config import Config
from mepg.training.data import Data
from mepg.training.evaluate import Episode, mean_return
from mepg.training.loop import Evaluations, Loop, Record
from mepg.words import many

TOLERANCE = 1e-3  # of a number, on another machine
PERMUTATIONS = 20_000  # of a permutation test: see `differ_significantly`
P_VALUE = 1 / 5_000  # below which its answer is yes


class Difference(NamedTuple):
    """A number that was computed here and is not the published one."""

    step: int
    name: str
    published: float
    here: float  # computed here; named as in the JSON

    @property
    def large(self) -> bool:
        """Larger than another machine's rounding makes it, before that has had time to grow."""
        if not math.isfinite(self.published):
            return True
        return abs(self.here - self.published) > TOLERANCE * max(1.0, abs(self.published))

    def __str__(self) -> str:
        return f"step {self.step:,}, {self.name}: {self.published!r} published, {self.here!r} here"


class PolicyVerdict(NamedTuple):
    """Whether a published policy is the one that the run computes."""

    file: str
    agrees: bool  # or differs by no more than another machine's rounding may do
    exact: bool
    found: str  # in words


class Verdict(NamedTuple):
    """The result of a comparison."""

    until: int  # the last step that was compared
    n_compared: int  # numbers
    differences: list[Difference]
    platform_changes: list[str]  # how machine, versions or commit differ from the published run's; empty: not at all
    compared_learning: bool  # whether numbers of steps that learn were compared before the first large difference
    policies: list[PolicyVerdict]  # of those that are published

    @property
    def exact(self) -> bool:
        return not self.differences and all(policy.exact for policy in self.policies)

    @property
    def first_large_step(self) -> int | None:
        """The step of the first large difference, at which a comparison ends."""
        return next((difference.step for difference in self.differences if difference.large), None)

    @property
    def agrees(self) -> bool:
        """Bit for bit; or, computed elsewhere, until roundings have grown so large that nothing can be compared."""
        return self.numbers_agree and all(policy.agrees for policy in self.policies)

    @property
    def numbers_agree(self) -> bool:
        return not self.differences or (
            bool(self.platform_changes) and (self.first_large_step is None or self._has_grown)
        )

    @property
    def _has_grown(self) -> bool:
        """Rounding begins small: a large difference right after numbers that agreed bit for bit is something else."""
        return self.compared_learning and self.differences[0].step < self.differences[-1].step


class _PublishedPolicy(NamedTuple):
    """The content of a policy's file."""

    file: str
    networks: PyTree
    step: int
    episodes: list[Episode]  # of the evaluation at that step


def verify(folder: Folder, steps: int, env_id: str | None = None, data_at: str | None = None) -> Verdict:
    """Run the first `steps` again, and compare the published policies too. Nothing is written.

    :param env_id: see `Folder.env`
    :param data_at: where the data is now that the run began with; None: where it was then
    """
    config = folder.config()
    result = folder.result(config)
    if result is None:
        raise UsageError(f"{folder.path} holds an unfinished run: only a finished one can be verified")
    evaluations, platform_changes = folder.evaluations(config, result), changed_versions(folder)
    published = _published_numbers(folder, result, evaluations)
    until = min(steps, config.steps) // config.envs * config.envs
    if until < min(published):
        raise UsageError(
            f"{folder.path} has no published numbers before step {min(published):,}: give it --steps {min(published)}"
        )
    folder.env(env_id)
    config, data = _with_data(folder, config, data_at)
    differences: list[Difference] = []
    n_compared, last, compared_learning, evaluated, same_rounding = 0, 0, False, False, False
    # How long a run is to be changes nothing about its beginning, apart from one more evaluation at its end.
    with open_loop(replace(config, steps=until), data=data) as loop:
        policies, verdicts = _published_policies(folder, config, evaluations, loop.program.template)
        for record in loop:
            if record.step not in published:
                continue
            expected, computed = published[record.step], _numbers(record)
            if unknown := [name for name in expected if name not in computed]:
                raise UsageError(f"{folder.path} publishes {unknown[0]} of step {record.step:,}, which is not computed")
            differences += _differences(record.step, expected, computed)
            n_compared, last = n_compared + len(expected), record.step
            evaluated = evaluated or "eval/0/return" in expected
            # If every number so far is the same bit for bit, this machine rounds alike: the policy has to be the same.
            same_rounding = not platform_changes or (evaluated and not differences)
            for policy in [policy for policy in policies if policy.step == record.step]:
                if (verdict := _compare_networks(policy, loop.state, same_rounding)) is not None:
                    verdicts.append(verdict)
                    policies.remove(policy)
            if any(difference.large for difference in differences):
                break
            compared_learning = compared_learning or record.step > config.spec.warmup
        verdicts += [_play(policy, loop, same_rounding) for policy in policies]
    return Verdict(last, n_compared, differences, platform_changes, compared_learning, verdicts)


def _with_data(folder: Folder, config: Config, data_at: str | None) -> tuple[Config, Data | None]:
    """The config and the data that the run began with; `data_at`: see `verify`."""
    if config.data is None:
        if data_at is not None:
            raise UsageError(f"{folder.path} began without data: leave out --data")
        return config, None
    try:
        return with_data(replace(config, data=data_at or config.data))
    except UsageError as error:
        raise UsageError(f"{folder.path} began with data: {error}; --data PATH says where it is now") from None


def _published_policies(
    folder: Folder, config: Config, evaluations: Evaluations, template: PyTree
) -> tuple[list[_PublishedPolicy], list[PolicyVerdict]]:
    """The published policies, and a verdict on each that cannot be the run's own whatever is computed."""
    found, verdicts = [], []
    for path, step in ((folder.policy_file, max(evaluations)), (folder.best_file, _best(evaluations))):
        if not path_exists(path):
            continue
        try:
            networks, metadata = read_networks(path, config, template)
            if parse_count(metadata["step"]) != step:
                raise Damaged(f"it is of step {metadata['step']:,}, not {step:,}")
            mean = mean_return(evaluations[step])
            if path == folder.best_file and not math.isclose(parse_finite(metadata["return"]), mean, rel_tol=1e-12):
                raise Damaged(f"it claims a return of {metadata['return']!r}, and its evaluation has {mean!r}")
            found.append(_PublishedPolicy(path.name, networks, step, evaluations[step]))
        except (Damaged, KeyError, TypeError, ValueError) as damage:
            verdicts.append(PolicyVerdict(path.name, False, False, f"does NOT agree: {damage}"))
    return found, verdicts


def _best(evaluations: Evaluations) -> int:
    """The step of the best evaluation, the first of those that are equally good."""
    return max(evaluations, key=lambda step: mean_return(evaluations[step]))


def _compare_networks(policy: _PublishedPolicy, state: PyTree, same_rounding: bool) -> PolicyVerdict | None:
    """Compare its networks with those of the run here; None if rounding may have taken them too far apart.

    :param same_rounding: this machine rounds as the one that published it
    """
    published, computed = (flatten(networks, "agent") for networks in (policy.networks, online_networks(state)))
    differences = []
    for name in published:
        of_file, of_run = (arrays[name].astype(np.float64).ravel() for arrays in (published, computed))
        if not np.array_equal(of_file, of_run):
            farthest = np.argmax(np.abs(of_file - of_run) / np.maximum(1.0, np.abs(of_file)))
            differences.append(Difference(policy.step, name, float(of_file[farthest]), float(of_run[farthest])))
    compared = f"{many(sum(array.size for array in published.values()), 'number')} of step {policy.step:,}"
    if not differences:
        return PolicyVerdict(policy.file, True, True, f"agrees bit for bit: {compared}")
    if same_rounding:
        return PolicyVerdict(policy.file, False, False, f"does NOT agree: {differences[0]}")
    if any(difference.large for difference in differences):
        return None
    return PolicyVerdict(policy.file, True, False, f"agrees to {TOLERANCE:.1%}, computed elsewhere: {compared}")


def _play(policy: _PublishedPolicy, loop: Loop, same_rounding: bool) -> PolicyVerdict:
    """Play it on the seeds of its evaluation, and compare; `same_rounding`: see `_compare_networks`."""
    loop.restart(restore_trainables(policy.networks, loop.program.template), policy.step, 0)
    with failures_at(policy.file):
        episodes = loop.evaluate()
    differences = _differences(policy.step, *(_episode_numbers(each) for each in (policy.episodes, episodes)))
    played = f"{many(len(episodes), 'episode')}, played on the seeds of step {policy.step:,}"
    if not differences:
        return PolicyVerdict(policy.file, True, True, f"agrees bit for bit: {played}")
    if same_rounding:
        return PolicyVerdict(policy.file, False, False, f"does NOT agree when it is played: {differences[0]}")
    played += f"; their mean return is {mean_return(policy.episodes):,.1f} published, {mean_return(episodes):,.1f} here"
    if not any(difference.large for difference in differences):
        return PolicyVerdict(policy.file, True, False, f"agrees to {TOLERANCE:.1%}, computed elsewhere: {played}")
    if differ_significantly(policy.episodes, episodes):
        return PolicyVerdict(policy.file, False, False, f"does NOT agree: {played}")
    apart = "could not be compared, as rounding elsewhere may set an episode on another course"
    return PolicyVerdict(policy.file, True, False, f"{apart}: {played}")


def differ_significantly(published: list[Episode], computed: list[Episode]) -> bool:
    """A permutation test of the mean returns: hardly any random division of these episodes puts them as far apart.

    Rounding sets the episodes of a chaotic simulator on other courses, but they remain the same policy's.
    """
    means = Difference(0, "eval/mean_reward", mean_return(published), mean_return(computed))
    totals = np.array([episode.return_ for episode in published + computed])
    shuffled = np.random.default_rng(0).permuted(np.tile(totals, (PERMUTATIONS, 1)), axis=1)
    parts = np.split(shuffled, [len(published)], axis=1)
    apart = np.abs(parts[0].mean(axis=1) - parts[1].mean(axis=1))
    as_far = apart >= abs(means.here - means.published) * (1 - 1e-9)  # sums in another order differ a little
    return means.large and bool(as_far.mean() < P_VALUE)


def changed_versions(folder: Folder) -> list[str]:
    """What has changed since the run was made, of all that bits depend on; what run.json does not say is unknown."""
    was, now = folder.versions(), versions(folder.config().backend)
    return [f"{name}: {was.get(name, 'unknown')} then, {now[name]} now" for name in now if was.get(name) != now[name]]


def _differences(step: int, published: dict[str, float], computed: dict[str, float]) -> list[Difference]:
    found = [Difference(step, name, value, computed[name]) for name, value in published.items()]
    return [difference for difference in found if difference.published != difference.here]


def _numbers(record: Record) -> dict[str, float]:
    metrics = {name: value for name, value in (record.metrics or {}).items() if not name.startswith("time/")}
    return metrics | _episode_numbers(record.evaluation or [])


def _episode_numbers(episodes: list[Episode]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for index, (return_, length) in enumerate(episodes):
        numbers |= {f"eval/{index}/return": return_, f"eval/{index}/length": float(length)}
    return numbers


def _published_numbers(folder: Folder, result: Result, evaluations: Evaluations) -> dict[int, dict[str, float]]:
    """Every number that the run has published, by step."""
    numbers: dict[int, dict[str, float]] = {}
    try:
        for row in folder.checked_metrics(result):
            step = int(row["time/total_timesteps"])
            numbers[step] = {name: float(text) for name, text in row.items() if text and not name.startswith("time/")}
    except (Damaged, KeyError, ValueError) as damage:
        raise UsageError(f"{folder.metrics_file} cannot be read: {damage}") from None
    for step, episodes in evaluations.items():
        numbers.setdefault(step, {}).update(_episode_numbers(episodes))
    return numbers
