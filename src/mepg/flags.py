"""Command-line arguments that several commands share, and how they are parsed."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg.errors import UsageError, unknown
from mepg.training.config import COUNT, SEED, Bound, options_of

if TYPE_CHECKING:
    from mepg.scheduler.schedule import Engine


def count(text: str) -> int:
    """An integer, which may also be written as 1_000_000 or 1e6."""
    with contextlib.suppress(ValueError):
        return int(text)
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None
    return int(number)


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, without duplicates."""
    return tuple(dict.fromkeys(name for name in text.split(",") if name))


def seeds(text: str) -> tuple[int, ...]:
    """Seeds and ranges of seeds, separated by commas: 0-2, 0,3 or 0-2,5."""
    try:
        ranges = [[count(end) for end in part.split("-")] for part in text.split(",")]
        if any(len(ends) > 2 or ends[-1] - ends[0] > 10_000 for ends in ranges):
            raise ValueError
    except (ValueError, ArgumentTypeError):
        raise ArgumentTypeError(f"{text!r} is not a list of seeds, such as 0-2 or 0,3") from None
    return tuple(seed for ends in ranges for seed in range(ends[0], ends[-1] + 1))


def path(text: str) -> Path:
    """A path that is not empty."""
    if not text.strip():
        raise ArgumentTypeError("a name is needed")
    return Path(text)


PARSERS: dict[type, Callable[[str], Any]] = {int: count, float: float, str: str, tuple: names}


def add_options(parser: ArgumentParser, dataclass_type: type, leave_out: Collection[str] = (), **defaults: Any) -> None:
    """Add a flag for each option that the dataclass declares; `defaults` replace its own."""
    for name, option in options_of(dataclass_type).items():
        if name in leave_out:
            continue
        if option.value_type is bool:
            parser.add_argument(option.flag, action="store_true", help=option.help)
            continue
        default = defaults.get(name, option.default)
        shown = ",".join(default) if isinstance(default, tuple) else default
        text = option.help if shown in (None, "") else f"{option.help} ({shown})"
        parse = PARSERS[option.value_type]
        parser.add_argument(option.flag, type=parse, default=default, metavar=option.metavar, help=text)


def options_from(arguments: Namespace, dataclass_type: type) -> dict[str, Any]:
    """The parsed values of the options that the dataclass declares."""
    return {name: getattr(arguments, name) for name in options_of(dataclass_type) if hasattr(arguments, name)}


def read_settings(path: Path, parser: ArgumentParser, env: str | None, algorithm: str | None) -> dict[str, Any]:
    """Defaults for a parser from a JSON file whose keys are the parser's flags; the key `about` is ignored.

    `env` and `algorithm` are those of the command line, which override the file.
    """
    from mepg.algos import find
    from mepg.storage.files import Damaged, read_json, require_trusted_env

    try:
        data = read_json(path)
    except Damaged as damage:
        raise UsageError(f"--config: {damage}") from None
    if not isinstance(data, dict):
        raise UsageError(f'--config: {path.name} must hold a JSON object, such as {{"algorithm": "me-sac"}}')
    data = {name: value for name, value in data.items() if value is not None}  # as a flag that is not given
    known = {action.dest: action for action in parser._actions if action.dest not in ("help", "json", "config", "out")}
    for name in data.keys() - known.keys() - {"about"}:
        raise unknown(f"setting in {path.name}", name, known)
    not_text: dict[str, tuple[type, str]] = {"set": (list, 'a list, such as ["dropout.p=0.3"]')}
    not_text |= {name: (bool, "true or false") for name, action in known.items() if action.nargs == 0}
    for name, (value_type, description) in not_text.items():
        if name in data and not isinstance(data[name], value_type):
            raise UsageError(f"--config: {name} must be {description}, not {data[name]!r}")
    data["set"] = [str(setting) for setting in data.get("set", [])]
    if env is None and "env" in data:
        require_trusted_env(str(data["env"]), None, path)
    if algorithm is None and ":" in str(data.get("algorithm", "")):
        find(str(data["algorithm"]))  # must be imported already: the file may be untrusted
    # As text, which argparse then parses: a file cannot set what the command line refuses.
    texts = {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in data.items()}
    return {name: data[name] if name in not_text else texts[name] for name in data.keys() & known}


def check_bound(name: str, number: int, bound: Bound = COUNT) -> None:
    """A UsageError if a number is too small or too large."""
    words, holds = bound
    if not holds(number):
        raise UsageError(f"{name} must be {words}, not {number}")


