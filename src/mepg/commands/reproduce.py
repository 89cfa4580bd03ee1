"""run the paper's experiments, or resume them"""

from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.process import EXIT_FAILURE
from mepg.signals import signal_exit_status, stop_on_signal
from mepg.training.config import Config, options_of
from mepg.words import duration, many

if TYPE_CHECKING:
    from mepg.paper.experiments import Selection
    from mepg.scheduler.schedule import JobsByState

COMPUTES, SAVES = True, True


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "experiments",
        metavar="NAME",
        nargs="*",
        help="table1, figure2, ... (all experiments of the paper); not in the paper: any (other algorithms), mujoco",
    )
    parser.add_argument(
        "--plan", default="desk", metavar="P", help="smoke, desk or paper: how many runs, and how long they are (desk)"
    )
    parser.add_argument("--only", type=flags.names, metavar="ALGO,...", help="only these algorithms")
    parser.add_argument("--envs", type=flags.names, metavar="ID,...", help="only these environments")
    parser.add_argument("--seeds", type=flags.seeds, metavar="A-B", help="only these seeds: 0-2, or 0,3")
    flags.add_count(
        parser, "--steps", None, "steps of each run instead of the plan's; such runs have a folder of their own"
    )
    flags.add_tuned(parser)
    flags.add_path(parser, "--results", "DIR", "folder for the runs", "results")
    flags.add_options(parser, Config, leave_out=options_of(Config).keys() - {"backend"})
    flags.add_engine(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only print how many runs are missing, and how long they take"
    )


def answer(arguments: Arguments) -> Answer:
    from mepg.display import JobsDisplay
    from mepg.paper.experiments import jobs
    from mepg.paper.report import write_report
    from mepg.scheduler.schedule import Failure, claim, jobs_by_state, run_jobs

    selections = _selections(arguments)
    results, backend = arguments.results, arguments.backend
    options_of(Config)["backend"].check(backend)
    wanted = {job.folder: job for selection in selections for job in jobs(selection, results, backend)}
    folder = arguments.results / selections[0].folder_name
    states = jobs_by_state(wanted.values())
    if arguments.dry_run:
        return _estimate(arguments, states)
    engine = flags.engine_of(arguments)
    with (
        claim(folder),
        stop_on_signal() as stop,
        JobsDisplay(states.missing, len(states.finished), quiet=arguments.json) as display,
    ):
        failures: list[Failure] = []
        for status in run_jobs(states.missing, engine, folder / "logs", lambda: stop.by is not None):
            display.show(*status)
            failures = status.failures
    failures = [*failures, *states.unusable]
    done = len(jobs_by_state(wanted.values()).finished)
    data = {
        "runs": len(wanted),
        "finished": done,
        "failed": [{"run": str(f.job.folder), "reason": f.reason, "log": f.log and str(f.log)} for f in failures],
        "stopped_by": stop.by,
    }
    lines = [f"{done} of {many(len(wanted), 'run')} finished, in {folder}"]
    lines += [f"  failed: {f.job.folder.name}: {f.reason}" + (f" ({f.log})" if f.log else "") for f in failures]
    if stop.by is not None:
        lines.append(f"{stop.by}: saved; the same command continues from there")
        return Answer(data, "\n".join(lines), signal_exit_status(stop.by))
    try:
        names = [selection.name for selection in selections]
        page = write_report([folder], arguments.results / f"{folder.name}.html", names).page
        data["report"] = str(page)
        lines.append(f"  page: {page}")
    except UsageError as error:  # the runs are done: print what there is
        lines.append(f"  no page: {error}")
    return Answer(data, "\n".join(lines), EXIT_FAILURE if failures else 0)


def _selections(arguments: Arguments) -> list["Selection"]:
    """The chosen experiments, restricted to the chosen algorithms, environments and seeds; empty ones are dropped."""
    from mepg.paper.experiments import EXPERIMENTS, FAMILIES, NOT_IN_PAPER, select_several

    experiments = arguments.experiments or [name for name in EXPERIMENTS if name not in NOT_IN_PAPER]
    names = [each for name in experiments for each in (FAMILIES if name == "any" else (name,))]
    restrictions = {name: getattr(arguments, name) for name in ("only", "envs", "seeds", "steps", "tuned")}
    return select_several(names, arguments.plan, **restrictions)


def _estimate(arguments: Arguments, states: "JobsByState") -> Answer:
    """How many runs there are, how many are finished, and how long the rest takes on this machine."""
    from rich.console import Console
    from rich.progress import track

    from mepg.scheduler.local import Local
    from mepg.scheduler.speed import cost_key, measure

    workers = Local(arguments.workers).capacity()
    missing, finished = states.missing, len(states.finished)
    runs = finished + len(missing) + len(states.unusable)
    configs = {cost_key(job.config): job.config for job in missing}
    console = Console(stderr=True)
    measuring = track(list(configs.items()), "measuring this machine", console=console, transient=True)
    speeds = {key: measure(config) for key, config in measuring}
    seconds = sum(speeds[cost_key(job.config)].seconds(job.config) for job in missing) / workers
    data = {"runs": runs, "finished": finished, "missing": len(missing), "seconds": seconds, "workers": workers}
    lines = [f"{many(runs, 'run')}, {finished} of them finished"]
    if missing:
        lines[0] += f"; the rest takes about {duration(seconds)} on {many(workers, 'core')}"
    lines += [f"  cannot be used: {failure.job.folder.name}: {failure.reason}" for failure in states.unusable]
    return Answer({**data, "unusable": [str(failure.job.folder) for failure in states.unusable]}, "\n".join(lines))
