"""search for good hyperparameters, or resume a search"""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.process import EXIT_FAILURE, printable, program_name
from mepg.signals import signal_exit_status, stop_on_signal
from mepg.training.config import Config, options_of
from mepg.words import many

if TYPE_CHECKING:
    from mepg.tune.study import FinishedTrial

COMPUTES, SAVES = True, True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("algorithm", metavar="ALGO", help="a name from `mepg list`, or module:name")
    parser.add_argument("--env", required=True, metavar="ID", help="a Gymnasium environment id, or module:id")
    flags.add_count(parser, "--trials", 20, "trials in total, including those before a resume")
    flags.add_count(parser, "--seeds", 3, "runs of each trial, with seeds 0, 1, ...")
    # A trial's seeds are counted from 0, and each of its runs has a core to itself.
    flags.add_options(parser, Config, leave_out=("seed", "threads"), steps=100_000)
    words = "values to search for a setting: low:high, low:high:log or a,b,c; can be repeated (see docs/tune.md)"
    parser.add_argument("--space", action="append", default=[], metavar="FIELD=WHERE", help=words)
    flags.add_path(parser, "--out", "DIR", "the study's folder (tune/NAME, named after algorithm and environment)")
    flags.add_engine(parser)
    flags.add_tuned(parser)
    flags.add_set(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg.envs.env import Env
    from mepg.scheduler.schedule import claim, run_jobs
    from mepg.storage.data import with_data
    from mepg.training.assembly import make_replay
    from mepg.tune.objective import Objective
    from mepg.tune.space import default_space, parse_space
    from mepg.tune.study import Study, require_optuna

    require_optuna()
    flags.check_bound("trials", arguments.trials)
    options = flags.options_from(arguments, Config)
    options_of(Config)["eval_every"].check(options["eval_every"])
    options["eval_every"] = min(options["eval_every"], options["steps"])
    settings = flags.spec_settings(arguments)
    run, transitions = with_data(Config.make(arguments.algorithm, settings, env=arguments.env, **options))
    space = parse_space(run.spec, arguments.space) if arguments.space else default_space(run.spec)
    objective = Objective(run=run, settings=tuple(settings), space=space, seeds=arguments.seeds)
    with contextlib.closing(Env(run.env)) as task:  # what cannot be made, or does not fit, fails here, not in every run
        make_replay(run, task.spaces, transitions)
    engine = flags.engine_of(arguments)
    if arguments.tuned:
        arguments.say(flags.describe_tuned(run.algorithm, run.spec))
    folder = arguments.out or Path("tune") / run.folder_name(["tuned"] * arguments.tuned).removesuffix("_seed0")
    with claim(folder), stop_on_signal() as stop:
        study = Study(objective, folder, arguments.trials, _print_trial)
        for status in run_jobs(study.jobs(), engine, folder / "logs", lambda: stop.by is not None, study.has_ended):
            study.update(status.failures)
        study.report()
        best, counts = study.best(), study.counts()
    data: dict[str, Any] = {"study": str(folder), **counts, "stopped_by": stop.by, "best": None}
    complete = many(counts["complete"], "trial")
    lines = [f"{complete} complete, {counts['given_up']} pruned, {counts['failed']} failed, in {folder}"]
    if best is not None:
        file = str(folder / "best.json")
        data["best"] = {"trial": best.number, "score": best.score, "set": best.settings, "file": file}
        lines.append(f"  best: {best.score:,.1f} with {' '.join(best.settings)}")
        algorithm = f" {shlex.quote(run.algorithm)}" if ":" in run.algorithm else ""
        env = f" --env {shlex.quote(run.env)}" if ":" in run.env else ""
        lines.append(f"  next: {program_name()} train{algorithm} --config {shlex.quote(file)}{env} --seed 100")
    if stop.by is not None:
        lines.append(f"{stop.by}: saved; the same command continues from there")
        return Answer(data, "\n".join(lines), signal_exit_status(stop.by))
    return Answer(data, "\n".join(lines), 0 if best is not None else EXIT_FAILURE)


def _print_trial(trial: "FinishedTrial") -> None:
    """A line when a trial ends. With --json, standard output is redirected to standard error."""
    result = f"failed: {trial.reason}" if trial.score is None else f"{trial.score:10,.1f}"
    result += " pruned" * (trial.state == "PRUNED")
    print(printable(f"trial {trial.number:>3}  {' '.join(trial.settings)}  {result}"), flush=True)
