"""What a model is made with: its constructor's arguments, checked, and as the config of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mepg import algos
from mepg.api.arguments import apply_arguments, as_python, integer, pop_run_settings
from mepg.errors import UsageError
from mepg.settings import apply_settings, from_json, to_json
from mepg.training.config import MAX_SEED, MOST, Config
from mepg.training.threads import limit_threads


@dataclass
class ModelConfig:
    """What a model is made with. The last two change when it is given other environments."""

    algorithm: str
    spec: Any  # any frozen dataclass that the algorithm reads
    seed: int
    n_envs: int  # copies that are made of an environment by its id
    run_settings: dict[str, Any]  # normalize_obs, threads, and whatever else `Config` declares under the same name

    def run_config(self, env_id: str) -> Config:
        """For a run in this environment, without an end: `learn` says how many steps to take."""
        endless = MOST // self.n_envs * self.n_envs
        return Config(
            algorithm=self.algorithm,
            spec=self.spec,
            env=env_id,
            seed=self.seed,
            steps=endless,
            eval_every=endless,
            envs=self.n_envs,
            **self.run_settings,
        )


def make_model_config(
    algorithm: str, env: Any, spec: Any, tuned: Any, seed: Any, n_envs: Any, arguments: dict[str, Any]
) -> ModelConfig:
    """Check a constructor's arguments; a UsageError names the one that is wrong.

    :param spec: the user's, or None for the algorithm's
    :param tuned: whether the algorithm's has its tuned settings
    :param arguments: all others, by Stable-Baselines3's names
    """
    if not algorithm:
        raise UsageError("Model is what all models have in common: use ME_SAC, or mepg.algorithm('me-sac-r')")
    run_settings = pop_run_settings(arguments)
    limit_threads_once(run_settings["threads"])
    seed = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
    seed = integer("seed", seed, least=0, most=MAX_SEED)
    n_envs = integer("n_envs", n_envs, least=1)
    spec = apply_arguments(
        _whole_spec(algorithm, spec, False if tuned is None else as_python(tuned)), arguments, count_envs(env, n_envs)
    )
    return ModelConfig(algorithm, spec, seed, n_envs, run_settings)


def count_envs(env: Any, n_envs: int) -> int:
    """How many environments there will be: `n_envs` copies of an id, or as many as are in the user's own."""
    return n_envs if isinstance(env, str | None) else int(getattr(env, "num_envs", 1))


def _whole_spec(algorithm: str, spec: Any, tuned: Any) -> Any:
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


def limit_threads_once(threads: int) -> None:
    """Set the number of threads of this process, which its first model chooses."""
    global _THREADS
    if _THREADS is None:
        limit_threads(threads)
        _THREADS = threads
    elif threads != _THREADS:
        raise UsageError(f"threads={threads}: this process computes with {_THREADS}, which its first model chose")


_THREADS: int | None = None
