"""The objective of a study: the score that settings reach, over runs with several seeds.

The score of a run is the mean return of its last `LAST_EVALUATIONS` evaluations. The score of a trial is the mean over
its seeds. While its runs go on, the same mean over the evaluations so far is the trial's intermediate score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mepg.errors import UsageError
from mepg.scheduler.jobs import Job
from mepg.settings import apply_settings
from mepg.storage.files import JsonObject, path_exists
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.tune.space import Choice, Space
from mepg.words import many

LAST_EVALUATIONS = 5  # the end of learning, not a lucky moment
MAX_SEEDS = 10_000  # of a trial


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a study maximises, and over which space. With the same objective a study continues."""

    run: Config  # of every trial, with seed 0 and without the settings that trials change
    settings: tuple[str, ...]  # of its spec, the same in every trial
    space: Space
    seeds: int

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise UsageError(f"seeds must be in [1, {MAX_SEEDS}], not {self.seeds}")
        if "warmup" not in self.space:
            _require_learning(self.run)  # every trial would fail alike

    def config(self, settings: Sequence[str], seed: int) -> Config:
        """The run of one seed with these settings."""
        config = replace(self.run, spec=apply_settings(self.run.spec, settings), seed=seed)
        _require_learning(config)
        return config

    def jobs(self, settings: Sequence[str], trials: Path, number: int) -> list[Job]:
        """The runs of a trial, one for each seed."""
        configs = [self.config(settings, seed) for seed in range(self.seeds)]
        return [Job(config, trials / f"{number:04d}-seed{config.seed}") for config in configs]

    def settings_from(self, params: Mapping[str, Any]) -> list[str]:
        """Optuna's parameters, as `--set` takes them."""
        return [f"{field}={values.setting(params[field])}" for field, values in self.space.items()]

    def shared(self) -> JsonObject:
        """What is the same in all runs, as `mepg train --config` takes it: a setting that is None is left out."""
        differing = ("spec", "seed", "threads", "data_sha256")
        return {
            name: value for name, value in self.run.to_json().items() if name not in differing and value is not None
        }

    def to_json(self) -> JsonObject:
        """As a study stores it."""
        space = {
            field: list(values.values if isinstance(values, Choice) else values) for field, values in self.space.items()
        }
        data = {} if self.run.data_sha256 is None else {"data_sha256": self.run.data_sha256}
        return {**self.shared(), **data, "space": space, "settings": list(self.settings), "seeds": self.seeds}


def intermediate_scores(jobs: Sequence[Job]) -> dict[int, float]:
    """The score of a trial after each evaluation that all of its runs have reached, by step."""
    runs = []
    for job in jobs:
        folder = Folder(job.folder)
        evaluations = folder.evaluations(folder.config()) if path_exists(folder.evaluations_file) else {}
        runs.append(
            {step: np.mean([episode.return_ for episode in episodes]) for step, episodes in evaluations.items()}
        )
    steps = [step for step in runs[0] if all(step in run for run in runs)]
    return {
        step: float(np.mean([np.mean([run[s] for s in steps[max(0, end - LAST_EVALUATIONS) : end]]) for run in runs]))
        for end, step in enumerate(steps, start=1)
    }


def _require_learning(config: Config) -> None:
    """Refuse a run that ends within its warm-up."""
    if config.spec.warmup >= config.steps:
        raise UsageError(
            f"nothing is learned in {many(config.steps, 'step')}: "
            f"the warm-up is {config.spec.warmup:,}; --set warmup=1000"
        )
