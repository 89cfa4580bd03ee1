"""Arguments that several commands share, and how their texts are read."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg.errors import UsageError, unknown
from mepg.training.config import A_COUNT, A_SEED, Bound, settings_of

if TYPE_CHECKING:
    from mepg.scheduler.schedule import Engine


def count(text: str) -> int:
    """A whole number; 1_000_000 and 1e6 are welcome."""
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
    """Names separated by commas, each taken once."""
    return tuple(dict.fromkeys(name for name in text.split(",") if name))


def path(text: str) -> Path:
    """A path to write to; an empty one is refused."""
    if not text.strip():
        raise ArgumentTypeError("a name is needed")
    return Path(text)


READ: dict[type, Callable[[str], Any]] = {int: count, float: float, str: str, tuple: names}


def add_settings(parser: ArgumentParser, kind: type, leave_out: Collection[str] = (), **defaults: Any) -> None:
    """A flag for each setting that a dataclass declares, with other defaults where they are given."""
    for name, of in settings_of(kind).items():
        if name in leave_out:
            continue
        if of.kind is bool:
            parser.add_argument(of.flag, action="store_true", help=of.words)
            continue
        default = defaults.get(name, of.default)
        shown = ",".join(default) if of.kind is tuple else default
        words = of.words if shown in (None, "") else f"{of.words} ({shown})"
        parser.add_argument(of.flag, type=READ[of.kind], default=default, metavar=of.metavar, help=words)


def said(arguments: Namespace, kind: type) -> dict[str, Any]:
    """What the command line says about the settings that `kind` declares."""
    return {name: getattr(arguments, name) for name in settings_of(kind) if hasattr(arguments, name)}


def read_settings(
    path: Path, parser: ArgumentParser, said_env: str | None, said_algorithm: str | None
) -> dict[str, Any]:
    """A JSON file with the names of a parser's own flags, as its defaults; an entry `about` is ignored."""
    from mepg.algos import find
    from mepg.storage.files import Damaged, read_json, trusted

    try:
        data = read_json(path)
    except Damaged as damage:
        raise UsageError(f"--config: {damage}") from None
    if not isinstance(data, dict):
        raise UsageError(f'--config: {path.name} must hold a JSON object, such as {{"algorithm": "me-sac"}}')
    known = {action.dest: action for action in parser._actions if action.dest not in ("help", "json", "config", "out")}
    for name in data.keys() - known.keys() - {"about"}:
        raise unknown(f"setting in {path.name}", name, known)
    kinds: dict[str, tuple[type, str]] = {"set": (list, 'a list, such as ["dropout.p=0.3"]')}
    kinds |= {name: (bool, "true or false") for name, action in known.items() if action.nargs == 0}
    for name, (kind, what) in kinds.items():
        if name in data and not isinstance(data[name], kind):
            raise UsageError(f"--config: {name} must be {what}, not {data[name]!r}")
    data["set"] = [str(setting) for setting in data.get("set", [])]
    if said_env is None and "env" in data:
        trusted(str(data["env"]), None, path)
    if said_algorithm is None and ":" in str(data.get("algorithm", "")):
        find(str(data["algorithm"]))  # has to be imported already: the file may come from anyone
    # As text, which the parser then reads: whatever the command line refuses, a file cannot bring in either.
    texts = {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in data.items()}
    return {name: data[name] if name in kinds else texts[name] for name in data.keys() & known}


def require(name: str, number: int, bound: Bound = A_COUNT) -> None:
    """Refuse a number that is too small or too large."""
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
    words = "change what `mepg show` prints: dropout.p=0.3, hidden=400,300, smoothing=none; can be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=words)


def add_runs(parser: ArgumentParser, nargs: str, words: str = "folders of runs, at any depth") -> None:
    parser.add_argument("runs", metavar="RUNS", nargs=nargs, type=Path, help=words)
    add_algorithm(parser)


def add_algorithm(parser: ArgumentParser) -> None:
    words = "needed if the algorithm is module:name: its module is imported only if you name it"
    parser.add_argument("--algorithm", metavar="ALGO", help=words)


def add_env(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--env", metavar="ID", help="needed if the environment is module:id: its module is imported only if you name it"
    )
    add_algorithm(parser)


def add_best(parser: ArgumentParser) -> None:
    words = "use the policy of the best evaluation, not the last one; its return flatters"
    parser.add_argument("--best", action="store_true", help=words)


def add_episodes(parser: ArgumentParser) -> None:
    add_count(parser, "--episodes", 10, "episodes to play")
    add_count(parser, "--seed", 0, "decides which episodes are played", "S")
    add_env(parser)


def require_episodes(arguments: Namespace) -> None:
    """Refuse what `add_episodes` takes and nobody can play."""
    require("episodes", arguments.episodes)
    require("seed", arguments.seed, A_SEED)


def add_engine(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="this machine's cores, or a Ray cluster (local)"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster (a new one on this machine)")
    add_count(parser, "--workers", None, "runs at once on this machine (one for each core)")


def engine_of(arguments: Namespace) -> Engine:
    """The engine that `add_engine`'s arguments choose."""
    from mepg.scheduler.local import Local
    from mepg.scheduler.ray import Ray

    return Local(arguments.workers) if arguments.engine == "local" else Ray(arguments.address)
