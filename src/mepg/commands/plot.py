"""plot the learning curves of runs"""

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.words import many


def add_arguments(parser: Parser) -> None:
    flags.add_runs(parser, "+")
    flags.add_path(parser, "--out", "FILE", "the plot, a .png or .svg file", "curves.png")


def answer(arguments: Arguments) -> Answer:
    from mepg.report.figures import draw_curves, variant_curves
    from mepg.report.runs import collect
    from mepg.storage.files import write_atomic

    kind = arguments.out.suffix.removeprefix(".")
    if kind not in ("png", "svg"):
        raise UsageError(f"--out must be a .png or .svg file, not {arguments.out.name!r}")
    runs, problems = collect(arguments.runs)
    curves = variant_curves([run for run in runs if len(run.steps)])
    if not curves.panels:
        reason = f"{problems[0].path} {problems[0].reason}" if problems else "no run has been evaluated yet"
        raise UsageError(f"there is nothing to plot: {reason}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(arguments.out, draw_curves(curves)[kind])
    left_out = [f"left out: {problem.path} {problem.reason}" for problem in problems]
    drawn = sum(map(len, curves.panels.values()))
    data = {"picture": str(arguments.out), "runs": len(runs), "curves": drawn, "left_out": left_out}
    summary = f"{arguments.out}: {many(drawn, 'curve')} from {many(len(runs), 'run')}"
    return Answer(data, "\n".join([*left_out, summary]))
