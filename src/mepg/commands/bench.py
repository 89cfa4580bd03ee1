"""measure training speed, relative to bare matrix products and to other libraries"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.process import EXIT_FAILURE
from mepg.training.config import SEED

if TYPE_CHECKING:
    from rich.console import Console

    from mepg.bench.race import Evaluation, Heat

ROUNDS = 20


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "algorithms",
        metavar="ALGO",
        nargs="*",
        help="measure only the updates of these algorithms, or race only these contestants (everything)",
    )
    flags.add_count(parser, "--rounds", None, f"rounds of measurements; more rounds give less noise ({ROUNDS})")
    parser.add_argument(
        "--against",
        type=flags.names,
        default=(),
        metavar="LIB,...",
        help="libraries to compare with: sb3, sbx, rltools",
    )
    flags.add_path(parser, "--peers", "DIR", "folder in which these libraries are installed", ".peers")
    parser.add_argument(
        "--race",
        action="store_true",
        help="measure core-minutes until tasks are solved; finished heats are not run again",
    )
    parser.add_argument("--envs", type=flags.names, metavar="ID,...", help="only these tasks of the race")
    parser.add_argument("--seeds", type=flags.seeds, metavar="A-B", help="only these seeds of the race: 0-2, or 0,3")
    flags.add_path(parser, "--out", "DIR", "folder for the results (bench, or results/race)")


def answer(arguments: Arguments) -> Answer:
    _refuse_what_has_no_effect(arguments)
    if arguments.race:
        return _race(arguments)
    from rich.console import Console
    from rich.markdown import Markdown

    from mepg.algos import find
    from mepg.bench.measure import Benchmark
    from mepg.bench.peers import prepare
    from mepg.bench.show import draw, to_markdown, updates_table
    from mepg.envs.env import Env
    from mepg.storage.files import write_atomic, write_json

    rounds = ROUNDS if arguments.rounds is None else arguments.rounds
    flags.check_bound("rounds", rounds)
    for name in arguments.algorithms:
        find(name)
    err = Console(stderr=True, highlight=False)
    if arguments.algorithms:
        with _progress(err) as show:
            updates = Benchmark(rounds, (), _turns(show)).updates_of(arguments.algorithms)
        return Answer(updates, updates_table(updates))
    Env("HopperBulletEnv-v0").close()  # if PyBullet is missing, the error says how to install it
    peers = [prepare(name, arguments.peers, err.print) for name in arguments.against]
    out = arguments.out or Path("bench")
    out.mkdir(parents=True, exist_ok=True)
    with _progress(err) as show:
        results = Benchmark(rounds, peers, _turns(show)).results()
    results["about"]["peers"] = {peer.name: peer.versions for peer in peers}
    write_json(out / "bench.json", results)
    text = to_markdown(results)
    write_atomic(out / "bench.md", text.encode())
    draw(results, out / "bench.png")
    if not arguments.json:
        Console().print(Markdown(text))
    return Answer(results, f"-> {out}/bench.json, bench.md, bench.png")


def _refuse_what_has_no_effect(arguments: Arguments) -> None:
    if arguments.race:
        names, hint = ["rounds"], "a race has none"
    elif arguments.algorithms:
        names, hint = ["against", "out", "envs", "seeds"], "the updates of single algorithms have none; add --race"
    else:
        names, hint = ["envs", "seeds"], "only a race has them: add --race"
    for name in names:
        if getattr(arguments, name) not in (None, ()):
            raise UsageError(f"--{name} would have no effect: {hint}")


@contextlib.contextmanager
def _progress(console: "Console") -> Iterator[Callable[[str, str], None]]:
    """Show what is measured, and how far it is: a line that changes, or where there is no terminal a line for each."""
    shown = set()
    with console.status("") as status:

        def show(measurement: str, progress: str) -> None:
            status.update(measurement + progress)
            if measurement not in shown and not console.is_terminal:
                console.print(measurement)
            shown.add(measurement)

        yield show


def _turns(show: Callable[[str, str], None]) -> Callable[[str, int, int], None]:
    """Show which turn of how many rounds a measurement is at."""
    return lambda measurement, turn, rounds: show(measurement, f" ({turn} of {rounds})")


def _race(arguments: Arguments) -> Answer:
    """Run the heats that are missing, then show all that are done, whether or not this command asked for them."""
    from rich.console import Console

    from mepg.bench.contestants import TASKS
    from mepg.bench.peers import is_installed, prepare, require_known
    from mepg.bench.race import SEEDS, choose, read_results, run, solved_after
    from mepg.bench.race_show import draw, to_markdown
    from mepg.scheduler.schedule import claim
    from mepg.storage.files import write_atomic

    out = arguments.out or Path("results", "race")
    for seed in arguments.seeds or ():
        flags.check_bound("seed", seed, SEED)
    wanted = choose(arguments.algorithms, arguments.envs, arguments.seeds)
    require_known(arguments.against)
    err = Console(stderr=True, highlight=False)
    libraries = {heat.library for heat in wanted if heat.library}
    ready = {name for name in libraries if name in arguments.against or is_installed(name, arguments.peers)}
    peers = {name: prepare(name, arguments.peers, err.print) for name in sorted(ready)}
    with claim(out):
        done, problems = read_results(out, wanted)
        missing = [heat for heat in wanted if heat not in done and heat not in problems]
        heats = [heat for heat in missing if not heat.library or heat.library in peers]
        with _progress(err) as show:

            def watch(heat: "Heat", evaluations: "Sequence[Evaluation]") -> None:
                at = "".join(f": {e.mean_return:,.0f} at step {e.step:,}, {e.core_seconds / 60:.1f} core-minutes"
                             for e in evaluations[-1:])  # fmt: skip
                show(f"{heats.index(heat) + 1} of {len(heats)}: {heat}", at)

            _, failures = run(heats, out, peers, watch)
        everything = {*wanted, *choose((), None, {*SEEDS, *(arguments.seeds or ())})}
        results, _ = read_results(out, everything)
        lines = [*problems.values(), *failures.values()]
        absent = sorted({heat.library for heat in missing} - {"", *peers})
        lines += [f"{name} is not installed, and was left out: add --against {name}" for name in absent]
        if results:
            text = to_markdown(results)
            write_atomic(out / "race.md", text.encode() + b"\n")
            for kind, picture in draw(results).items():
                write_atomic(out / f"race.{kind}", picture)
            lines = [text, "", *lines, f"-> {out}: {len(results)} heats; race.md, race.png, race.svg"]
    data = {
        "heats": [
            {**heat._asdict(), "core_seconds": solved_after(evaluations, TASKS[heat.task]), "evaluations": evaluations}
            for heat, evaluations in sorted(results.items())
        ],
        "failed": [*problems.values(), *failures.values()],
        "not_installed": absent,
    }
    return Answer(data, "\n".join(lines), EXIT_FAILURE if problems or failures else 0)
