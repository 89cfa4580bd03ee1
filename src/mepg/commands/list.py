"""list the algorithms and some environments, or the runs in folders"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many

if TYPE_CHECKING:
    from mepg.core.types import Sizes


def add_arguments(parser: Parser) -> None:
    flags.add_runs(parser, "*")


def answer(arguments: Arguments) -> Answer:
    return _runs(arguments) if arguments.runs else _names()


def _runs(arguments: Arguments) -> Answer:
    from mepg.report.runs import collect
    from mepg.storage.folder import Folder

    runs, problems = collect(arguments.runs)
    if not runs and problems:
        raise UsageError(f"{problems[0].path} {problems[0].reason}")
    rows: list[tuple[str, ...]] = [("run", "algorithm", "environment", "seed", "step", "return", "")]
    data = []
    for run in sorted(runs, key=lambda run: run.path):
        step = int(run.steps[-1]) if len(run.steps) else 0
        last = float(run.means[-1]) if len(run.steps) else None
        state = "finished" if run.finished else "running" if Folder(run.path).in_use() else "unfinished"
        about = {"algorithm": run.config.algorithm, "env": run.config.env, "seed": run.config.seed}
        data.append({"run": str(run.path), **about, "step": step, "return": last, "state": state})
        shown = "" if last is None else f"{last:,.1f}"
        rows.append((str(run.path), *map(str, about.values()), f"{step:,}", shown, state))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(w) if 3 <= i <= 5 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    lines += [f"left out: {problem.path} {problem.reason}" for problem in problems]
    left_out = [{"path": str(problem.path), "reason": problem.reason} for problem in problems]
    return Answer({"runs": data, "left_out": left_out}, "\n".join(lines))


def _names() -> Answer:
    from mepg.algos import RECOMMENDED, START_WITH, algorithms

    recommended = {choice.algorithm for choice in RECOMMENDED.values()}
    heading, tasks, missing = _tasks()
    data = {
        "algorithms": {name: {"summary": a.summary, "parent": a.parent} for name, a in algorithms().items()},
        "recommended": {kind: choice._asdict() for kind, choice in RECOMMENDED.items()},
        "environments": {name: {"obs": sizes.obs, "action": sizes.action} for name, sizes in tasks.items()},
    }
    lines = ["Algorithms (in brackets: what each builds on)"]
    width = max(map(len, algorithms()))
    for name, algorithm in algorithms().items():
        of = f" ({algorithm.parent})" if algorithm.parent else ""
        mark = "*" if name in recommended else " "
        lines.append(f"{mark} {name:<{width}}  {algorithm.summary}{of}")
    lines += ["", f"* to start with: {START_WITH}", "  (mepg train --env ID, without a name)", "", heading]
    lines += [f"  {name:<37} {many(s.obs, 'observation'):>16}, {many(s.action, 'action')}" for name, s in tasks.items()]
    lines += missing
    lines += ["", "Any other Gymnasium environment works too, if its observations have a fixed size and its actions",
              "are a Box or Discrete: --env Pendulum-v1, or --env my_package:MyEnv-v0 for one that a package of yours",
              "registers.",
              "mepg show NAME prints an algorithm's settings; mepg list RUNS lists runs."]  # fmt: skip
    return Answer(data, "\n".join(lines))


def _tasks() -> tuple[str, Mapping[str, "Sizes"], list[str]]:
    """Environments that can be made here, with a heading; and what to do for the paper's, if they cannot."""
    from mepg.envs.simulators import GYMNASIUM_TASKS, MUJOCO_TASKS, has_mujoco, has_pybullet, how_to_get_pybullet
    from mepg.paper.tasks import PAPER_TASKS

    if has_pybullet():
        return "Environments of the paper", PAPER_TASKS, []
    missing = [f"Those of the paper need {how_to_get_pybullet()}."]
    if has_mujoco():
        return "Environments of MuJoCo", MUJOCO_TASKS, missing
    return "Environments of Gymnasium", GYMNASIUM_TASKS, missing
