"""A study: trials that Optuna proposes, each carried out as runs with several seeds.

A trial's score is the mean over its seeds of the mean return of a run's last `LAST` evaluations. While its runs go on,
the same mean over what there is so far says whether it is worth going on.

    journal.log            Optuna's own record: every proposal, and what came of it
    trials/0003-seed1/     a run like any other
    logs/                  what the runs printed
    best.json              the best settings so far, as `mepg train --config` takes them
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mepg.errors import UsageError
from mepg.scheduler.jobs import Job, Progress
from mepg.scheduler.schedule import POLL, Failure
from mepg.scheduler.worker import PATIENCE
from mepg.settings import apply_settings
from mepg.storage.checkpoint import Checkpoints
from mepg.storage.files import Damaged, Unreadable, is_there, names_in, not_writable, read_whole, write_json
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.tune.space import Choice, Range, Space
from mepg.words import many

LAST = 5  # evaluations of a run that its score is the mean of: the end of learning, not a lucky moment
FIRST_TRIALS = 5  # that are never given up: the others are compared with their median
LOOK_EVERY = 1.0  # seconds between two looks at what the runs have measured
MOST_SEEDS = 10_000  # of a trial
NAME = "mepg"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is searched for. The same question continues a study; another one needs another folder."""

    run: Config  # with seed 0, and without what a trial changes
    settings: tuple[str, ...]  # of its spec, the same in every trial
    space: Space
    seeds: int

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise UsageError(f"seeds must be in [1, {MOST_SEEDS}], not {self.seeds}")
        if "warmup" not in self.space:
            self._require_learning(self.run)  # what every trial would say

    def config(self, settings: Sequence[str], seed: int) -> Config:
        """One seed's run of a trial with these settings."""
        spec = apply_settings(self.run.spec, settings)
        return self._require_learning(replace(self.run, spec=spec, seed=seed))

    def _require_learning(self, config: Config) -> Config:
        """Refuse a run that ends within its warm-up."""
        if config.spec.warmup >= config.steps:
            raise UsageError(
                f"nothing is learned in {many(config.steps, 'step')}: "
                f"the warm-up is {config.spec.warmup:,}; --set warmup=1000"
            )
        return config

    def shared(self) -> dict[str, Any]:
        """What is the same in all runs, as `mepg train --config` takes it."""
        return {name: value for name, value in self.run.to_json().items() if name not in ("spec", "seed", "threads")}

    def to_json(self) -> dict[str, Any]:
        """As JSON, to compare it with the question of the study in the folder."""
        space = {field: _plain(where) for field, where in self.space.items()}
        return {**self.shared(), "space": space, "settings": list(self.settings), "seeds": self.seeds}


class Trial(NamedTuple):
    """A proposal that is being carried out."""

    of_optuna: Any
    settings: list[str]
    jobs: list[Job]


class Outcome(NamedTuple):
    """A trial's outcome."""

    number: int
    settings: list[str]
    score: float | None  # None: a run failed
    given_up: bool
    reason: str = ""


