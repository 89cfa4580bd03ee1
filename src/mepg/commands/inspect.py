"""compare what a run's critics believe with what really followed"""

from pathlib import Path

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="runs' folders; several are also drawn side by side"
    )
    flags.add_episodes(parser)
    flags.add_path(parser, "--out", "FILE", "the picture of several runs, a .png", "inspect.png")


def answer(arguments: Arguments) -> Answer:
    from mepg.report.inspection import MOST, draw_inspections, in_words
    from mepg.run.inspection import inspect_run, write_inspection
    from mepg.storage.files import not_writable, write_whole
    from mepg.storage.folder import Folder

    flags.require_episodes(arguments)
    if arguments.out.suffix != ".png":
        raise UsageError(f"the picture is a .png, not {arguments.out.name!r}")
    if len(arguments.runs) > MOST:
        raise UsageError(f"at most {many(MOST, 'run')} fit into a picture, not {len(arguments.runs)}")
    folders = [Folder(path) for path in arguments.runs]
    found, written, text = [], [], ""
    for folder in folders:
        folder.env(arguments.env)  # refuse what is not a run before anything is played
    for folder in folders:
        found.append(inspect_run(folder, arguments.episodes, arguments.seed, arguments.env))
        try:
            write_inspection(folder, found[-1])
            write_whole(folder.inspection_picture, draw_inspections(found[-1:]))
        except OSError as error:
            raise not_writable(folder.path, error) from None
        written.append(folder.inspection_picture)
        arguments.say(f"{in_words(found[-1])}\n  -> {written[-1]}")
    if len(found) > 1:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.out, draw_inspections(found))
        written.append(arguments.out)
        text = f"{arguments.out}: {many(len(found), 'run')} side by side"
    return Answer({"runs": [one.figures() for one in found], "pictures": [str(path) for path in written]}, text)
