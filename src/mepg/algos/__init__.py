"""The algorithms. Each module here exports `ALGORITHMS`, and is found without being listed anywhere.

An algorithm of your own needs no place here: `my_module:name` is the `Algorithm` called `name` in your module.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from mepg.core import agent
from mepg.core.spec import ActorSpec
from mepg.core.types import Agent, Array, Sizes
from mepg.errors import UsageError, one_line, unknown
from mepg.settings import apply_settings, describe


class LoopFields(Protocol):
    """What training reads of any spec, a frozen dataclass. All else in it is for the algorithm's mathematics.

    `mepg inspect` also reads `discount`, the gamma of the returns that Q is compared with.
    """

    @property
    def batch_size(self) -> int: ...  # transitions in an update
    @property
    def replay_size(self) -> int: ...  # transitions in the replay buffer
    @property
    def warmup(self) -> int: ...  # steps with uniformly random actions, before the first update
    @property
    def updates_per_step(self) -> int: ...


LOOP_FIELDS = ("batch_size", "replay_size", "warmup", "updates_per_step")


@runtime_checkable
class MultiStep(Protocol):
    """What training reads too, of a spec that has it: without, a transition is one step."""

    @property
    def n_step(self) -> int: ...  # rewards that are added up before the next value
    @property
    def discount(self) -> float: ...


def n_step_and_discount(spec: Any) -> tuple[int, float]:
    """Its n_step and discount; 1 step, with any discount, for a spec without."""
    return (spec.n_step, spec.discount) if isinstance(spec, MultiStep) else (1, 1.0)


@runtime_checkable
class Stochastic(Protocol):
    """A spec that says whether its policy is stochastic."""

    @property
    def stochastic(self) -> bool: ...


@runtime_checkable
class MixedPrecision(Protocol):
    """A spec that says how its networks multiply: "full" or "mixed"."""

    @property
    def precision(self) -> str: ...


def is_stochastic(spec: object) -> bool:
    """Whether `predict(deterministic=False)` draws actions."""
    return isinstance(spec, Stochastic) and bool(spec.stochastic)


def explores_with_critics(spec: object) -> bool:
    """Whether its exploration asks the critics which of several proposals is best."""
    return isinstance(spec, ActorSpec) and spec.explores_with_critics


def is_mixed(spec: object) -> bool:
    """Whether its networks multiply numbers rounded to bfloat16."""
    return isinstance(spec, MixedPrecision) and spec.precision == "mixed"


ACTION_KINDS = {"box": "a Box of actions", "discrete": "Discrete actions"}


class Algorithm(NamedTuple):
    """What a name stands for: a spec, one line about it, and the `parent` that `mepg show` compares it with."""

    spec: LoopFields  # and whatever `build` needs
    summary: str
    parent: str | None = None
    build: Callable[[Any, Sizes], Agent] = agent.build
    actions: tuple[str, ...] = ("box",)  # the kinds it can use, of ACTION_KINDS
    python_name: str | None = None  # of its class, mepg.ME_SAC; None: only mepg.algorithm(name) makes one


class Recommendation(NamedTuple):
    """An algorithm to start with, whether with the tuned settings, and whether observations are scaled."""

    algorithm: str
    tuned: bool = False
    normalize_obs: bool = False

    def __str__(self) -> str:
        """As on a command line."""
        return self.algorithm + " --tuned" * self.tuned + " --normalize-obs" * self.normalize_obs


# For each of ACTION_KINDS: docs/one-critic.md, "What came out".
RECOMMENDED = {
    "box": Recommendation("me-sac+lcb", tuned=True, normalize_obs=True),
    "discrete": Recommendation("me-dqn"),
}
START_WITH = ", ".join(f"{choice} for {ACTION_KINDS[kind]}" for kind, choice in RECOMMENDED.items())

# Faster rates than those of the paper's Table 5: one set for all tasks and algorithms.
TUNED = {"actor_lr": 7.3e-4, "critic_lr": 7.3e-4, "temperature.lr": 7.3e-4, "target_rate": 0.02, "warmup": 10_000}


def tuned_settings(name: str) -> list[str]:
    """`TUNED` for this algorithm, as `--set` takes them; a UsageError if it has no tuned settings."""
    spec, kinds = find(name).spec, find(name).actions
    is_fixed = describe(spec).get("temperature.lr", "none") == "none"  # or there is no temperature at all
    settings = [f"{field}={value}" for field, value in TUNED.items() if not (is_fixed and field == "temperature.lr")]
    missing = [setting.partition("=")[0] for setting in settings if not hasattr(spec, re.split("[.=]", setting)[0])]
    try:
        if "box" not in kinds:
            raise UsageError("they are for a Box of actions")
        if missing:
            raise UsageError(f"its spec has no {' and no '.join(missing)}")
        apply_settings(spec, settings)
    except UsageError as error:
        raise UsageError(f"{name} has no tuned settings: {error}; use its own, or another algorithm") from None
    return settings


def count_parameters(algorithm: Algorithm, sizes: Sizes) -> agent.ParameterCount:
    """Of all networks, from their shapes alone."""
    return agent.count_parameters(algorithm.build(algorithm.spec, sizes), algorithm.spec)


@cache
def algorithms() -> dict[str, Algorithm]:
    """Every algorithm by the name that the paper prints, in the order in which they build on each other."""
    found: dict[str, Algorithm] = {}
    for module in pkgutil.iter_modules(__path__):
        found |= importlib.import_module(f"{__name__}.{module.name}").ALGORITHMS
    return dict(sorted(found.items(), key=lambda item: _lineage(found, item[0])))


def find(name: str) -> Algorithm:
    """The algorithm called `name`. One that is `module:name` has to be imported already: see `import_named`."""
    known = algorithms()
    module, colon, inner = name.rpartition(":")
    if not colon:
        if name not in known:
            raise unknown("algorithm", name, known, hint=" (mepg list shows them all)")
        return known[name]
    if module not in sys.modules:
        raise UsageError(
            f"the algorithm is {name}, and importing {module} runs its code: "
            f"if you trust it, add --algorithm {name} (in Python: import {module} first)"
        )
    found = getattr(sys.modules[module], inner, None)
    if not isinstance(found, Algorithm):
        what = "no such name in it" if found is None else f"a {type(found).__name__}, not a mepg.algos.Algorithm, there"
        raise UsageError(f"algorithm {name!r}: {module} has {what}")
    _check(name, found)
    return found


def require_actions(name: str, sizes: Sizes, env: str) -> None:
    """Refuse an environment whose actions an algorithm cannot use, and name those that can."""
    kinds, kind = find(name).actions, sizes.action_kind
    if kind in kinds:
        return
    able = [other for other, algorithm in algorithms().items() if kind in algorithm.actions]
    hint = f"use {', '.join(able)}" if able else "none of the algorithms in `mepg list` can use it"
    raise UsageError(
        f"{name} needs {' or '.join(ACTION_KINDS[each] for each in kinds)}; "
        f"{env} has {'a Box' if kind == 'box' else f'Discrete({sizes.action})'}: {hint}"
    )


def require_policy_alone(name: str, agent: Agent, policy: Callable[[Any, Array], Array], sizes: Sizes) -> None:
    """Refuse an algorithm whose policy cannot act on what it is to see alone, because it asks critics that see more."""
    state = jax.eval_shape(agent.init, jax.random.key(0))
    try:
        jax.eval_shape(policy, state, jax.ShapeDtypeStruct((1, sizes.policy_sizes.obs_width), jnp.float32))
    except (TypeError, ValueError) as error:  # shapes that do not fit, most likely
        raise UsageError(
            f"actor-obs: {name} acts on all that its critics see; use an algorithm with a policy of its own, such as "
            f"{'me-sac' if sizes.action_kind == 'box' else 'me-sac-discrete'} ({one_line(error)})"
        ) from error


def require_choice(name: str, agent: Agent, sizes: Sizes, env: str) -> None:
    """Refuse an algorithm that cannot choose among the legal actions: it does not know that s says which they are."""
    state = jax.eval_shape(agent.init, jax.random.key(0))
    try:
        jax.eval_shape(agent.exploit, state, jax.ShapeDtypeStruct((1, sizes.obs_width), jnp.float32))
    except (TypeError, ValueError) as error:  # shapes that do not fit, most likely
        raise UsageError(
            f"{env} says which actions are legal, and {name} does not ask: let it use sizes.without_legal and "
            f"sizes.among_legal, or take an algorithm that does, such as me-dqn ({one_line(error)})"
        ) from error


def import_named(name: str) -> None:
    """Import the module of an algorithm that the user has named, if it is `module:name`."""
    module, colon, _ = name.rpartition(":")
    if not colon or module in sys.modules:
        return
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            raise UsageError(
                f"{name} names the module {error.name!r}, which is neither in this folder nor installed: "
                "run mepg in the folder that holds it, or add that folder to PYTHONPATH"
            ) from None
        raise UsageError(f"{name} needs the module {error.name!r}, which is not installed") from None
    except (Exception, SystemExit) as error:  # the user's own code
        raise UsageError(f"{module}, which {name} names, cannot be imported: {one_line(error)}") from None


def _check(name: str, algorithm: Algorithm) -> None:
    """Say which part of the protocol an algorithm breaks, before a run finds out."""
    spec = algorithm.spec
    if not is_dataclass(spec) or isinstance(spec, type) or not type(spec).__dataclass_params__.frozen:
        raise UsageError(f"algorithm {name!r}: its spec has to be a frozen dataclass, not {spec!r:.80}")
    there = {field.name for field in fields(spec)}
    for needed in LOOP_FIELDS:
        if needed not in there or not _is_whole(getattr(spec, needed)):
            raise UsageError(f"algorithm {name!r}: its spec needs the field {needed}, a whole number")
    if isinstance(spec, MultiStep) and not (_is_whole(spec.n_step) and spec.n_step >= 1):
        raise UsageError(f"algorithm {name!r}: n_step has to be a whole number, at least 1, not {spec.n_step!r:.80}")
    if not callable(algorithm.build):
        raise UsageError(f"algorithm {name!r}: build has to be a function of a spec and sizes")
    kinds = algorithm.actions
    if not isinstance(kinds, tuple) or not kinds or not set(kinds) <= set(ACTION_KINDS):
        raise UsageError(f"algorithm {name!r}: actions has to be ('box',), ('discrete',) or both, not {kinds!r:.80}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _lineage(found: dict[str, Algorithm], name: str) -> tuple[str, ...]:
    parent = found[name].parent
    return (name,) if parent is None else (*_lineage(found, parent), name)
