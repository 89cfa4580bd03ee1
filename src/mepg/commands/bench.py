"""measure training speed, relative to bare matrix products and to other libraries"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser

if TYPE_CHECKING:
    from rich.console import Console


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "algorithms", metavar="ALGO", nargs="*", help="measure only the updates of these algorithms (everything)"
    )
    flags.add_count(parser, "--rounds", 20, "rounds of measurements; more rounds give less noise")
    parser.add_argument(
        "--against",
        type=flags.names,
        default=(),
        metavar="LIB,...",
        help="libraries to compare with: sb3, sbx, rltools",
    )
    flags.add_path(parser, "--peers", "DIR", "folder in which these libraries are installed", ".peers")
    flags.add_path(parser, "--out", "DIR", "folder for the results", "bench")


def answer(arguments: Arguments) -> Answer:
    from rich.console import Console
    from rich.markdown import Markdown

    from mepg.algos import find
    from mepg.bench.measure import measure, measure_updates
    from mepg.bench.peers import prepare
    from mepg.bench.show import draw, to_markdown, updates_table
    from mepg.envs.env import Env
    from mepg.storage.files import write_json, write_whole

    flags.check_bound("rounds", arguments.rounds)
    for name in arguments.algorithms:
        find(name)
    err = Console(stderr=True, highlight=False)
    if arguments.algorithms:
        with _progress(err) as watch:
            updates = measure_updates(arguments.algorithms, arguments.rounds, watch)
        return Answer(updates, updates_table(updates))
    Env("HopperBulletEnv-v0").close()  # if PyBullet is missing, the error says how to install it
    peers = [prepare(name, arguments.peers, err.print) for name in arguments.against]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with _progress(err) as watch:
        results = measure(arguments.rounds, peers, watch)
    results["about"]["peers"] = {peer.name: peer.versions for peer in peers}
    write_json(arguments.out / "bench.json", results)
    text = to_markdown(results)
    write_whole(arguments.out / "bench.md", text.encode())
    draw(results, arguments.out / "bench.png")
    if not arguments.json:
        Console().print(Markdown(text))
    return Answer(results, f"-> {arguments.out}/bench.json, bench.md, bench.png")


@contextlib.contextmanager
def _progress(console: "Console") -> Iterator[Callable[[str, int, int], None]]:
    """Show what is measured: one line that changes, or a line for each measurement where there is no terminal."""
    with console.status("") as status:

        def watch(measurement: str, turn: int, rounds: int) -> None:
            status.update(f"{measurement} ({turn} of {rounds})")
            if turn == 0 and not console.is_terminal:
                console.print(measurement)

        yield watch
