"""repeat the beginning of published runs, and compare every number and the policy"""

from pathlib import Path
from typing import TYPE_CHECKING

from mepg import flags
from mepg.commands import Answer, Arguments, Parser
from mepg.errors import UsageError
from mepg.process import EXIT_FAILURE
from mepg.words import many

if TYPE_CHECKING:
    from mepg.run.verify import Verdict
    from mepg.storage.folder import Folder

SHOWN = 3  # differences of a run that are printed


def add_arguments(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folders of finished runs")
    flags.add_count(parser, "--steps", 20_000, "steps of each run to repeat")
    flags.add_env(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg.run.verify import TOLERANCE, verify
    from mepg.storage.compilation_cache import configure_jax
    from mepg.storage.folder import Folder

    flags.require("steps", arguments.steps)
    folders = [Folder(path) for path in arguments.runs]
    threads = {folder.config().threads for folder in folders}
    if len(threads) > 1:
        raise UsageError("these runs were computed on different numbers of cores: verify them one by one")
    configure_jax(*threads)
    data, agree = [], True
    for folder in folders:
        verdict = verify(folder, arguments.steps, arguments.env)
        agree &= verdict.agrees
        lines = [f"{folder.path}: {_in_words(verdict, TOLERANCE)}", *_details(verdict), *_policies(folder, verdict)]
        arguments.say("\n".join(lines))
        shown = [{**one._asdict()} for one in verdict.differences]
        about = {"agrees": verdict.agrees, "exact": verdict.exact, "until": verdict.until, "numbers": verdict.numbers}
        policies = [{**one._asdict()} for one in verdict.policies]
        found = {"elsewhere": verdict.elsewhere, "differences": shown, "policies": policies}
        data.append({"run": str(folder.path), **about, **found})
    return Answer({"runs": data, "agree": agree}, "", 0 if agree else EXIT_FAILURE)


def _in_words(verdict: "Verdict", tolerance: float) -> str:
    compared = f"{many(verdict.numbers, 'number')} up to step {verdict.until:,}"
    if not verdict.numbers_agree:
        return f"does NOT agree: {len(verdict.differences):,} of {compared} differ"
    if not verdict.agrees:
        return f"does NOT agree: {' and '.join(one.file for one in verdict.policies if not one.agrees)}"
    if not verdict.differences:
        return f"agrees bit for bit: {compared}"
    if verdict.departs is None:
        differ = len(verdict.differences)
        return f"agrees to {tolerance:.1%}, computed elsewhere: {compared}, all but {differ:,} bit for bit"
    return (
        f"agrees to {tolerance:.1%}, computed elsewhere, until step {verdict.departs:,}: from there on, rounding on "
        "two machines has grown too far apart to compare"
    )


def _details(verdict: "Verdict") -> list[str]:
    lines = [f"  {one}" for one in verdict.differences[:SHOWN]]
    if verdict.numbers_agree and not verdict.learned:
        lines.append("  the run has not begun to learn by then: more --steps would say more")
    return lines + ([f"  {each}" for each in verdict.elsewhere] if not verdict.exact else [])


def _policies(folder: "Folder", verdict: "Verdict") -> list[str]:
    lines = [f"  {one.file} {one.found}" for one in verdict.policies]
    if folder.policy_file.name not in [one.file for one in verdict.policies]:
        lines.append(f"  {folder.policy_file.name} is not published with this run, so there is none to compare")
    return lines
