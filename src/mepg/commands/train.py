"""train an agent, or resume a run that was interrupted"""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.process import program_name
from mepg.signals import signal_exit_status, stop_on_signal
from mepg.training.config import Config, SessionOptions
from mepg.words import duration, many

if TYPE_CHECKING:
    from mepg.run.session import Session
    from mepg.storage.folder import Folder

COMPUTES, SAVES = True, True


def add_arguments(parser: Parser) -> None:
    words = "a name from `mepg list`, or module:name (the one that `mepg list` recommends, with its settings)"
    parser.add_argument("algorithm", metavar="ALGO", nargs="?", help=words)
    parser.add_argument("--env", metavar="ID", help="a Gymnasium environment id, or module:id")
    flags.add_path(parser, "--config", "FILE", "settings from a JSON file, such as `mepg tune` writes")
    flags.add_path(parser, "--out", "DIR", "the run's folder (runs/NAME, named after the settings)")
    flags.add_options(parser, Config)
    flags.add_options(parser, SessionOptions)
    flags.add_tuned(parser)
    flags.add_set(parser)


def answer(arguments: Arguments) -> Answer:
    if arguments.env is None:
        arguments.parser.error("the following arguments are required: --env, or a --config that sets it")
    from mepg.display import Display, preparing
    from mepg.run.session import Session
    from mepg.storage.data import with_data
    from mepg.storage.files import path_exists
    from mepg.storage.folder import Folder

    options = SessionOptions(**flags.options_from(arguments, SessionOptions))
    if arguments.algorithm is None:
        _recommend(arguments, options.step_timeout)
    settings = flags.spec_settings(arguments)
    config = Config.make(arguments.algorithm, settings, env=arguments.env, **flags.options_from(arguments, Config))
    named_after = arguments.set if arguments.config is None else [arguments.config.stem]
    if arguments.tuned:
        named_after = ["tuned", *named_after]
        arguments.say(flags.describe_tuned(config.algorithm, config.spec))
    path = arguments.out or Path("runs") / config.folder_name(named_after)
    folder = Folder(path)
    config, data = with_data(config)
    result, title = folder.summary_if_finished(config), "Already finished"
    if result is None:
        with preparing(quiet=arguments.json):
            session = Session(config, path, options, data)
        with session:
            with Display(session, quiet=arguments.json) as display, stop_on_signal(session.stop):
                for record in session:
                    display.show(record)
            if session.result is None:
                return _stopped(session)
        result, title = session.result, "Finished"
    if not path_exists(folder.curve_file):
        from mepg.report.figures import draw_learning_curve  # a slow import: not before the first step

        run = f"{config.algorithm} on {config.env}, seed {config.seed}"
        draw_learning_curve(folder.curve_file, run, folder.evaluations(folder.config()))
    found = {"run": str(path), "finished": True, **result, "replay_bytes": folder.replay_bytes()}
    return Answer(found, _summary(title, folder, config, result))


def _recommend(arguments: Arguments, step_timeout: float | None) -> None:
    """Fill in the algorithm to start with in this environment, whose first reset may hang as any other."""
    from mepg.algos import RECOMMENDED
    from mepg.envs.env import Env
    from mepg.envs.watchdog import Watchdog

    with contextlib.ExitStack() as stack:
        watchdog = None
        if step_timeout is not None:
            watchdog = stack.enter_context(contextlib.closing(Watchdog(step_timeout, arguments.env)))
        env = stack.enter_context(contextlib.closing(Env(arguments.env, watchdog=watchdog)))
        choice = RECOMMENDED[env.sizes.action_kind]
    arguments.algorithm = choice.algorithm
    arguments.tuned |= choice.tuned
    arguments.normalize_obs |= choice.normalize_obs


def _stopped(session: "Session") -> Answer:
    step, by = session.saved_at, session.stopped_by or "SIGTERM"
    data = {"run": str(session.folder.path), "finished": False, "step": step, "stopped_by": by}
    text = f"{by}: saved at step {step:,} of {session.config.steps:,}; the same command continues from there"
    return Answer(data, text, signal_exit_status(by))


def _summary(title: str, folder: "Folder", config: Config, result: dict[str, Any]) -> str:
    from mepg.envs.simulators import first_task

    best = many(min(5, result["evaluations"]), "best evaluation")
    # A module that a file names is not imported unless the user names it too.
    env = f" --env {shlex.quote(config.env)}" if ":" in config.env else ""
    algorithm = f" --algorithm {shlex.quote(config.algorithm)}" if ":" in config.algorithm else ""
    return "\n".join(
        [
            f"{title}: {many(result['steps'], 'step')} in {duration(result['seconds'])}",
            f"  return   {result['final_return']:,.1f} at the end, {result['best_return']:,.1f} at best,",
            f"           {result['mean_of_five_best']:,.1f} over the {best}",
            f"  curve    {folder.curve_file}",
            f"  run      {folder.path}",
            *_replay_size(folder),
            f"  next     {program_name()} eval {shlex.quote(str(folder.path))}{env}{algorithm}",
            f"           {program_name()} train me-ddpg --env {first_task()}",
        ]
    )


def _replay_size(folder: "Folder") -> list[str]:
    if not (size := folder.replay_bytes()):
        return []
    megabytes = f"{size / 1e6:,.1f} MB"
    return [f"  replay   {folder.replay_folder}, {megabytes}: the same command with more --steps makes this run longer"]
