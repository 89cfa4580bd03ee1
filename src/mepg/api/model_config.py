"""What a model is made with: its constructor's arguments, checked, and as the config of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from mepg import algos
from mepg.algos import LoopFields
from mepg.api import unsupported
from mepg.api.arguments import apply_arguments, as_python, integer
from mepg.errors import UsageError
from mepg.settings import apply_settings, from_json, to_json
from mepg.training.config import MAX_COUNT, MAX_SEED, Config, options_of
from mepg.training.threads import limit_threads

P = ParamSpec("P")

# The options of a run that a model takes under the same name. The others it has in Stable-Baselines3's form.
RUN_OPTIONS = [
    option
    for name, option in options_of(Config).items()
    if name not in ("seed", "steps", "eval_every", "eval_episodes", "envs")
]


def make_config(
    algorithm: str, env: object, spec: object, tuned: object, seed: object, n_envs: object, arguments: dict[str, Any]
) -> Config:
    """Check a constructor's arguments; a UsageError names the one that is wrong.

    :param spec: the user's, or None for the algorithm's
    :param tuned: whether the algorithm's has its tuned settings
    :param arguments: all others, by Stable-Baselines3's names
    """
    if not algorithm:
        raise UsageError("Model is what all models have in common: use ME_SAC, or mepg.algorithm('me-sac-r')")
    run_options = pop_run_options(arguments)
    limit_threads_once(run_options["threads"])
    seed = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
    seed, n_envs = integer("seed", seed, least=0, most=MAX_SEED), integer("n_envs", n_envs, least=1)
    spec = _whole_spec(algorithm, spec, False if tuned is None else as_python(tuned))
    spec = apply_arguments(spec, arguments, count_envs(env, n_envs))
    return in_envs(Config(algorithm=algorithm, spec=spec, env="", seed=seed, **run_options), "", n_envs)


def in_envs(config: Config, env_id: str, count: int) -> Config:
    """For a run in so many of these environments, without an end: `learn` says how many steps to take."""
    endless = MAX_COUNT // count * count
    return replace(config, env=env_id, envs=count, steps=endless, eval_every=endless)


def count_envs(env: object, n_envs: int) -> int:
    """How many environments there will be: `n_envs` copies of an id, or as many as are in the user's own."""
    return n_envs if isinstance(env, str | None) else int(getattr(env, "num_envs", 1))


def _whole_spec(algorithm: str, spec: object, tuned: object) -> LoopFields:
    default = algos.find(algorithm).spec
    if not isinstance(tuned, bool):
        raise UsageError(f"tuned must be true or false, not {tuned!r:.80}")
    if spec is None:
        return apply_settings(default, algos.tuned_settings(algorithm)) if tuned else default
    if tuned:
        raise UsageError("tuned=True is for a new model with the algorithm's own spec: leave out tuned, or spec")
    if not isinstance(spec, type(default)):
        raise UsageError(f"spec must be a {type(default).__name__}, not {spec!r:.80}")
    return from_json(type(default), to_json(spec))  # whatever a file would refuse is refused here


def pop_run_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a run out of the arguments; one that is missing has its default."""
    values = {}
    for option in RUN_OPTIONS:
        value = as_python(arguments.pop(option.name, option.default))
        value = tuple(value) if isinstance(value, list) else value
        values[option.name] = str(value) if isinstance(value, Path) else value
        option.check(values[option.name])
    return values


def show_run_options(init: Callable[P, None]) -> Callable[P, None]:
    """Show the options of a run in a constructor's signature, which takes them as `**kwargs`."""
    signature = inspect.signature(init)
    *named, kwargs = signature.parameters.values()
    by_name = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(s.name, by_name, default=s.default, annotation=s.value_type) for s in RUN_OPTIONS]
    init.__signature__ = signature.replace(parameters=[*named, *added, kwargs])  # type: ignore[attr-defined]
    return init


def require_fixed(**arguments: object) -> None:
    """Refuse another value of an argument that can have only one here."""
    for name, value in arguments.items():
        only = unsupported.FIXED[name]
        if value not in only.harmless:
            raise UsageError(f"{name}={value!r}: {only.instead}")


def limit_threads_once(threads: int) -> None:
    """Set the number of threads of this process, which its first model chooses."""
    global _THREADS
    if _THREADS is None:
        limit_threads(threads)
        _THREADS = threads
    elif threads != _THREADS:
        raise UsageError(f"threads={threads}: this process computes with {_THREADS}, which its first model chose")


_THREADS: int | None = None
