"""What defines a run: the same config on the same machine gives the same bits.

Each option is declared once, here, with its help text. The flags of `train` and `tune`, the files, model cards,
reports and the arguments in Python are made from that: a new option is one more line. JAX is imported only where it is
needed, so that a command line can be read without it.
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

from mepg.errors import UsageError, unknown
from mepg.settings import apply_settings, digest, from_json, to_json

if TYPE_CHECKING:
    from mepg.core.types import Agent, Array, Sizes

MAX_SEED = 2**32 - 1
VALUE_TYPES = {tuple: "a list of names", bool: "true or false", int: "a whole number", float: "a number", str: "text"}


Bound = tuple[str, Callable[[Any], bool]]  # what a value must be, in words and as a test
MAX_COUNT = 10**9  # steps, or anything else that is counted: more would not fit into JAX's 32-bit integers
COUNT: Bound = ("in [1, 10^9]", lambda value: 1 <= value <= MAX_COUNT)
ENV_COUNT: Bound = ("in [1, 1000]", lambda value: 1 <= value <= 1_000)
SEED: Bound = (f"in [0, {MAX_SEED}]", lambda value: 0 <= value <= MAX_SEED)
SECONDS: Bound = ("a number of seconds above 0", lambda value: 0 < value < math.inf)
NAMES: Bound = ("one name or more", lambda names: names and all(type(name) is str for name in names))
BACKEND: Bound = ("auto, native or xla", lambda value: value in ("auto", "native", "xla"))
SHARE: Bound = ("above 0 and below 1", lambda value: 0 < value < 1)
TEXT: Bound = ("a path or an ID, not empty", lambda value: bool(value.strip()))


def option(default: Any, help: str, metavar: str = "N", bound: Bound | None = None, *, compare: bool = True) -> Any:
    """A field that people set: `help` is its help text, `metavar` stands for its value in the help.

    :param compare: False: configs that differ in it alone are equal
    """
    return field(default=default, metadata={"help": help, "metavar": metavar, "bound": bound}, compare=compare)


class Option(NamedTuple):
    """A field that `option` declared."""

    name: str
    value_type: type  # one of VALUE_TYPES
    default: Any
    help: str
    metavar: str
    bound: Bound | None

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def as_flag(self, value: Any) -> str:
        """The flag and this value, as they are typed on a command line."""
        text = shlex.quote(",".join(value) if isinstance(value, tuple) else str(value))
        # One that begins with a dash would be taken for a flag.
        return self.flag if self.value_type is bool else f"{self.flag}{'=' if text.startswith('-') else ' '}{text}"

    def check(self, value: Any) -> None:
        """A UsageError if it cannot be set to this."""
        if value is None and self.default is None:
            return
        if type(value) is not self.value_type and not (self.value_type is float and type(value) is int):
            raise UsageError(f"{self.name} must be {VALUE_TYPES[self.value_type]}, not {value!r:.80}")
        words, holds = self.bound or ("", lambda _: True)
        if not holds(value):
            raise UsageError(f"{self.flag[2:]} must be {words}, not {value}")


@functools.cache
def options_of(dataclass_type: type[Any]) -> dict[str, Option]:
    """The options that a dataclass declares, by name."""
    found, hints = {}, get_type_hints(dataclass_type)
    for name, declared in ((each.name, each) for each in fields(dataclass_type) if each.metadata):
        alternatives = get_args(hints[name])  # int, tuple[str, ...], float | None or tuple[str, ...] | None
        types = (hints[name], get_origin(hints[name]), *alternatives, *map(get_origin, alternatives))
        value_type = next(each for each in VALUE_TYPES if each in types)
        found[name] = Option(name, value_type, declared.default, **declared.metadata)
    return found


def check_options(values: Any) -> None:
    """Check types and bounds; a UsageError names the option."""
    for name, option in options_of(values.__class__).items():
        option.check(getattr(values, name))


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that determines a run's results."""

    algorithm: str
    spec: Any  # the algorithm's, with what --set changed
    env: str
    seed: int = option(0, "seed of everything random", "S", SEED)
    steps: int = option(1_000_000, "environment steps", bound=COUNT)
    eval_every: int = option(5_000, "steps between evaluations", bound=COUNT)
    eval_episodes: int = option(10, "episodes in each evaluation", bound=COUNT)
    envs: int = option(1, "copies of the environment, stepped together", bound=ENV_COUNT)
    normalize_obs: bool = option(
        False, "scale observations to mean 0 and variance 1, by running statistics saved with the policy"
    )
    actor_obs: tuple[str, ...] | None = option(
        None, "entries of a Dict that the policy sees; the critics see all of it (all)", "NAME,...", NAMES
    )
    threads: int = option(1, "cores to compute on", bound=COUNT)  # the order of a sum depends on it
    # "auto" until the run's program is made (`assembly.make_program`): a stored run says which one it was.
    backend: str = option(
        "auto", "native (C++ compiled for this agent), xla, or auto: native if it works", "NAME", BACKEND
    )
    # Where the data was found may change, and is no part of what the run is: its SHA-256 is.
    data: str | None = option(
        None,
        "transitions to begin with: a Minari dataset, another run's folder or an .npz (none)",
        "PATH_OR_ID",
        TEXT,
        compare=False,
    )
    data_share: float | None = option(
        None,
        "share of each batch that is drawn from the data throughout (none: the data goes into the replay buffer)",
        "SHARE",
        SHARE,
    )
    data_sha256: str | None = None  # of what the data holds; None until it has been read, and without data

    def __post_init__(self) -> None:
        check_options(self)
        if self.data_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", str(self.data_sha256)):
            raise UsageError(f"data_sha256 must be a SHA-256, not {self.data_sha256!r:.80}")
        if self.data_share is not None and self.data is None and self.data_sha256 is None:
            raise UsageError("data-share is a share of --data: give that too")
        if self.actor_obs is not None:  # in any order, the same run
            object.__setattr__(self, "actor_obs", tuple(sorted({*self.actor_obs})))
        for name in ("steps", "eval_every"):
            if getattr(self, name) % self.envs:
                raise UsageError(
                    f"{name.replace('_', '-')} must be a multiple of envs={self.envs}, which are stepped together, "
                    f"not {getattr(self, name)}"
                )

    @classmethod
    def make(cls, algorithm: str, settings: Iterable[str] = (), *, env: str, **rest: Any) -> Config:
        """The config of an algorithm by name, with settings of its spec such as `dropout.p=0.3`."""
        from mepg import algos
        from mepg.envs.simulators import full_id

        spec = apply_settings(algos.find(algorithm).spec, settings)
        return cls(algorithm=algorithm, spec=spec, env=full_id(env), **rest)

    def build(self, sizes: Sizes) -> Agent:
        from mepg import algos

        algos.require_actions(self.algorithm, sizes, self.env)
        sizes = self.with_actor_entries(sizes)
        agent = self._build(sizes)
        if sizes.n_legal:
            algos.require_choice(self.algorithm, agent, sizes, self.env)
        if sizes.actor_entries is not None:
            algos.require_policy_alone(self.algorithm, agent, self.build_policy(sizes), sizes)
        return agent

    def _build(self, sizes: Sizes) -> Agent:
        from mepg import algos
        from mepg.core.normalise import with_normalised_obs

        agent = algos.find(self.algorithm).build(self.spec, sizes)
        return with_normalised_obs(agent, sizes) if self.normalize_obs else agent

    def build_policy(self, sizes: Sizes) -> Callable[[Any, Array], Array]:
        """The agent's `exploit`, as a function of its state and of the `policy_input`."""
        from mepg.core.normalise import actor_statistics

        sizes = self.with_actor_entries(sizes)
        agent = self._build(sizes.policy_sizes)
        return lambda state, policy_input: agent.exploit(actor_statistics(state, sizes), policy_input)

    def with_actor_entries(self, sizes: Sizes) -> Sizes:
        """The sizes, with the entries of an observation that `actor_obs` names."""
        if self.actor_obs is None:
            return sizes
        if not sizes.entries:
            raise UsageError(
                f"actor-obs names entries of a Dict, and {self.env}'s observations are not a Dict: leave it out"
            )
        found = {
            name: [entry for entry in sizes.entries if f"{entry.name}.".startswith(f"{name}.")]
            for name in self.actor_obs
        }
        for name, entries in found.items():
            if not entries:
                names = ", ".join(entry.name for entry in sizes.entries)
                raise UsageError(f"actor-obs: {self.env}'s observations have no {name!r}; they have {names}")
        actor_entries = tuple(
            sorted({entry for entries in found.values() for entry in entries}, key=lambda entry: entry.start)
        )
        if all(entry.start == entry.end for entry in actor_entries):
            raise UsageError(
                f"actor-obs: {', '.join(self.actor_obs)} of {self.env} holds no numbers: name an entry that does"
            )
        return sizes._replace(actor_entries=None if actor_entries == sizes.entries else actor_entries)

    def non_default_options(self) -> dict[str, Any]:
        """The options that are not at their defaults."""
        values = {name: (getattr(self, name), option.default) for name, option in options_of(Config).items()}
        return {name: value for name, (value, default) in values.items() if value != default}

    @property
    def on_any_backend(self) -> Config:
        """The config that runs on either backend share: an experiment takes both."""
        return replace(self, backend="auto")

    def to_json(self, *, defaults: bool = True) -> dict[str, Any]:
        """As plain data; `defaults`: see `settings.to_json`. Without data, nothing is said about data."""
        written = to_json(self, defaults=defaults)
        return {name: value for name, value in written.items() if not (name.startswith("data") and value is None)}

    def without_length(self, *, defaults: bool = True) -> dict[str, Any]:
        """All but its steps, as a longer run is the same run, further on; and but where its data was found."""
        return {n: value for n, value in self.to_json(defaults=defaults).items() if n not in ("steps", "data")}

    @property
    def fingerprint(self) -> str:
        """The SHA-256 by which a run's files are known to belong together.

        Defaults are left out: an option or a field that is added later changes no run's fingerprint. To change a
        default would change them, and stored runs would have to be converted.
        """
        return digest(self.without_length(defaults=False))

    def evaluates_at(self, step: int) -> bool:
        """Every `eval_every` steps, and after the last."""
        return step % self.eval_every == 0 or step >= self.steps

    @classmethod
    def from_json(cls, data: Any) -> Config:
        """The config that `to_json` wrote; an option that it lacks has its default."""
        from mepg import algos

        if not isinstance(data, dict):
            raise UsageError(f"a run's config must be a JSON object, not {data!r:.80}")
        known = [each.name for each in fields(cls)]
        for name in data:
            if name not in known:
                raise unknown("setting of a run", name, known)
        for name in ("algorithm", "env"):
            if not isinstance(data.get(name), str):
                raise UsageError(f"{name} must be text, not {data.get(name)!r:.80}")
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        try:
            values["spec"] = from_json(type(algos.find(data["algorithm"]).spec), data.get("spec"))
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from None

    def folder_name(self, settings: Iterable[str] = ()) -> str:
        """Algorithm, what was set, environment and seed, as a name that any file system takes."""
        parts = ["_".join([self.algorithm, *settings]), self.env, f"seed{self.seed}"]
        return "_".join(re.sub(r"[^\w.,=+-]", "-", part) for part in parts)


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options of one session of a run. They do not change its bits."""

    checkpoint_every: int = option(5_000, "steps between checkpoints", bound=COUNT)
    keep_replay: bool = option(False, "keep the replay buffer at the end, so that more --steps can make the run longer")
    step_timeout: float | None = option(None, "stop when a reset or a step takes longer (never)", "SECONDS", SECONDS)
    log: tuple[str, ...] = option(("csv", "tensorboard"), "where metrics go: csv, tensorboard, wandb", "LOG,...")

    def __post_init__(self) -> None:
        check_options(self)
