"""mepg train | eval | inspect | list | show | params | reproduce | bench | plot | report | export | tune"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shlex
import shutil
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mepg.errors import RunFailure, UsageError, unknown
from mepg.process import Output, lasting_output, of_our_own
from mepg.words import many

if TYPE_CHECKING:
    from rich.console import Console

    from mepg.engine.schedule import Engine, Stock
    from mepg.paper.experiments import Selection
    from mepg.run.config import Config
    from mepg.run.policy import Policy
    from mepg.run.session import Session  # at run time only once the number of threads is known

EXIT_FAILURE, EXIT_USAGE = 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    with of_our_own(), lasting_output() as output, contextlib.ExitStack() as to_the_end:
        try:
            status = _run(argv, output, to_the_end)
        except SystemExit:  # argparse's
            if output.trouble() is None:
                raise
            status = 0
        if trouble := output.trouble():
            print(f"mepg: standard output cannot be written: {trouble.strerror}", file=sys.stderr)
        status = status or (EXIT_FAILURE if trouble else 0)
        if argv is None and signal.getsignal(signal.SIGTERM) is _end_at_once:
            # As a program it ends here. JAX would take most of a second to clean up, and a signal in the midst of
            # that, or whatever goes wrong in there, would be a bad end to a run that is safe.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        return status


def _run(argv: Sequence[str] | None, output: Output, to_the_end: contextlib.ExitStack) -> int:
    """A command; what goes wrong is one line."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    if command in (_train, _reproduce, _tune):  # until there is something to save, and again once it is saved
        _stderr()
        to_the_end.enter_context(_signals_to(_end_at_once))
    try:
        if getattr(arguments, "config", None):
            arguments.parser.set_defaults(
                **_read_settings(arguments.config, arguments.parser, arguments.env, arguments.algorithm)
            )
            arguments = parser.parse_args(argv)  # once more: what the command line says wins
        arguments.output = output
        _trust_algorithms(arguments)
        with output.only_answer() if arguments.json else contextlib.nullcontext():
            return command(arguments)
    except UsageError as error:
        print(f"mepg: {_plain(error)}", file=sys.stderr)
        return EXIT_USAGE
    except RunFailure as failure:
        print(f"mepg: {_plain(failure)}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        print("mepg: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except OSError as error:  # a full disk, a folder that is taken away: the checkpoints before it are whole
        said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error
        print(f"mepg: {_plain(said)}", file=sys.stderr)
        return EXIT_FAILURE
    except MemoryError as error:
        print(f"mepg: there is not enough memory: {error}", file=sys.stderr)
        return EXIT_FAILURE


def _plain(text: object) -> str:
    """Without what could steer a terminal: names and messages may come out of a stranger's file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in str(text))


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"mepg: {message} ({self.prog} --help shows how)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mepg", description="Minimalist ensemble policy gradients: an ensemble for the price of one network."
    )
    from mepg import __version__

    parser.add_argument("--version", action="version", version=f"mepg {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command, parser=sub)
        sub.add_argument("--json", action="store_true", help="print for programs instead of people")
        return sub

    train = add("train", _train, "train an agent, or go on with a run that was interrupted")
    train.add_argument("algorithm", metavar="ALGO", nargs="?", help="a name from `mepg list`, or module:name")
    train.add_argument("--env", metavar="ID", help="a Gymnasium id, or module:id")
    train.add_argument(
        "--config", type=_folder, metavar="FILE", help="settings as JSON, such as those that `tune` found"
    )
    train.add_argument("--steps", type=_count, default=1_000_000, metavar="N", help="environment steps (1000000)")
    train.add_argument("--seed", type=_count, default=0, metavar="S", help="everything random follows from it (0)")
    train.add_argument("--out", type=_folder, metavar="DIR", help="the run's folder (a name of its own under runs/)")
    train.add_argument("--eval-every", type=_count, default=5_000, metavar="N", help="steps (5000)")
    train.add_argument("--eval-episodes", type=_count, default=10, metavar="N", help="episodes of an evaluation (10)")
    train.add_argument("--checkpoint-every", type=_count, default=5_000, metavar="N", help="steps (5000)")
    train.add_argument(
        "--step-timeout", type=float, metavar="SECONDS", help="give up when a reset or step takes longer (never)"
    )
    train.add_argument("--envs", type=_count, default=1, metavar="N", help="environments stepped together (1)")
    train.add_argument(
        "--normalize-obs",
        action="store_true",
        help="observations with running mean 0 and variance 1, saved with the policy",
    )
    train.add_argument(
        "--log",
        type=_names,
        default=("csv", "tensorboard"),
        metavar="LOG,...",
        help="csv, tensorboard, wandb (the first two)",
    )
    train.add_argument("--threads", type=_count, default=1, metavar="N", help="cores to compute on (1)")
    _add_set(train)

    tune = add("tune", _tune, "look for good settings, or go on looking")
    tune.add_argument("algorithm", metavar="ALGO", help="a name from `mepg list`, or module:name")
    tune.add_argument("--env", required=True, metavar="ID", help="a Gymnasium id, or module:id")
    tune.add_argument(
        "--trials", type=_count, default=20, metavar="N", help="in all, those of earlier sittings too (20)"
    )
    tune.add_argument("--seeds", type=_count, default=3, metavar="K", help="runs of each trial (3)")
    tune.add_argument("--steps", type=_count, default=100_000, metavar="N", help="of each run (100000)")
    tune.add_argument("--eval-every", type=_count, default=5_000, metavar="N", help="steps (5000)")
    tune.add_argument("--eval-episodes", type=_count, default=10, metavar="N", help="episodes of an evaluation (10)")
    tune.add_argument("--envs", type=_count, default=1, metavar="N", help="environments stepped together (1)")
    tune.add_argument("--normalize-obs", action="store_true", help="as in train")
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="FIELD=WHERE",
        help="low:high, low:high:log or a,b,c for a field of the spec; can be repeated (a default for each algorithm)",
    )
    tune.add_argument("--out", type=_folder, metavar="DIR", help="the study's folder (a name of its own under tune/)")
    _add_engine(tune)
    _add_set(tune)

    evaluate = add("eval", _eval, "play a run's policy without exploration")
    evaluate.add_argument("run", metavar="RUN", type=Path, help="a run's folder")
    evaluate.add_argument("--episodes", type=_count, default=10, metavar="N", help="how many episodes (10)")
    evaluate.add_argument("--seed", type=_count, default=0, metavar="S", help="which episodes (0)")
    _add_env(evaluate)
    evaluate.add_argument("--video", type=_folder, metavar="FILE", help="film the first episode: .mp4 or .gif")
    evaluate.add_argument("--render", action="store_true", help="watch in a window")

    inspect = add("inspect", _inspect, "compare what a run's critics believe with what really followed")
    inspect.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="runs' folders; several are drawn side by side"
    )
    inspect.add_argument("--episodes", type=_count, default=10, metavar="N", help="how many episodes of each (10)")
    inspect.add_argument("--seed", type=_count, default=0, metavar="S", help="which episodes (0)")
    _add_env(inspect)
    inspect.add_argument(
        "--out", type=_folder, default=Path("inspect.png"), metavar="FILE", help="for several runs: .png (inspect.png)"
    )

    list_ = add("list", _list, "the algorithms and the paper's environments; or the runs in some folders")
    list_.add_argument("runs", metavar="RUNS", nargs="*", type=Path, help="folders of runs, at any depth")
    _add_algorithm(list_)

    show = add("show", _show, "an algorithm's spec, and how it differs from its parent")
    show.add_argument("algorithm", metavar="ALGO")
    _add_set(show)

    params = add("params", _params, "parameter counts, as the paper counts and as they are")
    params.add_argument("--env", metavar="ID", help="one environment instead of the paper's eight")

    reproduce = add("reproduce", _reproduce, "carry out the paper's experiments, or go on with them")
    reproduce.add_argument("experiments", metavar="NAME", nargs="*", help="table1, figure2, ...; all of them if none")
    reproduce.add_argument("--plan", default="desk", metavar="P", help="smoke, desk or paper: how much of it (desk)")
    reproduce.add_argument("--only", type=_names, metavar="ALGO,...", help="only these rows")
    reproduce.add_argument("--envs", type=_names, metavar="ID,...", help="only these environments")
    reproduce.add_argument("--seeds", type=_seeds, metavar="A-B", help="these seeds: 0-2, or 0,3")
    reproduce.add_argument("--steps", type=_count, metavar="N", help="other than the plan's; kept apart from its runs")
    reproduce.add_argument("--results", type=_folder, default=Path("results"), metavar="DIR", help="for runs (results)")
    _add_engine(reproduce)
    reproduce.add_argument("--dry-run", action="store_true", help="only say what there is to do, and how long it takes")

    bench = add("bench", _bench, "measure speed: against the bare multiplications, and against other libraries")
    bench.add_argument("algorithms", metavar="ALGO", nargs="*", help="only the updates of these; all there is if none")
    bench.add_argument("--rounds", type=_count, default=20, metavar="N", help="turns of each; more, less noise (20)")
    bench.add_argument("--against", type=_names, default=(), metavar="LIB,...", help="other libraries: sb3, sbx")
    bench.add_argument("--peers", type=_folder, default=Path(".peers"), metavar="DIR", help="their packages (.peers)")
    bench.add_argument("--out", type=_folder, default=Path("bench"), metavar="DIR", help="for the results (bench)")

    plot = add("plot", _plot, "the learning curves of any runs in one picture")
    plot.add_argument("runs", metavar="RUNS", nargs="+", type=Path, help="folders of runs, at any depth")
    _add_algorithm(plot)
    plot.add_argument(
        "--out", type=_folder, default=Path("curves.png"), metavar="FILE", help=".png or .svg (curves.png)"
    )

    report = add("report", _report, "one page about any runs, with the paper's numbers beside those of its experiments")
    report.add_argument("runs", metavar="RUNS", nargs="*", type=Path, help="folders of runs, at any depth (results)")
    _add_algorithm(report)
    report.add_argument("--out", type=_folder, default=Path("report.html"), metavar="FILE", help="(report.html)")

    export = add("export", _export, "a run's policy for other programs, checked against it, and a card about it")
    export.add_argument("run", metavar="RUN", type=Path, help="a run's folder")
    _add_env(export)
    export.add_argument("--onnx", type=_folder, metavar="FILE", help="an ONNX graph: policy.onnx")
    export.add_argument("--numpy", type=_folder, metavar="DIR", help="policy.npz, and policy.py that needs only NumPy")
    export.add_argument(
        "--card",
        nargs="?",
        type=_folder,
        const=Path(),
        metavar="FILE",
        help="a model card (README.md in RUN), and a film",
    )
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _seeds(text: str) -> tuple[int, ...]:
    """0-2 or 0,3 or both."""
    try:
        ends = [[_count(end) for end in part.split("-")] for part in text.split(",")]
        if any(len(end) > 2 or end[-1] - end[0] > 10_000 for end in ends):
            raise ValueError
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of seeds, such as 0-2 or 0,3") from None
    return tuple(seed for end in ends for seed in range(end[0], end[-1] + 1))


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change a field of the spec, as in dropout.p=0.3, hidden=400,300 or smoothing=none; can be repeated",
    )


def _add_env(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", metavar="ID", help="the run's environment, if its id is module:id and you trust it")
    _add_algorithm(parser)


def _add_algorithm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--algorithm", metavar="ALGO", help="an algorithm of the runs, if it is module:name and you trust it"
    )


def _trust_algorithms(arguments: argparse.Namespace) -> None:
    """Import the modules of those that the user has named."""
    named = [getattr(arguments, "algorithm", None), *getattr(arguments, "algorithms", ())]
    if any(":" in name for name in named if name):
        from mepg.algos import trust

        for name in named:
            trust(name or "")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="these cores, or a Ray cluster")
    parser.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster (one is started if none is given)")
    parser.add_argument("--workers", type=_count, metavar="N", help="runs at once on these cores (one for each)")


def _read_settings(
    path: Path, parser: argparse.ArgumentParser, said_env: str | None, said_algorithm: str | None
) -> dict[str, Any]:
    """A JSON file with the names of train's own flags, as the parser's defaults; `about` is for people."""
    from mepg.algos import find
    from mepg.run.files import Damaged, read_json, trusted

    try:
        data = read_json(path)
    except Damaged as damage:
        raise UsageError(f"--config: {damage}") from None
    if not isinstance(data, dict):
        raise UsageError(f'--config: {path.name} must hold a JSON object, such as {{"algorithm": "me-sac"}}')
    not_settings = {"help", "json", "config", "out"}
    known = {action.dest for action in parser._actions} - not_settings
    for name in data.keys() - known - {"about"}:
        raise unknown(f"setting in {path.name}", name, known)
    kinds = {"set": (list, 'a list, such as ["dropout.p=0.3"]'), "normalize_obs": (bool, "true or false")}
    for name, (kind, what) in kinds.items():
        if name in data and not isinstance(data[name], kind):
            raise UsageError(f"--config: {name} must be {what}, not {data[name]!r}")
    data["set"] = [str(setting) for setting in data.get("set", [])]
    if said_env is None and "env" in data:
        trusted(str(data["env"]), None, path)
    if said_algorithm is None and ":" in str(data.get("algorithm", "")):
        find(str(data["algorithm"]))  # has to be imported already: the file may come from anyone
    # As text, which the parser then reads: whatever the command line refuses, a file cannot bring in either.
    return {name: data[name] if name in kinds else str(data[name]) for name in data.keys() & known}


def _count(text: str) -> int:
    """A whole number; 1_000_000 and 1e6 are welcome."""
    try:
        number = float(text)
        return int(text.replace("_", "")) if text.replace("_", "").lstrip("-").isdecimal() else _whole(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError
    return int(number)


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("a name is needed")
    return Path(text)


def _train(arguments: argparse.Namespace) -> int:
    if arguments.algorithm is None or arguments.env is None:
        arguments.parser.error("the following arguments are required: ALGO, --env; or a --config that names them")
    from mepg.run import machine

    machine.take_over(arguments.threads)
    from mepg.display import Display
    from mepg.run.config import Config
    from mepg.run.session import Session

    config = Config.make(
        arguments.algorithm,
        arguments.set,
        env=arguments.env,
        seed=arguments.seed,
        steps=arguments.steps,
        eval_every=arguments.eval_every,
        eval_episodes=arguments.eval_episodes,
        envs=arguments.envs,
        normalize_obs=arguments.normalize_obs,
        threads=arguments.threads,
    )
    named_after = arguments.set if arguments.config is None else [arguments.config.stem]
    path = arguments.out or Path("runs") / config.folder_name(named_after)
    with Session(config, path, arguments.checkpoint_every, arguments.log, arguments.step_timeout) as session:
        already_finished = session.result is not None

        def stop(number: int, _: types.FrameType | None) -> None:
            _end_at_once(number) if session.stopped_by is not None else session.stop(number)

        with Display(session, quiet=arguments.json) as display, _signals_to(stop):
            for record in session:
                display.show(record)
        if session.result is None:
            return _say_stopped(arguments, session, path)
        if not session.folder.curve_file.exists():
            from mepg.report.curves import draw_learning_curve  # a second, which need not come before the first step

            title = f"{config.algorithm} on {config.env}, seed {config.seed}"
            draw_learning_curve(session.folder.curve_file, title, session.folder.evaluations(config))
    _say(arguments, {"run": str(path), "finished": True, **session.result}, _ending(path, session, already_finished))
    return 0


def _note_first(stopped: list[str]) -> Callable[[int, types.FrameType | None], None]:
    """A handler for those who look at the list now and then; a second signal is not to be waited for."""

    def note(number: int, _: types.FrameType | None) -> None:
        _end_at_once(number) if stopped else stopped.append(signal.Signals(number).name)

    return note


@contextlib.contextmanager
def _signals_to(handler: Callable[[int, types.FrameType | None], None]) -> Iterator[None]:
    """Let Ctrl-C and a scheduler's SIGTERM end a run in good order."""
    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def _end_at_once(number: int, _: types.FrameType | None = None) -> None:
    """Leave without a word from anyone else: files are whole or absent, and an orderly exit may crash in JAX."""
    show_cursor = b"\x1b[?25h\n" if os.isatty(_stderr()) else b""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(_stderr(), show_cursor + b"mepg: interrupted; what the last checkpoint holds is safe\n")
    os._exit(128 + number)


@functools.cache
def _stderr() -> int:
    """A handle of its own: while PyBullet starts, the usual one leads nowhere."""
    try:
        return os.dup(2)
    except OSError:  # there is none, and nobody to read it
        return os.open(os.devnull, os.O_WRONLY)


def _say_stopped(arguments: argparse.Namespace, session: Session, path: Path) -> int:
    step, steps = session.loop.step, session.config.steps
    data = {"run": str(path), "finished": False, "step": step, "stopped_by": session.stopped_by}
    text = f"{session.stopped_by}: saved at step {step:,} of {steps:,}; the same command goes on from there"
    _say(arguments, data, text)
    return 128 + int(signal.Signals[session.stopped_by or "SIGTERM"])


def _ending(path: Path, session: Session, already_finished: bool) -> str:
    result, folder = session.result or {}, session.folder
    best = many(min(5, result["evaluations"]), "best evaluation")
    lines = [
        f"{'Already finished' if already_finished else 'Finished'}: {many(result['steps'], 'step')} "
        f"in {result['seconds'] / 60:.1f} minutes",
        f"  return   {result['final_return']:,.1f} at the end, {result['best_return']:,.1f} at best,",
        f"           {result['mean_of_five_best']:,.1f} over the {best}",
        f"  curve    {folder.curve_file}",
        f"  run      {path}",
        f"  next     {_program()} eval {shlex.quote(str(path))}{_say_modules(session.config)}",
        f"           {_program()} train me-ddpg --env HopperBulletEnv-v0",
    ]
    return "\n".join(lines)


def _program() -> str:
    """What to type to get this program again."""
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m mepg"
    return "mepg" if shutil.which("mepg") else shlex.quote(os.path.relpath(sys.argv[0]))


def _say_modules(config: Config) -> str:
    """A module that a file names is not imported unless the user names it too."""
    env = f" --env {shlex.quote(config.env)}" if ":" in config.env else ""
    return env + (f" --algorithm {shlex.quote(config.algorithm)}" if ":" in config.algorithm else "")


def _eval(arguments: argparse.Namespace) -> int:
    import numpy as np

    from mepg.envs.env import Env
    from mepg.envs.simulators import has_screen
    from mepg.envs.video import Film
    from mepg.run.evaluate import play
    from mepg.run.folder import Folder
    from mepg.run.keys import episode_seed
    from mepg.run.policy import load_policy

    if arguments.episodes < 1:
        raise UsageError(f"episodes must be at least 1, not {arguments.episodes}")
    if arguments.render and arguments.video:
        raise UsageError("--render shows a window and --video films without one: choose one of them")
    if arguments.render and not has_screen():
        raise UsageError("there is no screen to open a window on ($DISPLAY is not set): --video out.mp4 films instead")
    folder = Folder(arguments.run)
    film = contextlib.nullcontext() if arguments.video is None else Film(arguments.video)
    env = Env(folder.env(arguments.env), "human" if arguments.render else "rgb_array" if arguments.video else None)
    policy = load_policy(folder, env)
    if not arguments.json:
        print(_plain(_whose(policy)))
    episodes = []
    for i in range(arguments.episodes):
        with film if i == 0 else contextlib.nullcontext() as filming:
            watch = None if filming is None else lambda to=filming: to.add(env.picture(), env.fps)
            episodes.append(play(policy.act, env, episode_seed(arguments.seed, "eval", i), watch))
        if not arguments.json:
            seen = f"   -> {arguments.video}" if filming is not None else ""
            length = f"length {episodes[-1].length:,}"
            print(f"  episode {i + 1:>3}: return {episodes[-1].total:10,.2f}   {length}{seen}", flush=True)
    totals = [episode.total for episode in episodes]
    data = {
        "run": str(arguments.run),
        "step": policy.step,
        "mean_reward": float(np.mean(totals)),
        "std_reward": float(np.std(totals)),
        "returns": totals,
        "lengths": [episode.length for episode in episodes],
        "video": arguments.video and str(arguments.video),
    }
    env.close()
    _say(arguments, data, f"mean return {data['mean_reward']:,.2f} +- {data['std_reward']:,.2f}")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from mepg.report.inside import MOST, describe, draw_inspections, noise_ratio
    from mepg.run.files import not_writable, write_whole
    from mepg.run.folder import Folder
    from mepg.run.inspection import inspect_run, write_inspection
    from mepg.run.keys import MAX_SEED

    if arguments.episodes < 1:
        raise UsageError(f"episodes must be at least 1, not {arguments.episodes}")
    if not 0 <= arguments.seed <= MAX_SEED:
        raise UsageError(f"seed must be in [0, {MAX_SEED}], not {arguments.seed}")
    if arguments.out.suffix != ".png":
        raise UsageError(f"the picture is a .png, not {arguments.out.name!r}")
    if len(arguments.runs) > MOST:
        raise UsageError(f"at most {many(MOST, 'run')} fit into a picture, not {len(arguments.runs)}")
    folders = [Folder(path) for path in arguments.runs]
    found, written = [], []
    for folder in folders:
        folder.env(arguments.env)  # what is no run is said before anything is played
    for folder in folders:
        found.append(inspect_run(folder, arguments.episodes, arguments.seed, arguments.env))
        try:
            write_inspection(folder, found[-1])
            write_whole(folder.inspection_picture, draw_inspections(found[-1:]))
        except OSError as error:
            raise not_writable(folder.path, error) from None
        written.append(folder.inspection_picture)
        if not arguments.json:
            print(_plain(f"{describe(found[-1])}\n  -> {written[-1]}"), flush=True)
    if len(found) > 1:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.out, draw_inspections(found))
        written.append(arguments.out)
        if not arguments.json:
            print(f"{arguments.out}: {many(len(found), 'run')} side by side")
    if arguments.json:
        runs = [{**one.figures(), "noise_ratio": noise_ratio(one)} for one in found]
        _say(arguments, {"runs": runs, "pictures": [str(path) for path in written]}, "")
    return 0


