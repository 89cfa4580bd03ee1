"""Every table and figure of the paper that needs runs, or counts parameters: rows, environments and unit.

An experiment asks for runs; a plan says how long they are and how many. Several experiments may ask for the
same run: `jobs` gives each once, and `experiments_of` finds all that ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mepg.algos import algorithms, find, tuned_settings
from mepg.envs.simulators import full_id
from mepg.errors import UsageError, unknown
from mepg.paper.tasks import PAPER_TASKS
from mepg.report.tables import Unit
from mepg.scheduler.jobs import Job
from mepg.settings import apply_settings
from mepg.training.config import Config
from mepg.words import many

ALL_TASKS = tuple(PAPER_TASKS)
THREE_DISCRETE = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
MUJOCO_TASKS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5")  # the dearest last
FOUR_TASKS = ("AntBulletEnv-v0", "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0")
RATES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # D16


class Row(NamedTuple):
    """A row of a table: the paper's label, and our algorithm with its settings."""

    label: str
    algorithm: str
    settings: tuple[str, ...] = ()
    dropout_p: float | None = None  # in the tables over p

    @property
    def names(self) -> set[str]:
        """The names that `--only` takes for it."""
        return {self.algorithm, self.label.lower()}


class Experiment(NamedTuple):
    """A table or a figure."""

    title: str
    rows: tuple[Row, ...]
    envs: tuple[str, ...]
    unit: Unit = "return"
    shown_as: Literal["table", "curves", "heat map"] = "table"
    beside: str = ""  # a file of curves that others published: see `others`


class Plan(NamedTuple):
    """How long and how many runs. A run's config has its length, so a short run is never taken for a full one."""

    steps: int
    seeds: int
    eval_every: int = Config.eval_every
    eval_episodes: int = Config.eval_episodes
    settings: tuple[str, ...] = ()
    tuned: bool = False

    @property
    def is_papers(self) -> bool:
        """Whether runs are as long, as many and as well evaluated as the paper's."""
        return self == PAPER

    def with_steps(self, steps: int) -> Plan:
        """The same plan with runs of another length."""
        return self._replace(steps=steps, eval_every=min(self.eval_every, steps))

    @property
    def difference(self) -> str:
        """From the paper's plan, in words."""
        settings = [*("tuned settings",) * self.tuned, *self.settings]
        steps = f"{many(self.steps, 'step')} instead of {PAPER.steps:,}"
        seeds = f"{many(self.seeds, 'seed')} instead of {PAPER.seeds}"
        return ", ".join([steps, seeds]) + (f", with {', '.join(settings)}" if settings else "")


PLANS = {
    # To try the machinery: nothing is learned.
    "smoke": Plan(300, 2, 100, 2, ("warmup=100", "hidden=16,16", "batch_size=16")),
    "desk": Plan(300_000, 3),
    "paper": Plan(1_000_000, 5),
}
PAPER = PLANS["paper"]


def _rows(*labels: str) -> tuple[Row, ...]:
    return tuple(Row(label, _ALGORITHM.get(label, label.lower())) for label in labels)


def _sweep(algorithm: str) -> tuple[Row, ...]:
    return tuple(Row(f"p = {p:g}", algorithm, (f"dropout.p={p:g}",), p) for p in RATES)


# D12: for returns, the authors' ACE. D19: the paper's own variant of REDQ.
_ALGORITHM = {"REDQ(Ours)": "redq-ours"}

_NINE = _rows("ME-SAC", "ME-DDPG", "REDQ(Ours)", "SUNRISE", "ACE", "REDQ", "SAC", "TD3", "DDPG")
_SEVEN = _rows("ME-SAC", "ME-DDPG", "REDQ(Ours)", "SUNRISE", "SAC", "TD3", "DDPG")
_PARAMETER_ROWS = (*_rows("ME-SAC", "ME-DDPG", "REDQ", "SUNRISE"), Row("ACE", "ace-flat"), *_rows("SAC", "TD3"))
_ABLATIONS = _rows(
    "ME-SAC", "ME-SAC-DU", "ME-SAC+FIXENT", "ME-SAC-R", "SAC",
    "ME-DDPG", "ME-DDPG-DO", "ME-DDPG-DU", "ME-DDPG-TPS", "ME-DDPG-R", "DDPG",
)  # fmt: skip
_ME_DDPG = _rows("ME-DDPG", "ME-DDPG-DO", "ME-DDPG-DU", "ME-DDPG-TPS", "ME-DDPG+CDQ", "DDPG")
_ME_SAC = _rows("ME-SAC", "ME-SAC-DU", "ME-SAC+CDQ", "ME-SAC+FIXENT", "SAC")
_BOTH_SWEEPS = tuple(
    row._replace(label=f"{name.upper()}, {row.label}") for name in ("me-ddpg", "me-sac") for row in _sweep(name)
)


