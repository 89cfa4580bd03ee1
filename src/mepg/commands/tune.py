"""search for good settings, or continue a search"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.process import EXIT_FAILURE, plain, program
from mepg.signals import status_of, stopping
from mepg.training.config import Config, settings_of
from mepg.words import many

if TYPE_CHECKING:
    from mepg.tune.study import Outcome

COMPUTES, SAVES = True, True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("algorithm", metavar="ALGO", help="a name from `mepg list`, or module:name")
    parser.add_argument("--env", required=True, metavar="ID", help="a Gymnasium id, or module:id")
    flags.add_count(parser, "--trials", 20, "trials in all, those of earlier starts included")
    flags.add_count(parser, "--seeds", 3, "seeds of each trial, one run each")
    # A trial's seeds are counted from 0, and each of its runs has a core to itself.
    flags.add_settings(parser, Config, leave_out=("seed", "threads"), steps=100_000)
    where = (
        "low:high, low:high:log or a,b,c for a field of the spec; can be repeated (the fields that docs/tune.md lists)"
    )
    parser.add_argument("--space", action="append", default=[], metavar="FIELD=WHERE", help=where)
    flags.add_path(
        parser, "--out", "DIR", "the study's folder (one under tune/, named after algorithm and environment)"
    )
    flags.add_engine(parser)
    flags.add_set(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg.envs.env import Env
    from mepg.scheduler.schedule import carry_out, claim
    from mepg.tune.space import default_space, parse_space
    from mepg.tune.study import Question, Study, require_optuna

    require_optuna()
    flags.require("trials", arguments.trials)
    said = flags.said(arguments, Config)
    settings_of(Config)["eval_every"].check(said["eval_every"])
    said["eval_every"] = min(said["eval_every"], said["steps"])
    run = Config.make(arguments.algorithm, arguments.set, env=arguments.env, **said)
    space = parse_space(run.spec, arguments.space) if arguments.space else default_space(run.spec)
    question = Question(run=run, settings=tuple(arguments.set), space=space, seeds=arguments.seeds)
    Env(run.env).close()  # if it cannot be made, say so once, not in every run
    engine = flags.engine_of(arguments)
    folder = arguments.out or Path("tune") / run.folder_name().removesuffix("_seed0")
    with claim(folder), stopping() as stop:
        study = Study(question, folder, arguments.trials, _say)
        carry_out(study.jobs(), engine, folder / "logs", study, lambda: stop.by is not None, study.unwanted)
        study.look()
        best, counts = study.best(), study.counts()
    data: dict[str, Any] = {"study": str(folder), **counts, "stopped_by": stop.by, "best": None}
    complete = many(counts["complete"], "trial")
    lines = [f"{complete} complete, {counts['given_up']} given up, {counts['failed']} failed, in {folder}"]
    if best is not None:
        file = str(folder / "best.json")
        data["best"] = {"trial": best.number, "score": best.score, "set": best.settings, "file": file}
        lines.append(f"  best: {best.score:,.1f} with {' '.join(best.settings)}")
        algorithm = f" {shlex.quote(run.algorithm)}" if ":" in run.algorithm else ""
        env = f" --env {shlex.quote(run.env)}" if ":" in run.env else ""
        lines.append(f"  next: {program()} train{algorithm} --config {shlex.quote(file)}{env} --seed 100")
    if stop.by is not None:
        lines.append(f"{stop.by}: saved; the same command continues from there")
        return Answer(data, "\n".join(lines), status_of(stop.by))
    return Answer(data, "\n".join(lines), 0 if best is not None else EXIT_FAILURE)


def _say(outcome: "Outcome") -> None:
    """What came of a trial, as soon as it is known; on standard error where the answer is for programs."""
    end = f"failed: {outcome.reason}" if outcome.score is None else f"{outcome.score:10,.1f}"
    end += " given up" * outcome.given_up
    print(plain(f"trial {outcome.number:>3}  {' '.join(outcome.settings)}  {end}"), flush=True)