def _whose(policy: Policy) -> str:
    """What is played or exported, and whether there is more to come."""
    whose = f"{policy.config.algorithm} on {policy.config.env}"
    if policy.step == policy.config.steps:
        return whose
    return f"{whose}; the run is unfinished, this is its policy at step {policy.step:,}"


def _list(arguments: argparse.Namespace) -> int:
    return _list_runs(arguments) if arguments.runs else _list_names(arguments)


def _list_runs(arguments: argparse.Namespace) -> int:
    from mepg.report.runs import collect
    from mepg.run.folder import Folder

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
    lines = [
        "  ".join(
            cell.rjust(w) if 3 <= i <= 5 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += [f"left out: {problem.path} {problem.reason}" for problem in problems]
    left_out = [{"path": str(problem.path), "reason": problem.reason} for problem in problems]
    _say(arguments, {"runs": data, "left_out": left_out}, "\n".join(line.rstrip() for line in lines))
    return 0


def _list_names(arguments: argparse.Namespace) -> int:
    from mepg.algos import algorithms
    from mepg.paper.tasks import PAPER_TASKS

    data = {
        "algorithms": {name: {"summary": a.summary, "parent": a.parent} for name, a in algorithms().items()},
        "environments": {name: {"obs": sizes.obs, "action": sizes.action} for name, sizes in PAPER_TASKS.items()},
    }
    lines = ["Algorithms"]
    for name, algorithm in algorithms().items():
        of = f" ({algorithm.parent})" if algorithm.parent else ""
        lines.append(f"  {name:<15} {algorithm.summary}{of}")
    lines += ["", "Environments of the paper"]
    lines += [
        f"  {name:<37} {many(s.obs, 'observation'):>15}, {many(s.action, 'action')}" for name, s in PAPER_TASKS.items()
    ]
    lines += ["", "Any Gymnasium environment with a flat Box observation and a Box action works: --env Pendulum-v1,",
              "or --env my_package:MyEnv-v0 for one that a package of yours registers."]  # fmt: skip
    _say(arguments, data, "\n".join(lines))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from mepg import algos
    from mepg.core.settings import apply_settings, describe, to_json

    algorithm = algos.find(arguments.algorithm)
    spec = apply_settings(algorithm.spec, arguments.set)
    fields = describe(spec)
    differs: dict[str, list[str]] = {}
    if algorithm.parent is not None:
        theirs = describe(algos.find(algorithm.parent).spec)
        names = [name for name in fields | theirs if fields.get(name, "none") != theirs.get(name, "none")]
        # A mechanism that is off has one line ("dropout"), one that is on has several ("dropout.p").
        differs = {n: [theirs.get(n, "off"), fields.get(n, "off")] for n in names if n in fields or "." in n}
    lines = [f"{arguments.algorithm}: {algorithm.summary}"]
    width = max(map(len, fields))
    lines += [f"  {name:<{width}}  {text}" for name, text in fields.items()]
    if algorithm.parent is not None:
        lines += ["", f"Differs from {algorithm.parent}" + ("" if differs else " in nothing")]
        lines += [f"  {name:<{width}}  {was} -> {now}" for name, (was, now) in differs.items()]
    data = {
        "algorithm": arguments.algorithm,
        "summary": algorithm.summary,
        "parent": algorithm.parent,
        "spec": to_json(spec),
        "differs": differs,
    }
    _say(arguments, data, "\n".join(lines))
    return 0


def _params(arguments: argparse.Namespace) -> int:
    from mepg.algos import algorithms, require_actions
    from mepg.core.arithmetic import ours
    from mepg.envs.env import Env
    from mepg.envs.simulators import full_id
    from mepg.paper.tasks import PAPER_TASKS

    tasks = PAPER_TASKS
    if arguments.env is not None:
        env_id = full_id(arguments.env)
        tasks = {env_id: PAPER_TASKS.get(env_id) or Env(env_id).sizes}
    for name in algorithms():
        for env, sizes in tasks.items():
            require_actions(name, sizes, env)
    counts = {
        name: {env: ours(algorithm.count_parameters)(algorithm.spec, sizes)._asdict() for env, sizes in tasks.items()}
        for name, algorithm in algorithms().items()
    }
    lines = ["Parameters in thousands, target networks included: as the paper counts | as they are", ""]
    headings = [env.replace("BulletEnv-v0", "") for env in tasks]
    headings = [heading.replace("InvertedPendulumSwingup", "Swingup") for heading in headings]
    headings = [heading.replace("InvertedDoublePendulum", "DoublePendulum") for heading in headings]
    lines.append(f"{'':<15}" + "".join(f"{heading:>18}" for heading in headings))
    for name, row in counts.items():
        cells = (f"{c['as_paper'] / 1000:.0f} | {c['as_is'] / 1000:.0f}" for c in row.values())
        lines.append(f"{name:<15}" + "".join(f"{cell:>18}" for cell in cells))
    lines += ["", "The paper counts a Gaussian policy without its log-std outputs (D11)."]
    _say(arguments, counts, "\n".join(lines))
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    from mepg.run import machine

    machine.take_over(1)
    from mepg.display import Board
    from mepg.engine.schedule import carry_out, claim, take_stock
    from mepg.paper.experiments import jobs
    from mepg.report.page import write_report

    selections = _selections(arguments)
    wanted = {job.folder: job for selection in selections for job in jobs(selection, arguments.results)}
    folder = arguments.results / selections[0].folder_name
    stock = take_stock(wanted.values())
    if arguments.dry_run:
        return _say_what_there_is_to_do(arguments, stock)
    engine = _engine(arguments)
    stopped: list[str] = []
    with (
        claim(folder),
        _signals_to(_note_first(stopped)),
        Board(stock.missing, len(stock.finished), quiet=arguments.json) as board,
    ):
        failures = carry_out(stock.missing, engine, folder / "logs", board, lambda: bool(stopped)) + stock.unusable
    done = len(take_stock(wanted.values()).finished)
    data = {
        "runs": len(wanted),
        "finished": done,
        "failed": [{"run": str(f.job.folder), "reason": f.reason, "log": f.log and str(f.log)} for f in failures],
        "stopped_by": stopped[0] if stopped else None,
    }
    lines = [f"{done} of {many(len(wanted), 'run')} finished, in {folder}"]
    lines += [f"  failed: {f.job.folder.name}: {f.reason}" + (f" ({f.log})" if f.log else "") for f in failures]
    if stopped:
        lines.append(f"{stopped[0]}: saved; the same command goes on from there")
    else:
        try:
            names = [selection.name for selection in selections]
            page = write_report([folder], arguments.results / f"{folder.name}.html", names).page
            data["report"] = str(page)
            lines.append(f"  page: {page}")
        except UsageError as error:  # what was done is said all the same
            lines.append(f"  no page: {error}")
    _say(arguments, data, "\n".join(lines))
    return 128 + int(signal.Signals[stopped[0]]) if stopped else EXIT_FAILURE if failures else 0


def _engine(arguments: argparse.Namespace) -> Engine:
    from mepg.engine.local import Local
    from mepg.engine.ray import Ray

    return Local(arguments.workers) if arguments.engine == "local" else Ray(arguments.address)


def _tune(arguments: argparse.Namespace) -> int:
    from mepg.run import machine

    machine.take_over(1)
    from rich.console import Console

    from mepg import algos
    from mepg.core.settings import apply_settings
    from mepg.engine.schedule import carry_out, claim
    from mepg.envs.env import Env
    from mepg.envs.simulators import full_id
    from mepg.tune.space import default_space, parse_space
    from mepg.tune.study import Outcome, Question, Study, require_optuna

    require_optuna()
    if arguments.trials < 1:
        raise UsageError(f"trials must be at least 1, not {arguments.trials}")
    spec = apply_settings(algos.find(arguments.algorithm).spec, arguments.set)
    question = Question(
        algorithm=arguments.algorithm,
        env=full_id(arguments.env),
        space=parse_space(spec, arguments.space) if arguments.space else default_space(spec),
        settings=tuple(arguments.set),
        seeds=arguments.seeds,
        steps=arguments.steps,
        eval_every=min(arguments.eval_every, arguments.steps),
        eval_episodes=arguments.eval_episodes,
        envs=arguments.envs,
        normalize_obs=arguments.normalize_obs,
    )
    Env(question.env).close()  # says now what every run would say
    engine = _engine(arguments)
    folder = arguments.out or Path("tune") / question.config((), 0).folder_name().removesuffix("_seed0")
    console = Console(stderr=arguments.json, highlight=False, soft_wrap=True)

    def say(outcome: Outcome) -> None:
        score = "" if outcome.score is None else f"{outcome.score:10,.1f}"
        end = (
            f"failed: {outcome.reason}" if outcome.score is None else f"{score} given up" if outcome.given_up else score
        )
        console.print(f"trial {outcome.number:>3}  {' '.join(outcome.settings)}  {end}", markup=False)

    stopped: list[str] = []
    with claim(folder), _signals_to(_note_first(stopped)):
        study = Study(question, folder, arguments.trials, say)
        carry_out(study.jobs(), engine, folder / "logs", study, lambda: bool(stopped), study.unwanted)
        study.look()
        best, counts = study.best(), study.counts()
    data: dict[str, Any] = {"study": str(folder), **counts, "stopped_by": stopped[0] if stopped else None, "best": None}
    complete = many(counts["complete"], "trial")
    lines = [f"{complete} complete, {counts['given_up']} given up, {counts['failed']} failed, in {folder}"]
    if best is not None:
        file = str(folder / "best.json")
        data["best"] = {"trial": best.number, "score": best.score, "set": best.settings, "file": file}
        lines.append(f"  best: {best.score:,.1f} with {' '.join(best.settings)}")
        algorithm = f" {shlex.quote(question.algorithm)}" if ":" in question.algorithm else ""
        env = f" --env {shlex.quote(question.env)}" if ":" in question.env else ""
        lines.append(f"  next: {_program()} train{algorithm} --config {shlex.quote(file)}{env} --seed 100")
    if stopped:
        lines.append(f"{stopped[0]}: saved; the same command goes on from there")
    _say(arguments, data, "\n".join(lines))
    return 128 + int(signal.Signals[stopped[0]]) if stopped else 0 if best is not None else EXIT_FAILURE


def _bench(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markdown import Markdown

    from mepg.algos import find
    from mepg.bench.measure import measure, measure_updates
    from mepg.bench.peers import prepare
    from mepg.bench.show import draw, to_markdown, updates_table
    from mepg.envs.env import Env
    from mepg.run.files import write_json, write_whole

    if arguments.rounds < 1:
        raise UsageError("rounds must be at least 1, not 0")
    for name in arguments.algorithms:
        find(name)
    err = Console(stderr=True, highlight=False)
    if arguments.algorithms:
        with _watching(err) as watch:
            updates = measure_updates(arguments.algorithms, arguments.rounds, watch)
        _say(arguments, updates, updates_table(updates))
        return 0
    Env("HopperBulletEnv-v0").close()  # says what is missing, if PyBullet is
    peers = [prepare(name, arguments.peers, err.print) for name in arguments.against]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with _watching(err) as watch:
        results = measure(arguments.rounds, peers, watch)
    results["about"]["peers"] = {peer.name: peer.versions for peer in peers}
    write_json(arguments.out / "bench.json", results)
    text = to_markdown(results)
    write_whole(arguments.out / "bench.md", text.encode())
    draw(results, arguments.out / "bench.png")
    if arguments.json:
        _say(arguments, results, "")
    else:
        Console().print(Markdown(text))
        print(f"-> {arguments.out}/bench.json, bench.md, bench.png")
    return 0


@contextlib.contextmanager
def _watching(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A line that says what is measured, and how far that is; lines where there is no terminal."""
    with console.status("") as status:

        def watch(what: str, turn: int, rounds: int) -> None:
            status.update(f"{what} ({turn} of {rounds})")
            if turn == 0 and not console.is_terminal:
                console.print(what)

        yield watch


def _plot(arguments: argparse.Namespace) -> int:
    from mepg.report.figures import draw_curves
    from mepg.report.page import curves_of
    from mepg.report.runs import collect
    from mepg.run.files import write_whole

    kind = arguments.out.suffix.removeprefix(".")
    if kind not in ("png", "svg"):
        raise UsageError(f"a picture is .png or .svg, not {arguments.out.name!r}")
    runs, problems = collect(arguments.runs)
    curves = curves_of([run for run in runs if len(run.steps)])
    if not curves.panels:
        reason = f"{problems[0].path} {problems[0].reason}" if problems else "no run has been evaluated yet"
        raise UsageError(f"there is nothing to draw: {reason}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(arguments.out, draw_curves(curves)[kind])
    left_out = [f"left out: {problem.path} {problem.reason}" for problem in problems]
    drawn = sum(len(panel.curves) for panel in curves.panels)
    data = {"picture": str(arguments.out), "runs": len(runs), "curves": drawn, "left_out": left_out}
    _say(
        arguments,
        data,
        "\n".join([*left_out, f"{arguments.out}: {many(drawn, 'curve')} from {many(len(runs), 'run')}"]),
    )
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from mepg.report.page import write_report

    report = write_report(arguments.runs or [Path("results")], arguments.out)
    data = {
        "page": str(report.page),
        "files": [str(path) for path in report.files],
        "runs": report.runs,
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in report.problems],
    }
    lines = [f"left out: {problem.path} {problem.reason}" for problem in report.problems]
    lines.append(f"{report.page}: {many(report.runs, 'run')}; tables and figures in {report.page.stem}-files")
    _say(arguments, data, "\n".join(lines))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: for one observation a second thread only waits
    from mepg.export.card import write_card
    from mepg.export.carry import TOLERANCE, Exported, export_numpy, export_onnx, open_run
    from mepg.export.onnx import require_onnx
    from mepg.run.folder import Folder

    if not (arguments.onnx or arguments.numpy or arguments.card):
        raise UsageError("say what to write: --onnx FILE, --numpy DIR or --card")
    for flag, path, suffix in (("--onnx", arguments.onnx, ".onnx"), ("--card", arguments.card, ".md")):
        if path not in (None, Path()) and path.suffix != suffix:  # what else is there may be dear to someone
            raise UsageError(f"{flag} {path}: the name of a file that ends in {suffix}")
    if arguments.onnx:
        require_onnx()
    folder = Folder(arguments.run)
    folder.env(arguments.env)
    if arguments.card:
        folder.evaluations(folder.config())  # what is wrong with them is said before anything is written
    data: dict[str, Any] = {"run": str(arguments.run)}
    lines = []
    if arguments.onnx or arguments.numpy:
        source = open_run(folder, arguments.env)
        data |= source.about
        lines.append(_whose(source.policy))
        mixed = getattr(source.policy.config.spec, "precision", "full") != "full"
        of = "the run's networks in full precision" if mixed else "the run"
        if source.rounding > TOLERANCE:
            lines.append(
                f"  the run's own actions differ by {source.rounding:.0e}, one observation alone or among others: its "
                "observations are too large for float32, and --normalize-obs would mend that"
            )
        exported: dict[str, Exported] = {}
        if arguments.onnx:
            exported["onnx"] = export_onnx(source, arguments.onnx)
        if arguments.numpy:
            exported["numpy"] = export_numpy(source, arguments.numpy)
        for name, what in exported.items():
            data[name] = {**what._asdict(), "files": [str(path) for path in what.files]}
            ties = f", {many(what.undecided, 'tie')} between actors aside" if what.undecided else ""
            lines.append(
                f"  {' and '.join(data[name]['files'])}: within {max(what.difference, 1e-7):.0e} of {of} on "
                f"{many(len(source.obs), 'observation')}{ties}; {1e6 * what.seconds:,.0f} microseconds for one"
            )
    if arguments.card:
        path = folder.path / "README.md" if arguments.card == Path() else arguments.card
        files, no_film = write_card(folder, path, arguments.env)
        data["card"] = [str(file) for file in files]
        lines.append(f"  {' and '.join(data['card'])}" + (f"; no film: {no_film}" if no_film else ""))
    _say(arguments, data, "\n".join(lines))
    return 0


def _selections(arguments: argparse.Namespace) -> list[Selection]:
    """The experiments that were named, narrowed down; of several, those of which something is left."""
    from mepg.paper.experiments import EXPERIMENTS, select

    chosen = {name: getattr(arguments, name) for name in ("only", "envs", "seeds", "steps")}
    found, errors = [], []
    for name in arguments.experiments or EXPERIMENTS:
        try:
            found.append(select(name, arguments.plan, **chosen))
        except UsageError as error:
            errors.append(error)
            if name not in EXPERIMENTS:
                raise
    if not found:
        raise errors[0]
    return found


def _say_what_there_is_to_do(arguments: argparse.Namespace, stock: Stock) -> int:
    """How many runs, how many of them are there, and how long the rest takes here."""
    from rich.console import Console
    from rich.progress import track

    from mepg.engine.local import Local
    from mepg.engine.speed import Speeds

    speeds = Speeds(arguments.results / "speeds.json")
    missing, finished = stock.missing, len(stock.finished)
    runs = finished + len(missing) + len(stock.unusable)
    kinds = {job.config.algorithm: job for job in missing if speeds.of(job) is None}
    console = Console(stderr=True)
    for job in track(list(kinds.values()), "measuring this machine", console=console, transient=True):
        if speeds.of(job) is None:
            speeds.measure(job)
    each = {job: speed.seconds(job.config) for job in missing if (speed := speeds.of(job)) is not None}
    workers = Local(arguments.workers).capacity()
    seconds = sum(each.values()) / workers
    data = {"runs": runs, "finished": finished, "missing": len(missing), "seconds": seconds, "workers": workers}
    lines = [f"{many(runs, 'run')}, {finished} of them finished"]
    if missing:
        lines[0] += f"; the rest takes about {_duration(seconds)} on {many(workers, 'core')}"
    lines += [f"  cannot be used: {failure.job.folder.name}: {failure.reason}" for failure in stock.unusable]
    _say(arguments, {**data, "unusable": [str(failure.job.folder) for failure in stock.unusable]}, "\n".join(lines))
    return 0


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return many(round(seconds), "second")


def _say(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    print(json.dumps(data) if arguments.json else _plain(text), file=arguments.output.answer)
