"""show an algorithm's settings, and how they differ from those of the algorithm it builds on"""

from mepg import flags
from mepg.commands import Answer, Arguments, Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("algorithm", metavar="ALGO", help="a name from `mepg list`, or module:name")
    flags.add_set(parser)


def answer(arguments: Arguments) -> Answer:
    from mepg import algos
    from mepg.settings import apply_settings, describe, to_json

    algorithm = algos.find(arguments.algorithm)
    spec = apply_settings(algorithm.spec, arguments.set)
    fields = describe(spec)
    differs: dict[str, list[str]] = {}
    if algorithm.parent is not None:
        parent = describe(algos.find(algorithm.parent).spec)
        names = [name for name in fields | parent if fields.get(name, "none") != parent.get(name, "none")]
        # A mechanism that is off has one line ("dropout"), one that is on has several ("dropout.p").
        differs = {n: [parent.get(n, "off"), fields.get(n, "off")] for n in names if n in fields or "." in n}
    lines = [f"{arguments.algorithm}: {algorithm.summary}"]
    width = max(map(len, fields))
    lines += [f"  {name:<{width}}  {text}" for name, text in fields.items()]
    if algorithm.parent is not None:
        lines += ["", f"Differs from {algorithm.parent}" + ("" if differs else " in nothing")]
        lines += [f"  {name:<{width}}  {was} -> {now}" for name, (was, now) in differs.items()]
    about = {"algorithm": arguments.algorithm, "summary": algorithm.summary, "parent": algorithm.parent}
    return Answer({**about, "spec": to_json(spec), "differs": differs}, "\n".join(lines))