def _family(name: str, *without: str, envs: tuple[str, ...]) -> Experiment:
    """An algorithm with one mask for both sides, without a mask, with two, and with one on one side only."""
    me = f"ME-{name}"
    one_side = Row(f"{me}, one side", me.lower(), ("dropout.masks=online",))
    return Experiment(f"The mask on {name}", (*_rows(me, *without, name, f"{me}-R"), one_side), envs)


_MUJOCO = (
    *_rows("SAC", "ME-SAC", "TD3", "ME-DDPG", "CROSSQ", "ME-CROSSQ"),
    Row("ME-SAC+LCB, tuned", "me-sac+lcb", tuple(tuned_settings("me-sac+lcb"))),
)

# Run only if they are named. Where the published algorithm has more than one critic, two rows have no mask: its own,
# and ME's with as many critics as ME has.
_FAMILIES = {
    "any-dqn": _family("DQN", envs=THREE_DISCRETE),
    "any-qr-dqn": _family("QR-DQN", envs=THREE_DISCRETE),
    "any-sac-discrete": _family("SAC-DISCRETE", "ME-SAC-DISCRETE-DO", envs=THREE_DISCRETE),
    "any-tqc": _family("TQC", "ME-TQC-DO", envs=FOUR_TASKS[1:]),
    "any-crossq": _family("CROSSQ", "ME-CROSSQ-DO", envs=FOUR_TASKS[1:]),
}
_NOT_IN_PAPER = {
    **_FAMILIES,
    "mujoco": Experiment("MuJoCo, beside published curves", _MUJOCO, MUJOCO_TASKS, beside="mujoco"),
}
FAMILIES, NOT_IN_PAPER = tuple(_FAMILIES), tuple(_NOT_IN_PAPER)

EXPERIMENTS = {
    "table1": Experiment("Returns, four tasks", _NINE, FOUR_TASKS),
    "table2": Experiment("Ablations, four tasks", _ABLATIONS, FOUR_TASKS),
    "table3": Experiment("Run time, four tasks", _SEVEN, FOUR_TASKS, "minutes"),
    "table4": Experiment("Parameters, four tasks", _PARAMETER_ROWS, FOUR_TASKS, "parameters"),
    "table6": Experiment("Returns, eight tasks", _SEVEN, ALL_TASKS),
    "table7": Experiment("Run time, eight tasks", _SEVEN, ALL_TASKS, "minutes"),
    "table8": Experiment("Ablations of ME-DDPG", _ME_DDPG, ALL_TASKS),
    "table9": Experiment("Ablations of ME-SAC", _ME_SAC, ALL_TASKS),
    "table10": Experiment("Parameters, eight tasks", _PARAMETER_ROWS, ALL_TASKS, "parameters"),
    "table11": Experiment("ME-DDPG's returns for each p", _sweep("me-ddpg"), ALL_TASKS),
    "table12": Experiment("ME-SAC's returns for each p", _sweep("me-sac"), ALL_TASKS),
    "figure2": Experiment("Learning curves", _SEVEN, FOUR_TASKS, shown_as="curves"),
    "figure3": Experiment("Returns over p, divided by the best", _BOTH_SWEEPS, ALL_TASKS, shown_as="heat map"),
    "figure4": Experiment("Learning curves of ME-DDPG's ablations", _ME_DDPG, ALL_TASKS, shown_as="curves"),
    "figure5": Experiment("Learning curves of ME-SAC's ablations", _ME_SAC, ALL_TASKS, shown_as="curves"),
    "figure6": Experiment("Learning curves of ME-DDPG for each p", _sweep("me-ddpg"), ALL_TASKS, shown_as="curves"),
    "figure7": Experiment("Learning curves of ME-SAC for each p", _sweep("me-sac"), ALL_TASKS, shown_as="curves"),
    **_NOT_IN_PAPER,
}  # fmt: skip


class Selection(NamedTuple):
    """The part of an experiment, under a plan, that is wanted."""

    name: str
    experiment: Experiment
    plan_name: str
    plan: Plan
    seeds: tuple[int, ...]

    @property
    def folder_name(self) -> str:
        """Runs of another length than the plan's, and tuned ones, are kept in another folder."""
        length = "" if self.plan.steps == PLANS[self.plan_name].steps else f"-{self.plan.steps}"
        return f"{self.plan_name}{length}{'-tuned' if self.plan.tuned else ''}"

    def configs(self, row: Row, env: str) -> list[Config]:
        """The runs that one cell asks for: one a seed, or none where parameters are counted."""
        if self.experiment.unit == "parameters":
            return []
        return [replace(_config(row, self.plan), env=env, seed=seed) for seed in self.seeds]

    def all_configs(self) -> set[Config]:
        """The runs that all cells ask for."""
        rows, envs = self.experiment.rows, self.experiment.envs
        return {config for row in rows for env in envs for config in self.configs(row, env)}


