"""write an HTML report about runs, with the paper's numbers next to its experiments"""

from pathlib import Path

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.words import many

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    flags.add_runs(parser, "*", "folders with runs, at any depth (results)")
    flags.add_path(parser, "--out", "FILE", "the report", "report.html")
    flags.add_path(
        parser, "--long", "FILE.csv", "also write a CSV file with a line for each evaluation, as SimBa and DR.Q do"
    )
    words = "plot other results, in that format, next to the runs; can be repeated"
    flags.add_path(parser, "--baseline", "FILE.csv", words, action="append")


def answer(arguments: Arguments) -> Answer:
    from mepg.paper.report import write_report

    baselines, long = arguments.baseline or [], arguments.long
    report = write_report(arguments.runs or [Path("results")], arguments.out, long=long, baselines=baselines)
    data = {
        "page": str(report.page),
        "files": [str(path) for path in report.files],
        "long": long and str(long),
        "runs": report.runs,
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in report.problems],
    }
    lines = [f"left out: {problem.path} {problem.reason}" for problem in report.problems]
    lines.append(f"{report.page}: {many(report.runs, 'run')}; tables and figures in {report.page.stem}-files")
    lines += [f"{long}: the same runs, a line for each evaluation"] if long else []
    return Answer(data, "\n".join(lines))
