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
    flags.add_path(parser, "--onnx", "FILE", "an ONNX graph: policy.onnx")
    flags.add_path(parser, "--numpy", "DIR", "policy.npz, and policy.py that needs only NumPy")
    flags.add_path(parser, "--card", "FILE", "a model card (README.md in RUN), and a film", nargs="?", const=Path())


def answer(arguments: Arguments) -> Answer:
    from mepg.export.card import write_card
    from mepg.export.onnx import require_onnx
    from mepg.run.folder import Folder

    if not (arguments.onnx or arguments.numpy or arguments.card):
        raise UsageError("say what to write: --onnx FILE, --numpy DIR or --card")
    for flag, path, suffix in (("--onnx", arguments.onnx, ".onnx"), ("--card", arguments.card, ".md")):
        if path not in (None, Path()) and path.suffix != suffix:  # do not overwrite what may be another kind of file
            raise UsageError(f"{flag} {path}: give a file name that ends in {suffix}")
    if arguments.onnx:
        require_onnx()
    folder = Folder(arguments.run)
    folder.env(arguments.env)
    if arguments.card:
        folder.evaluations(folder.config())  # if they are damaged, say so before anything is written
    data: dict[str, Any] = {"run": str(arguments.run)}
    lines = _write_programs(folder, arguments, data) if arguments.onnx or arguments.numpy else []
    if arguments.card:
        path = folder.path / "README.md" if arguments.card == Path() else arguments.card
        files, no_film = write_card(folder, path, arguments.env)
        data["card"] = [str(file) for file in files]
        lines.append(f"  {' and '.join(data['card'])}" + (f"; no film: {no_film}" if no_film else ""))
    return Answer(data, "\n".join(lines))


def _write_programs(folder: Any, arguments: Arguments, data: dict[str, Any]) -> list[str]:
    """The policy for ONNX and NumPy; lines about it, and the same in `data`."""
    from mepg.export.files import TOLERANCE, export_numpy, export_onnx, open_run

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
    for name, export, to in (("onnx", export_onnx, arguments.onnx), ("numpy", export_numpy, arguments.numpy)):
        if to is None:
            continue
        what = export(source, to)
        data[name] = {**what._asdict(), "files": [str(path) for path in what.files]}
        ties = f", {many(what.undecided, 'tie')} between actors aside" if what.undecided else ""
        lines.append(
            f"  {' and '.join(data[name]['files'])}: within {max(what.difference, 1e-7):.0e} of {of} on "
            f"{many(len(source.obs), 'observation')}{ties}; {1e6 * what.seconds:,.0f} microseconds for one"
        )
    return lines