def add_count(parser: ArgumentParser, flag: str, default: int | None, words: str, metavar: str = "N") -> None:
    shown = words if default is None else f"{words} ({default})"
    parser.add_argument(flag, type=count, default=default, metavar=metavar, help=shown)


def add_path(
    parser: ArgumentParser, flag: str, metavar: str, words: str, default: str | None = None, **more: Any
) -> None:
    shown = words if default is None else f"{words} ({default})"
    parser.add_argument(flag, type=path, default=default and Path(default), metavar=metavar, help=shown, **more)


def add_set(parser: ArgumentParser) -> None:
    words = (
        "change a setting of the algorithm, tuned or not (`mepg show ALGO` lists them): dropout.p=0.3, hidden=400,300, "
        "smoothing=none; can be repeated"
    )
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=words)


def add_tuned(parser: ArgumentParser) -> None:
    words = "faster rates in place of the paper's (`mepg show ALGO --tuned` lists them)"
    parser.add_argument("--tuned", action="store_true", help=words)


def spec_settings(arguments: Namespace) -> list[str]:
    """What `--tuned` and `--set` change; the latter comes last, wherever it stands on the command line."""
    from mepg.algos import tuned_settings

    return [*(tuned_settings(arguments.algorithm) if arguments.tuned else ()), *arguments.set]


def tuned_fields(algorithm: str, spec: object) -> dict[str, tuple[str, str]]:
    """What `--tuned` sets: the algorithm's own value, and the one in `spec`, which `--set` may have overridden."""
    from mepg.algos import find, tuned_settings
    from mepg.settings import apply_settings, describe

    own, settings = find(algorithm).spec, tuned_settings(algorithm)
    before, tuned, used = (describe(each) for each in (own, apply_settings(own, settings), spec))
    found = {}
    for field in (setting.partition("=")[0] for setting in settings):
        value = used.get(field, "off")
        by_set = "" if value == tuned[field] else f" (by --set; tuned: {tuned[field]})"
        found[field] = before[field], value + by_set
    return found


def describe_tuned(algorithm: str, spec: object) -> str:
    """The same on a line."""
    return "tuned: " + ", ".join(f"{field}={used}" for field, (_, used) in tuned_fields(algorithm, spec).items())


def add_runs(parser: ArgumentParser, nargs: str, words: str = "folders with runs, at any depth") -> None:
    parser.add_argument("runs", metavar="RUNS", nargs=nargs, type=Path, help=words)
    add_algorithm(parser)


def add_algorithm(parser: ArgumentParser) -> None:
    words = "required if the run's algorithm is module:name: the module is imported only if you name it here"
    parser.add_argument("--algorithm", metavar="ALGO", help=words)


def add_env(parser: ArgumentParser) -> None:
    words = "required if the run's environment is module:id: the module is imported only if you name it here"
    parser.add_argument("--env", metavar="ID", help=words)
    add_algorithm(parser)


def add_best(parser: ArgumentParser) -> None:
    words = "use the policy of the best evaluation, not the final one; its return is biased upwards by selection"
    parser.add_argument("--best", action="store_true", help=words)


def add_episodes(parser: ArgumentParser) -> None:
    add_count(parser, "--episodes", 10, "episodes to play")
    add_count(parser, "--seed", 0, "seed of the episodes", "S")
    add_env(parser)


def check_episodes(arguments: Namespace) -> None:
    """Check the arguments that `add_episodes` adds."""
    check_bound("episodes", arguments.episodes)
    check_bound("seed", arguments.seed, SEED)


def add_engine(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where to run: on this machine, or on a Ray cluster (local)",
    )
    parser.add_argument("--address", metavar="ADDRESS", help="address of the Ray cluster (start one on this machine)")
    add_count(parser, "--workers", None, "runs at a time on this machine (one for each core)")


def engine_of(arguments: Namespace) -> Engine:
    """The engine that the arguments of `add_engine` select."""
    from mepg.scheduler.local import Local
    from mepg.scheduler.ray import Ray

    if arguments.engine == "local":
        if arguments.address is not None:
            raise UsageError("--address is a Ray cluster's: add --engine ray")
        return Local(arguments.workers)
    if arguments.workers is not None:
        raise UsageError("--workers is for this machine, and a Ray cluster has as many as processors: leave it out")
    return Ray(arguments.address)
