"""export a run's policy to ONNX, NumPy or C, or write a model card"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many

if TYPE_CHECKING:
    from mepg.export.convert import Exported
    from mepg.storage.folder import Folder

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    flags.add_env(parser)
    flags.add_best(parser)
    flags.add_path(parser, "--onnx", "FILE", "write an ONNX file, such as policy.onnx")
    flags.add_path(parser, "--numpy", "DIR", "write policy.npz and policy.py, which need only NumPy")
    flags.add_path(parser, "--c", "FILE", "write a C99 header without dependencies, such as policy.h")
    flags.add_path(
        parser, "--card", "FILE", "write a model card and a video (README.md in RUN)", nargs="?", const=Path()
    )


def answer(arguments: Arguments) -> Answer:
    from mepg.export.card import write_card
    from mepg.export.onnx import require_onnx
    from mepg.storage.folder import Folder

    formats = arguments.onnx or arguments.numpy or arguments.c
    if not (formats or arguments.card):
        raise UsageError("nothing to write: give --onnx FILE, --numpy DIR, --c FILE or --card")
    files = {"--onnx": (arguments.onnx, ".onnx"), "--c": (arguments.c, ".h"), "--card": (arguments.card, ".md")}
    for flag, (path, suffix) in files.items():
        if path not in (None, Path()) and path.suffix != suffix:  # do not overwrite another kind of file by mistake
            raise UsageError(f"{flag} {path}: give a file name that ends in {suffix}")
    if arguments.onnx:
        require_onnx()
    folder = Folder(arguments.run)
    folder.env(arguments.env)
    if arguments.card:
        folder.evaluations(folder.config())  # if they are damaged, fail before anything is written
    data: dict[str, Any] = {"run": str(arguments.run)}
    lines = _export(folder, arguments, data) if formats else []
    if arguments.card:
        path = folder.path / "README.md" if arguments.card == Path() else arguments.card
        written, problem = write_card(folder, path, arguments.env)
        data["card"] = [str(file) for file in written]
        lines.append(f"  {' and '.join(data['card'])}" + (f"; no video: {problem}" if problem else ""))
    return Answer(data, "\n".join(lines))


def _export(folder: "Folder", arguments: Arguments, data: dict[str, Any]) -> list[str]:
    """Write the requested formats. Returns lines about them, and adds the same to `data`."""
    from mepg.algos import is_mixed
    from mepg.export.convert import TOLERANCE, export_c, export_numpy, export_onnx, open_run

    source = open_run(folder, arguments.env, best=arguments.best)
    data |= source.about
    lines = [source.policy.title]
    reference = "the run's networks in full precision" if is_mixed(source.policy.config.spec) else "the run"
    if source.rounding > TOLERANCE:
        lines.append(
            f"  the run's own actions differ by {source.rounding:.0e} between a single observation and a batch: its "
            "observations are too large for float32; training with --normalize-obs would fix that"
        )
    for name, export in {"onnx": export_onnx, "numpy": export_numpy, "c": export_c}.items():
        path = getattr(arguments, name)
        if path is None:
            continue
        exported = export(source, path)
        data[name] = {**exported._asdict(), "files": [str(file) for file in exported.files]}
        lines.append(f"  {' and '.join(data[name]['files'])}: {_comparison(exported, reference, len(source.obs))}")
    return lines


def _comparison(exported: "Exported", reference: str, observations: int) -> str:
    """The result of the comparison with the run, as text."""
    if exported.difference is None or exported.seconds is None:
        return f"not compared with {reference}: there is no C compiler here"
    ties = f", except for {many(exported.undecided, 'tie')} between actors" if exported.undecided else ""
    latency = 1e6 * exported.seconds
    return (
        f"within {max(exported.difference, 1e-7):.0e} of {reference} on {many(observations, 'observation')}{ties}; "
        f"{latency:,.{0 if latency >= 10 else 1}f} microseconds for one"
    )