class Study:
    """Gives the jobs of its trials as there is room for them, watches them, and tells Optuna what came of them."""

    def __init__(self, question: Question, folder: Path, trials: int, say: Callable[[Outcome], None]) -> None:
        self._optuna = require_optuna()
        self.question, self.folder = question, folder
        self._wanted, self._say = trials, say
        self._study = self._open(folder / "journal.log")
        self._open_trials: dict[int, Trial] = {}
        self._looked = 0.0

    def jobs(self) -> Iterator[Job]:
        """The jobs of trials that an earlier process left, then of new trials, until there are as many as wanted."""
        left = [trial for trial in self._study.trials if trial.state == self._optuna.trial.TrialState.RUNNING]
        for trial in left:
            for job in self._begin(self._optuna.trial.Trial(self._study, trial._trial_id)):
                _wait_for(job.folder)
                yield job
        while len(self._study.trials) < self._wanted:
            self.look()  # the next proposal should know all results so far
            yield from self._begin(self._study.ask())

    def show(self, going_on: dict[Job, Progress], finished: int, failures: Sequence[Failure]) -> None:  # noqa: ARG002
        """Called several times a second while runs go on."""
        for failure in failures:
            for number, trial in list(self._open_trials.items()):
                if failure.job in trial.jobs:
                    self._end(number, None, reason=failure.reason)
        if time.monotonic() - self._looked > LOOK_EVERY:
            self.look()

    def unwanted(self, job: Job) -> bool:
        """Whether it belongs to a trial that has ended."""
        return not any(job in trial.jobs for trial in self._open_trials.values())

    def look(self) -> None:
        """Read what the runs have measured, tell Optuna, and end the trials that are complete or to be given up."""
        self._looked = time.monotonic()
        for number, trial in list(self._open_trials.items()):
            scores = trial_scores(trial.jobs)
            told = self._study.trials[number].intermediate_values
            for step, score in scores.items():
                if step not in told:
                    trial.of_optuna.report(score, step)
            if all(job.finished() for job in trial.jobs):
                self._end(number, scores[max(scores)])
            elif scores and trial.of_optuna.should_prune():
                self._end(number, scores[max(scores)], given_up=True)

    def best(self) -> Outcome | None:
        """The best complete trial, if there is one."""
        complete = [trial for trial in self._study.trials if trial.state == self._optuna.trial.TrialState.COMPLETE]
        if not complete:
            return None
        try:
            trial = max(complete, key=lambda trial: trial.value)
            settings = self._settings(trial.params)
            measured = trial_scores(self._jobs(trial.number, settings))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.folder} is damaged: its journal lacks {error}") from None
        if measured and not np.isclose(measured[max(measured)], trial.value):
            raise UsageError(
                f"{self.folder} is damaged: its journal says that trial {trial.number} scored {trial.value:g}, "
                f"and its runs {measured[max(measured)]:g}"
            )
        return Outcome(trial.number, settings, trial.value, given_up=False)

    def counts(self) -> dict[str, int]:
        """How many trials had which outcome."""
        states = [trial.state.name for trial in self._study.trials]
        names = {"complete": "COMPLETE", "given_up": "PRUNED", "failed": "FAIL", "unfinished": "RUNNING"}
        return {name: states.count(state) for name, state in names.items()}

    def _begin(self, of_optuna: Any) -> Iterator[Job]:
        settings = self._settings({field: _propose(of_optuna, field, at) for field, at in self.question.space.items()})
        number = of_optuna.number
        self._open_trials[number] = Trial(of_optuna, settings, [])
        try:
            jobs = self._jobs(number, settings)
            missing = [job for job in jobs if not job.finished()]
        except Unreadable:  # which says nothing about the trial
            raise
        except UsageError as error:  # settings that do not go together, or something else that lies there
            self._end(number, None, reason=str(error))
            return
        self._open_trials[number] = Trial(of_optuna, settings, jobs)
        yield from missing

    def _jobs(self, number: int, settings: Sequence[str]) -> list[Job]:
        seeds, trials = range(self.question.seeds), self.folder / "trials"
        configs = [self.question.config(settings, seed) for seed in seeds]
        return [Job(config, trials / f"{number:04d}-seed{config.seed}") for config in configs]

    def _settings(self, params: dict[str, Any]) -> list[str]:
        return [f"{field}={where.setting(params[field])}" for field, where in self.question.space.items()]

    def _end(self, number: int, score: float | None, *, given_up: bool = False, reason: str = "") -> None:
        trial, state = self._open_trials.pop(number), self._optuna.trial.TrialState
        if score is None:
            self._study.tell(trial.of_optuna, state=state.FAIL)
        elif given_up:
            self._study.tell(trial.of_optuna, state=state.PRUNED)
            for job in trial.jobs:
                # It will not continue, and this is nearly all of its size.
                Checkpoints(job.folder, job.config).drop_replay()
        else:
            self._study.tell(trial.of_optuna, score)
            self._write_best()
        self._say(Outcome(number, trial.settings, score, given_up, reason))

    def _write_best(self) -> None:
        best, question = self.best(), self.question
        assert best is not None
        about = {"trial": best.number, "score": best.score, "seeds": question.seeds, **self.counts()}
        settings = [*question.settings, *best.settings]
        write_json(self.folder / "best.json", {**question.shared(), "set": settings, "about": about})

    def _open(self, journal: Path) -> Any:
        """The study in the journal, or a new one; a UsageError if it is about something else, or damaged."""
        if is_there(Folder(self.folder).config_file):
            raise UsageError(f"{self.folder} holds a run; choose another --out")
        _drop_half_line(journal)
        try:
            study = self._read(journal)
            there = (re.match(r"([0-9]{4})-seed", name) for name in names_in(self.folder / "trials"))
            begun = [int(each[1]) for each in there if each]
            if begun and max(begun) >= len(study.trials):
                raise UsageError(f"{journal} is damaged: it does not know of trial {max(begun)}, whose runs are there")
            return study
        except UsageError:
            raise
        except OSError as error:
            raise not_writable(self.folder, error) from None
        except Exception as error:  # whatever Optuna's own reader stumbles over
            raise UsageError(f"{journal} is not a journal of Optuna, or it is damaged: {error!r}") from None

    def _read(self, journal: Path) -> Any:
        optuna, run = self._optuna, self.question.run
        backend = optuna.storages.journal.JournalFileBackend(str(journal), lock_obj=_NoLock())
        storage = optuna.storages.JournalStorage(backend)
        studies = {study.study_name: study for study in optuna.get_all_study_summaries(storage)}
        if studies and NAME not in studies:
            raise UsageError(f"{journal} holds another study, {next(iter(studies))!r}; choose another --out")
        asked: Any = studies[NAME].user_attrs.get("question") if studies else None
        if asked and run.backend == "auto":  # as a run, it goes on with what it was begun with
            backend_there = asked.get("backend", Config.backend)
            self.question = replace(self.question, run=replace(run, backend=backend_there))
        ours = self.question.to_json()
        for name in {**ours, **asked} if asked else ():
            usual = getattr(Config, name, None)  # of a setting that came after the study
            there, here = asked.get(name, usual), ours.get(name, usual)
            if there != here:
                raise UsageError(
                    f"{journal} holds another study ({name}: {there} there, {here} here); choose another --out"
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Every options draws numbers of its own: with one seed, a second would propose what the first did.
            seed = studies[NAME].n_trials if studies else 0
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS, n_warmup_steps=self.question.run.steps // 4)
        how = {"study_name": NAME, "storage": storage, "sampler": sampler, "pruner": pruner}
        study = optuna.load_study(**how) if studies else optuna.create_study(direction="maximize", **how)
        if asked is None:
            study.set_user_attr("question", ours)
        return study


def trial_scores(jobs: Sequence[Job]) -> dict[int, float]:
    """The trial's score after each evaluation that all of its runs have reached."""
    runs = []
    for job in jobs:
        folder = Folder(job.folder)
        evaluations = {}
        if is_there(folder.evaluations_file):
            evaluations = folder.evaluations(folder.config())
        runs.append({step: np.mean([episode.total for episode in each]) for step, each in evaluations.items()})
    steps = [step for step in runs[0] if all(step in run for run in runs)]
    return {
        step: float(np.mean([np.mean([run[s] for s in steps[max(0, i + 1 - LAST) : i + 1]]) for run in runs]))
        for i, step in enumerate(steps)
    }


def require_optuna() -> Any:
    """The package, quiet; a UsageError says how to install it."""
    try:
        import optuna
    except ImportError:
        raise UsageError("mepg tune needs Optuna, which is not installed: pip install 'mepg[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _propose(trial: Any, field: str, where: Range | Choice) -> Any:
    """The trial's value of a field; the same one again if it has been asked before."""
    if isinstance(where, Choice):
        return trial.suggest_categorical(field, where.values)
    suggest = trial.suggest_int if where.whole else trial.suggest_float
    return suggest(field, where.low, where.high, log=where.log)


def _wait_for(folder: Path) -> None:
    """If the process before this one was killed, its runs may still be saving."""
    deadline = time.monotonic() + PATIENCE
    while Folder(folder).in_use() and time.monotonic() < deadline:
        time.sleep(POLL)


def _plain(where: Range | Choice) -> list[Any]:
    return list(where.values) if isinstance(where, Choice) else list(where)


class _NoLock:
    """The whole folder is locked already, and Optuna's own lock would outlive a process that is killed."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _drop_half_line(journal: Path) -> None:
    """Remove half a last line, left by a killed process: whatever is appended to it would be lost.

    Optuna ignores a last line that it cannot read, and fails on it later: here it is an error at once.
    """
    try:
        content = read_whole(journal) if is_there(journal) else b""
    except Damaged as damage:
        raise UsageError(f"{journal} is not a journal of Optuna: {damage}") from None
    *lines, last = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"{journal} is not a journal of Optuna, or it is damaged: see line {number}") from None
    if last:
        os.truncate(journal, len(content) - len(last))  # at once: writing it anew could leave half of it
