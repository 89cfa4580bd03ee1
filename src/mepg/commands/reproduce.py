"""run the paper's experiments, or continue them"""

import argparse
from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.process import EXIT_FAILURE
from mepg.signals import status_of, stopping
from mepg.training.config import Config, settings_of
from mepg.words import duration, many

if TYPE_CHECKING:
    from mepg.paper.experiments import Selection
    from mepg.scheduler.schedule import Stock

COMPUTES, SAVES = True, True


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "experiments",
        metavar="NAME",
        nargs="*",
        help="table1, figure2, ... (all of them); any: other algorithms, beyond the paper",
    )
    parser.add_argument(
        "--plan", default="desk", metavar="P", help="smoke, desk or paper: how long and how many runs (desk)"
    )
    parser.add_argument("--only", type=flags.names, metavar="ALGO,...", help="only these rows")
    parser.add_argument("--envs", type=flags.names, metavar="ID,...", help="only these environments")
    parser.add_argument("--seeds", type=_seeds, metavar="A-B", help="only these seeds: 0-2, or 0,3")
    flags.add_count(parser, "--steps", None, "steps of a run, instead of the plan's; kept in a separate folder")
    flags.add_path(parser, "--results", "DIR", "where runs are kept", "results")
    flags.add_settings(parser, Config, leave_out=settings_of(Config).keys() - {"backend"})
    flags.add_engine(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what there is to do, and how long it takes")


def _seeds(text: str) -> tuple[int, ...]:
    """0-2 or 0,3 or both."""
    try:
        ends = [[flags.count(end) for end in part.split("-")] for part in text.split(",")]
        if any(len(end) > 2 or end[-1] - end[0] > 10_000 for end in ends):
            raise ValueError
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of seeds, such as 0-2 or 0,3") from None
    return tuple(seed for end in ends for seed in range(end[0], end[-1] + 1))


def answer(arguments: Arguments) -> Answer:
    from mepg.display import Board
    from mepg.paper.experiments import jobs
    from mepg.paper.report import write_report
    from mepg.scheduler.schedule import carry_out, claim, take_stock

    selections = _selections(arguments)
    results, backend = arguments.results, arguments.backend
    settings_of(Config)["backend"].check(backend)
    wanted = {job.folder: job for selection in selections for job in jobs(selection, results, backend)}
    folder = arguments.results / selections[0].folder_name
    stock = take_stock(wanted.values())
    if arguments.dry_run:
        return _what_there_is_to_do(arguments, stock)
    engine = flags.engine_of(arguments)
    with (
        claim(folder),
        stopping() as stop,
        Board(stock.missing, len(stock.finished), quiet=arguments.json) as board,
    ):
        failures = carry_out(stock.missing, engine, folder / "logs", board, lambda: stop.by is not None)
    failures += stock.unusable
    done = len(take_stock(wanted.values()).finished)
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
        return Answer(data, "\n".join(lines), status_of(stop.by))
    try:
        names = [selection.name for selection in selections]
        page = write_report([folder], arguments.results / f"{folder.name}.html", names).page
        data["report"] = str(page)
        lines.append(f"  page: {page}")
    except UsageError as error:  # the runs are done: report them all the same
        lines.append(f"  no page: {error}")
    return Answer(data, "\n".join(lines), EXIT_FAILURE if failures else 0)


def _selections(arguments: Arguments) -> list["Selection"]:
    """The experiments that were named, narrowed down; of several, those of which something is left."""
    from mepg.paper.experiments import BEYOND, EXPERIMENTS, select_some

    named = arguments.experiments or [name for name in EXPERIMENTS if name not in BEYOND]
    names = [each for name in named for each in (BEYOND if name == "any" else (name,))]
    chosen = {name: getattr(arguments, name) for name in ("only", "envs", "seeds", "steps")}
    return select_some(names, arguments.plan, **chosen)


def _what_there_is_to_do(arguments: Arguments, stock: "Stock") -> Answer:
    """How many runs, how many of them are there, and how long the rest takes here."""
    from rich.console import Console
    from rich.progress import track

    from mepg.scheduler.local import Local
    from mepg.scheduler.speed import kind, measure

    workers = Local(arguments.workers).capacity()
    missing, finished = stock.missing, len(stock.finished)
    runs = finished + len(missing) + len(stock.unusable)
    kinds = {kind(job.config): job.config for job in missing}
    console = Console(stderr=True)
    measuring = track(list(kinds.items()), "measuring this machine", console=console, transient=True)
    speeds = {name: measure(config) for name, config in measuring}
    seconds = sum(speeds[kind(job.config)].seconds(job.config) for job in missing) / workers
    data = {"runs": runs, "finished": finished, "missing": len(missing), "seconds": seconds, "workers": workers}
    lines = [f"{many(runs, 'run')}, {finished} of them finished"]
    if missing:
        lines[0] += f"; the rest takes about {duration(seconds)} on {many(workers, 'core')}"
    lines += [f"  cannot be used: {failure.job.folder.name}: {failure.reason}" for failure in stock.unusable]
    return Answer({**data, "unusable": [str(failure.job.folder) for failure in stock.unusable]}, "\n".join(lines))
