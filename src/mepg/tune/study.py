"""A study: trials that Optuna proposes, each carried out as runs with several seeds.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mepg.errors import UsageError
from mepg.scheduler.jobs import Job
from mepg.scheduler.schedule import Failure
from mepg.storage.checkpoint import Checkpoints
from mepg.storage.files import Damaged, Unreadable, list_names, not_writable, path_exists, read_whole, write_json
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.tune.objective import Objective, intermediate_scores

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 5  # are never pruned: the others are compared with their median
REPORT_EVERY = 1.0  # seconds between two reports of intermediate scores
STUDY_NAME = "mepg"
OBJECTIVE_KEY = "question"  # of the study's user attribute: journals have it under this name


class RunningTrial(NamedTuple):
    """A trial whose runs are being carried out."""

    trial: optuna.Trial
    settings: list[str]
    jobs: list[Job]


class FinishedTrial(NamedTuple):
    """A trial that has ended."""

    number: int
    settings: list[str]
    state: str  # as Optuna names it: COMPLETE, PRUNED or FAIL
    score: float | None  # None: it failed
    reason: str = ""  # why it failed


class Study:
    """Asks Optuna for trials, hands out their jobs, and tells Optuna what came of them.

    Its owner carries the jobs out, and calls `update` while they run. `callback` is called with each trial that ends.
    """

    def __init__(
        self, objective: Objective, folder: Path, trials: int, callback: Callable[[FinishedTrial], None]
    ) -> None:
        require_optuna()
        self.objective, self.folder = objective, folder
        self._wanted, self._callback = trials, callback
        self._study = self._open(folder / "journal.log")
        self._running: dict[int, RunningTrial] = {}
        self._reported = 0.0

    def jobs(self) -> Iterator[Job]:
        """The jobs of trials that an earlier process left, then of new trials, until there are as many as wanted."""
        from optuna.trial import Trial

        for left in self._trials("RUNNING"):
            yield from self._start(Trial(self._study, left._trial_id))
        while len(self._study.trials) < self._wanted:
            self.report()  # the next proposal should know all results so far
            yield from self._start(self._study.ask())

    def update(self, failures: Iterable[Failure]) -> None:
        """Fail the trials of runs that failed; now and then, report what the others have measured."""
        for failure in failures:
            for number, running in list(self._running.items()):
                if failure.job in running.jobs:
                    self._tell(number, "FAIL", reason=failure.reason)
        if time.monotonic() - self._reported > REPORT_EVERY:
            self.report()

    def report(self) -> None:
        """Report intermediate scores to Optuna, and end the trials that are complete or to be pruned."""
        self._reported = time.monotonic()
        for number, (trial, _, jobs) in list(self._running.items()):
            scores = intermediate_scores(jobs)
            reported = self._study.trials[number].intermediate_values
            for step, score in scores.items():
                if step not in reported:
                    trial.report(score, step)
            if all(job.finished() for job in jobs):
                self._tell(number, "COMPLETE", scores[max(scores)])
            elif scores and trial.should_prune():
                self._tell(number, "PRUNED", scores[max(scores)])

    def has_ended(self, job: Job) -> bool:
        """Whether the job's trial has ended, so that its other runs need not go on."""
        return not any(job in running.jobs for running in self._running.values())

    def best(self) -> FinishedTrial | None:
        """The best complete trial, if there is one."""
        complete = self._trials("COMPLETE")
        if not complete:
            return None
        try:
            trial = max(complete, key=lambda trial: trial.value)
            settings = self.objective.settings_from(trial.params)
            scores = intermediate_scores(self._jobs(trial.number, settings))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.folder} is damaged: its journal lacks {error}") from None
        if scores and not np.isclose(scores[max(scores)], trial.value):
            raise UsageError(
                f"{self.folder} is damaged: its journal says that trial {trial.number} scored {trial.value:g}, "
                f"and its runs {scores[max(scores)]:g}"
            )
        return FinishedTrial(trial.number, settings, "COMPLETE", trial.value)

    def counts(self) -> dict[str, int]:
        """How many trials are in which state."""
        states = {"complete": "COMPLETE", "given_up": "PRUNED", "failed": "FAIL", "unfinished": "RUNNING"}
        return {name: len(self._trials(state)) for name, state in states.items()}

    def _trials(self, state: str) -> list[Any]:  # FrozenTrial, of which a damaged journal may lack anything
        return [trial for trial in self._study.trials if trial.state.name == state]

    def _jobs(self, number: int, settings: list[str]) -> list[Job]:
        return self.objective.jobs(settings, self.folder / "trials", number)

    def _start(self, trial: optuna.Trial) -> Iterator[Job]:
        """The jobs of a trial that are not finished yet."""
        space = self.objective.space
        settings = self.objective.settings_from({field: space[field].suggest(trial, field) for field in space})
        self._running[trial.number] = RunningTrial(trial, settings, [])
        try:
            jobs = self._jobs(trial.number, settings)
            missing = [job for job in jobs if not job.finished()]
        except Unreadable:  # which says nothing about the trial
            raise
        except UsageError as error:  # settings that exclude each other, or a folder that holds something else
            self._tell(trial.number, "FAIL", reason=str(error))
            return
        self._running[trial.number] = RunningTrial(trial, settings, jobs)
        yield from missing

    def _tell(self, number: int, state: str, score: float | None = None, reason: str = "") -> None:
        """Tell Optuna how a trial ended."""
        from optuna.trial import TrialState

        trial, settings, jobs = self._running.pop(number)
        self._study.tell(trial, score if state == "COMPLETE" else None, TrialState[state])
        if state == "COMPLETE":
            self._write_best()
        elif state == "PRUNED":
            for job in jobs:  # the replay buffer is nearly all of its size
                Checkpoints(job.folder, job.config).drop_replay()
        self._callback(FinishedTrial(number, settings, state, score, reason))

    def _write_best(self) -> None:
        best, objective = self.best(), self.objective
        assert best is not None
        about = {"trial": best.number, "score": best.score, "seeds": objective.seeds, **self.counts()}
        settings = [*objective.settings, *best.settings]
        write_json(self.folder / "best.json", {**objective.shared(), "set": settings, "about": about})

    def _open(self, journal: Path) -> optuna.Study:
        """The study in the journal, or a new one; a UsageError if it is another study, or damaged."""
        if path_exists(Folder(self.folder).config_file):
            raise UsageError(f"{self.folder} holds a run; choose another --out")
        _drop_partial_line(journal)
        try:
            study = self._load(journal)
            matches = (re.match(r"([0-9]{4})-seed", name) for name in list_names(self.folder / "trials"))
            started = [int(match[1]) for match in matches if match]
            if started and max(started) >= len(study.trials):
                raise UsageError(
                    f"{journal} is damaged: it does not know of trial {max(started)}, whose runs are there"
                )
            return study
        except UsageError:
            raise
        except OSError as error:
            raise not_writable(self.folder, error) from None
        except Exception as error:  # whatever Optuna's own reader raises
            raise UsageError(f"{journal} is not a journal of Optuna, or it is damaged: {error!r}") from None

    def _load(self, journal: Path) -> optuna.Study:
        import optuna
        from optuna.storages.journal import JournalFileBackend

        lock: Any = _NoLock()  # Optuna calls nothing but these two methods
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
        studies = {study.study_name: study for study in optuna.get_all_study_summaries(storage)}
        if studies and STUDY_NAME not in studies:
            raise UsageError(f"{journal} holds another study, {next(iter(studies))!r}; choose another --out")
        stored: Any = studies[STUDY_NAME].user_attrs.get(OBJECTIVE_KEY) if studies else None
        if stored:
            self._require_same_objective(stored, journal)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Each process draws numbers of its own: with one seed, the second would propose what the first did.
            seed = studies[STUDY_NAME].n_trials if studies else 0
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        quarter = self.objective.run.steps // 4
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=quarter)
        options: Any = {"study_name": STUDY_NAME, "storage": storage, "sampler": sampler, "pruner": pruner}
        study = optuna.load_study(**options) if studies else optuna.create_study(direction="maximize", **options)
        if stored is None:
            study.set_user_attr(OBJECTIVE_KEY, self.objective.to_json())
        return study

    def _require_same_objective(self, stored: dict[str, Any], journal: Path) -> None:
        """Refuse a study of another objective. A backend that is left open is that of the study, as for a run."""
        run = self.objective.run
        if run.backend == "auto":
            backend = stored.get("backend", Config.backend)
            self.objective = replace(self.objective, run=replace(run, backend=backend))
        current = self.objective.to_json()
        for name in {**current, **stored}:
            default = getattr(Config, name, None)  # of a setting that is newer than the study
            there, here = stored.get(name, default), current.get(name, default)
            if there != here:
                raise UsageError(
                    f"{journal} holds another study ({name}: {there} there, {here} here); choose another --out"
                )


def require_optuna() -> None:
    """Import and silence Optuna; a UsageError says how to install it."""
    try:
        import optuna
    except ImportError:
        raise UsageError("mepg tune needs Optuna, which is not installed: pip install 'mepg[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


class _NoLock:
    """The whole folder is locked already, and Optuna's own lock would outlive a process that is killed."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _drop_partial_line(journal: Path) -> None:
    """Remove a partial last line, left by a killed process: whatever is appended to it would be lost.

    Optuna ignores a last line that it cannot read, and fails on it later: here it is an error at once.
    """
    try:
        content = read_whole(journal) if path_exists(journal) else b""
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
