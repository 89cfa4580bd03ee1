"""show an algorithm's settings, and how they differ from those of the algorithm it builds on"""

from mepg import flags
from mepg.commands import Answer, Arguments, Parser


def add_arguments(parser: Parser) -> None:
    words = "a name from `mepg list`, or module:name (the one to start with, with its settings)"
    parser.add_argument("algorithm", metavar="ALGO", nargs="?", help=words)
    flags.add_tuned(parser)
    flags.add_set(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg import algos
    from mepg.settings import apply_settings, describe, to_json

    if start_with := arguments.algorithm is None:
        arguments.algorithm = algos.RECOMMENDED["box"].algorithm
        arguments.tuned |= algos.RECOMMENDED["box"].tuned
    name, algorithm = arguments.algorithm, algos.find(arguments.algorithm)
    spec = apply_settings(algorithm.spec, flags.spec_settings(arguments))
    fields = describe(spec)
    tuned_fields = flags.tuned_fields(name, spec) if arguments.tuned else {}
    differs: dict[str, list[str]] = {}
    if algorithm.parent is not None:
        tuned_parent = algos.tuned_settings(algorithm.parent) if arguments.tuned else ()
        parent = describe(apply_settings(algos.find(algorithm.parent).spec, tuned_parent))
        names = [name for name in fields | parent if fields.get(name, "none") != parent.get(name, "none")]
        # A mechanism that is off has one line ("dropout"), one that is on has several ("dropout.p").
        differs = {n: [parent.get(n, "off"), fields.get(n, "off")] for n in names if n in fields or "." in n}
    of_both = ", both tuned" if arguments.tuned else ""
    lines = [f"{name}{', tuned' if arguments.tuned else ''}: {algorithm.summary}"]
    width = max(map(len, fields))
    lines += [f"  {name:<{width}}  {text}" for name, text in fields.items()]
    if algorithm.parent is not None:
        lines += ["", f"Differs from {algorithm.parent}{of_both}" + ("" if differs else " in nothing")]
        lines += [f"  {name:<{width}}  {was} -> {now}" for name, (was, now) in differs.items()]
    if tuned_fields:
        lines += ["", f"Tuned, in place of {name}'s own"]
        lines += [f"  {field:<{width}}  {own} -> {used}" for field, (own, used) in tuned_fields.items()]
    if start_with:
        lines += ["", f"To start with: {algos.START_WITH}"]
    about = {"algorithm": name, "summary": algorithm.summary, "parent": algorithm.parent, "tuned": arguments.tuned}
    return Answer({**about, "spec": to_json(spec), "differs": differs}, "\n".join(lines))
