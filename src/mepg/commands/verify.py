"""repeat the first steps of published runs, and compare every number and the policy"""

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
    flags.add_count(parser, "--steps", 20_000, "how many steps of each run to repeat")
    parser.add_argument("--data", metavar="PATH_OR_ID", help="where the data is that a run began with (where it was)")
    flags.add_env(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg.run.verify import TOLERANCE, verify
    from mepg.storage.compilation_cache import configure_jax
    from mepg.storage.folder import Folder

    flags.check_bound("steps", arguments.steps)
    folders = [Folder(path) for path in arguments.runs]
    threads = {folder.config().threads for folder in folders}
    if len(threads) > 1:
        raise UsageError("these runs used different numbers of threads: verify them one by one")
    configure_jax(*threads)
    data, agree = [], True
    for folder in folders:
        verdict = verify(folder, arguments.steps, arguments.env, arguments.data)
        agree &= verdict.agrees
        lines = [f"{folder.path}: {_summary(verdict, TOLERANCE)}", *_details(verdict), *_policies(folder, verdict)]
        arguments.say("\n".join(lines))
        differences = [difference._asdict() for difference in verdict.differences]
        about = {
            "agrees": verdict.agrees,
            "exact": verdict.exact,
            "until": verdict.until,
            "numbers": verdict.n_compared,
        }
        policies = [policy._asdict() for policy in verdict.policies]
        found = {"elsewhere": verdict.platform_changes, "differences": differences, "policies": policies}
        data.append({"run": str(folder.path), **about, **found})
    return Answer({"runs": data, "agree": agree}, "", 0 if agree else EXIT_FAILURE)


def _summary(verdict: "Verdict", tolerance: float) -> str:
    compared = f"{many(verdict.n_compared, 'number')} up to step {verdict.until:,}"
    if not verdict.numbers_agree:
        return f"does NOT agree: {len(verdict.differences):,} of {compared} differ"
    if not verdict.agrees:
        return f"does NOT agree: {' and '.join(policy.file for policy in verdict.policies if not policy.agrees)}"
    if not verdict.differences:
        return f"agrees bit for bit: {compared}"
    if verdict.first_large_step is None:
        differ = len(verdict.differences)
        return f"agrees to {tolerance:.1%}, computed elsewhere: {compared}, all but {differ:,} bit for bit"
    return (
        f"agrees to {tolerance:.1%}, computed elsewhere, until step {verdict.first_large_step:,}: after that, the "
        "rounding errors of the two machines have grown too large to compare"
    )


def _details(verdict: "Verdict") -> list[str]:
    lines = [f"  {difference}" for difference in verdict.differences[:SHOWN]]
    if verdict.numbers_agree and not verdict.compared_learning:
        lines.append("  the run had not started to learn by then: use more --steps")
    return lines + ([f"  {each}" for each in verdict.platform_changes] if not verdict.exact else [])


def _policies(folder: "Folder", verdict: "Verdict") -> list[str]:
    lines = [f"  {policy.file} {policy.found}" for policy in verdict.policies]
    if folder.policy_file.name not in [policy.file for policy in verdict.policies]:
        lines.append(f"  {folder.policy_file.name} is not published with this run, so there is none to compare")
    return lines
