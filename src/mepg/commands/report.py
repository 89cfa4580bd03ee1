"""make one page about any runs, with the paper's numbers beside those of its experiments"""

from pathlib import Path

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.words import many

COMPUTES = True


def add_arguments(parser: Parser) -> None:
    flags.add_runs(parser, "*", "folders of runs, at any depth (results)")
    flags.add_path(parser, "--out", "FILE", "the page", "report.html")


def answer(arguments: Arguments) -> Answer:
    from mepg.paper.report import write_report

    report = write_report(arguments.runs or [Path("results")], arguments.out)
    data = {
        "page": str(report.page),
        "files": [str(path) for path in report.files],
        "runs": report.runs,
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in report.problems],
    }
    lines = [f"left out: {problem.path} {problem.reason}" for problem in report.problems]
    lines.append(f"{report.page}: {many(report.runs, 'run')}; tables and figures in {report.page.stem}-files")
    return Answer(data, "\n".join(lines))
