"""export a run's policy for other programs, and write a card about it"""

from pathlib import Path
from typing import Any

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder")
    flags.add_env(parser)
    flags.add_best(parser)
    flags.add_path(parser, "--onnx", "FILE", "write an ONNX file, such as policy.onnx")
    flags.add_path(parser, "--numpy", "DIR", "write policy.npz and policy.py, which needs only NumPy")
    flags.add_path(parser, "--c", "FILE", "write a C99 file without dependencies, such as policy.h")
    flags.add_path(
        parser, "--card", "FILE", "write a model card and a film (README.md in RUN)", nargs="?", const=Path()
    )


def answer(arguments: Arguments) -> Answer:
    from mepg.export.card import write_card
    from mepg.export.onnx import require_onnx
    from mepg.storage.folder import Folder

    programs = arguments.onnx or arguments.numpy or arguments.c
    if not (programs or arguments.card):
        raise UsageError("say what to write: --onnx FILE, --numpy DIR, --c FILE or --card")
    files = {"--onnx": (arguments.onnx, ".onnx"), "--c": (arguments.c, ".h"), "--card": (arguments.card, ".md")}
    for flag, (path, suffix) in files.items():
        if path not in (None, Path()) and path.suffix != suffix:  # do not overwrite what may be another kind of file
            raise UsageError(f"{flag} {path}: give a file name that ends in {suffix}")
    if arguments.onnx:
        require_onnx()
    folder = Folder(arguments.run)
    folder.env(arguments.env)
    if arguments.card:
        folder.evaluations(folder.config())  # if they are damaged, say so before anything is written
    data: dict[str, Any] = {"run": str(arguments.run)}
    lines = _write_programs(folder, arguments, data) if programs else []
    if arguments.card:
        path = folder.path / "README.md" if arguments.card == Path() else arguments.card
        written, no_film = write_card(folder, path, arguments.env)
        data["card"] = [str(file) for file in written]
        lines.append(f"  {' and '.join(data['card'])}" + (f"; no film: {no_film}" if no_film else ""))
    return Answer(data, "\n".join(lines))


def _write_programs(folder: Any, arguments: Arguments, data: dict[str, Any]) -> list[str]:
    """The policy for ONNX, NumPy and C; lines about it, and the same in `data`."""
    from mepg.export.files import TOLERANCE, export_c, export_numpy, export_onnx, open_run

    source = open_run(folder, arguments.env, best=arguments.best)
    data |= source.about
    lines = [source.policy.title]
    mixed = getattr(source.policy.config.spec, "precision", "full") != "full"
    of = "the run's networks in full precision" if mixed else "the run"
    if source.rounding > TOLERANCE:
        lines.append(
            f"  the run's own actions differ by {source.rounding:.0e} between one observation alone and a batch: its "
            "observations are too large for float32; --normalize-obs would fix that"
        )
    forms = {"onnx": export_onnx, "numpy": export_numpy, "c": export_c}
    for name, export in forms.items():
        to = getattr(arguments, name)
        if to is None:
            continue
        what = export(source, to)
        data[name] = {**what._asdict(), "files": [str(path) for path in what.files]}
        lines.append(f"  {' and '.join(data[name]['files'])}: {_found(what, of, len(source.obs))}")
    return lines


def _found(what: Any, of: str, observations: int) -> str:
    """What a comparison with the run showed, in words."""
    if what.difference is None:
        return f"not compared with {of}: there is no C compiler here"
    ties = f", {many(what.undecided, 'tie')} between actors aside" if what.undecided else ""
    latency = 1e6 * what.seconds
    return (
        f"within {max(what.difference, 1e-7):.0e} of {of} on {many(observations, 'observation')}{ties}; "
        f"{latency:,.{0 if latency >= 10 else 1}f} microseconds for one"
    )
