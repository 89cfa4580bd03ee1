"""compare the Q estimates of a run's critics with the returns that followed"""

from pathlib import Path

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="folders of runs; several are also plotted side by side"
    )
    flags.add_episodes(parser)
    flags.add_path(parser, "--out", "FILE", "plot of several runs, a .png file", "inspect.png")


def answer(arguments: Arguments) -> Answer:
    from mepg.report.inspection import MAX_RUNS, describe, draw_inspections
    from mepg.run.inspection import inspect_run, write_inspection
    from mepg.storage.files import not_writable, write_atomic
    from mepg.storage.folder import Folder

    flags.check_episodes(arguments)
    if arguments.out.suffix != ".png":
        raise UsageError(f"--out must be a .png file, not {arguments.out.name!r}")
    if len(arguments.runs) > MAX_RUNS:
        raise UsageError(f"at most {many(MAX_RUNS, 'run')} can be plotted, not {len(arguments.runs)}")
    folders = [Folder(path) for path in arguments.runs]
    found, written, text = [], [], ""
    for folder in folders:
        folder.env(arguments.env)  # refuse a folder that is not a run before anything is computed
    for folder in folders:
        found.append(inspect_run(folder, arguments.episodes, arguments.seed, arguments.env))
        try:
            write_inspection(folder, found[-1])
            write_atomic(folder.inspection_picture, draw_inspections(found[-1:]))
        except OSError as error:
            raise not_writable(folder.path, error) from None
        written.append(folder.inspection_picture)
        arguments.say(f"{describe(found[-1])}\n  -> {written[-1]}")
    if len(found) > 1:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(arguments.out, draw_inspections(found))
        written.append(arguments.out)
        text = f"{arguments.out}: {many(len(found), 'run')} side by side"
    return Answer({"runs": [one.figures() for one in found], "pictures": [str(path) for path in written]}, text)