def select(
    name: str,
    plan: str = "desk",
    *,
    only: Iterable[str] | None = None,
    envs: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
    steps: int | None = None,
    tuned: bool = False,
) -> Selection:
    """The experiment called `name`, narrowed down; a UsageError says what does not exist."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    if plan not in PLANS:
        raise unknown("plan", plan, PLANS)
    experiment, chosen = EXPERIMENTS[name], PLANS[plan]
    if only is not None:
        wanted = {name.lower() for name in only}
        for missing in wanted - {name for row in experiment.rows for name in row.names}:
            raise unknown("row", missing, {row.algorithm for row in experiment.rows})
        experiment = experiment._replace(rows=tuple(row for row in experiment.rows if wanted & row.names))
    if envs is not None:
        for env in (envs := tuple(map(full_id, envs))):
            if env not in experiment.envs:
                raise unknown(f"environment of {name}", env, experiment.envs)
        experiment = experiment._replace(envs=tuple(env for env in experiment.envs if env in envs))
    if steps is not None:
        chosen = chosen.with_steps(steps)
    chosen = chosen._replace(tuned=tuned)
    numbers = tuple(range(chosen.seeds)) if seeds is None else tuple(dict.fromkeys(seeds))
    if not experiment.rows or not experiment.envs or not numbers:
        raise UsageError(f"nothing is left of {name}: no row, no environment or no seed was chosen")
    return Selection(name, experiment, plan, chosen, numbers)


def select_several(
    names: Sequence[str],
    plan: str = "desk",
    *,
    only: Sequence[str] | None = None,
    envs: Sequence[str] | None = None,
    **chosen: Any,
) -> list[Selection]:
    """The experiments with these names, as `select` has them, each with those rows and environments that it has.

    One that has none of them is left out. A row or environment that none of them has is an error.
    """
    if len(names) == 1:
        return [select(names[0], plan, only=only, envs=envs, **chosen)]
    selections, errors, missed = [], [], {*map(str.lower, only or ()), *map(full_id, envs or ())}
    for name in names:
        whole = select(name, plan).experiment
        rows, tasks = set().union(*(row.names for row in whole.rows)), set(whole.envs)
        own_rows = [row for row in only or () if row.lower() in rows]
        own_envs = [env for env in envs or () if full_id(env) in tasks]
        try:  # if it has none of them, with all, so that the error names them
            selections.append(select(name, plan, only=own_rows or only, envs=own_envs or envs, **chosen))
            missed -= rows | tasks
        except UsageError as error:
            errors.append(error)
    if not selections:
        raise errors[0]
    for missing in sorted(missed):
        raise UsageError(
            f"none of these experiments has {missing!r}, or not together with the rest: {', '.join(names)}"
        )
    return selections


def jobs(selection: Selection, results: Path, backend: str = Config.backend) -> list[Job]:
    """The runs, each once, however many rows ask for it, to be computed on this backend: one task after the other."""
    folder = results / selection.folder_name
    found = {
        job.folder: job
        for env in selection.experiment.envs
        for row in selection.experiment.rows
        for config in selection.configs(row, env)
        for job in [Job(replace(config, backend=backend), folder / config.folder_name(canonical(row)[1]))]
    }
    return list(found.values())


@cache
def canonical(row: Row) -> tuple[str, tuple[str, ...]]:
    """The algorithm and settings of a row: only a name, if its spec has one. p = 0.1 is `me-ddpg`."""
    spec = apply_settings(find(row.algorithm).spec, row.settings)
    named = [name for name, algorithm in algorithms().items() if algorithm.spec == spec]
    return (named[0], ()) if named else (row.algorithm, row.settings)


@cache
def _config(row: Row, plan: Plan) -> Config:
    """What a row's runs have in common."""
    algorithm, settings = canonical(row)
    tuned = tuned_settings(algorithm) if plan.tuned else ()
    return Config.make(
        algorithm, (*tuned, *settings, *plan.settings), env=ALL_TASKS[0],
        steps=plan.steps, eval_every=plan.eval_every, eval_episodes=plan.eval_episodes,
    )  # fmt: skip


Key = tuple[object, ...]


def experiments_of(config: Config) -> list[tuple[str, str]]:
    """The experiments that ask for this run, whatever its length and seed, each with the plan whose settings it has."""
    return _experiments_by_key().get(_key(config), [])


@cache
def _experiments_by_key() -> dict[Key, list[tuple[str, str]]]:
    found: dict[Key, list[tuple[str, str]]] = {}
    for plan in ("desk", "smoke"):  # the paper's has desk's settings
        for name in EXPERIMENTS:
            for key in {_key(config) for config in select(name, plan, seeds=[0]).all_configs()}:
                found.setdefault(key, []).append((name, plan))
    return found


def _key(config: Config) -> Key:
    """All of a config but its seed, its length and its backend."""
    left_out = ("seed", "steps", "eval_every", "eval_episodes", "backend")
    return tuple(getattr(config, field.name) for field in fields(config) if field.name not in left_out)
