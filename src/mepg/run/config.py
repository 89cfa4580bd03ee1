"""What defines a run: the same config on the same machine gives the same bits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from mepg import algos
from mepg.core.normalise import normalised
from mepg.core.settings import apply_settings, from_json, to_json
from mepg.core.types import Agent, Sizes
from mepg.envs.simulators import full_id
from mepg.errors import UsageError
from mepg.run.files import digest
from mepg.run.keys import MAX_SEED


@dataclass(frozen=True, kw_only=True)
class Config:
    """One run's identity."""

    algorithm: str
    spec: Any  # the algorithm's, with what --set changed
    env: str
    seed: int = 0
    steps: int = 1_000_000
    eval_every: int = 5_000  # steps between two evaluations
    eval_episodes: int = 10
    envs: int = 1  # stepped together
    normalize_obs: bool = False  # each of an observation's numbers to mean 0 and variance 1
    threads: int = 1  # part of it, because the order of a sum depends on it

    def __post_init__(self) -> None:
        for name in ("steps", "eval_every", "eval_episodes", "envs", "threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"seed must be in [0, {MAX_SEED}], not {self.seed}")
        for name in ("steps", "eval_every"):
            if getattr(self, name) % self.envs:
                raise UsageError(
                    f"{name.replace('_', '-')} must be a multiple of envs={self.envs}, which are stepped together, "
                    f"not {getattr(self, name)}"
                )

    @classmethod
    def make(cls, algorithm: str, settings: Iterable[str] = (), *, env: str, **rest: Any) -> Config:
        """The config of an algorithm by name, with settings such as `dropout.p=0.3`."""
        spec = apply_settings(algos.find(algorithm).spec, settings)
        return cls(algorithm=algorithm, spec=spec, env=full_id(env), **rest)

    def build(self, sizes: Sizes) -> Agent:
        algos.require_actions(self.algorithm, sizes, self.env)
        agent = algos.find(self.algorithm).build(self.spec, sizes)
        return normalised(agent, sizes) if self.normalize_obs else agent

    def to_json(self) -> dict[str, Any]:
        return {f.name: to_json(getattr(self, f.name)) for f in fields(self)}

    @property
    def fingerprint(self) -> str:
        """By which a run's files know that they belong together."""
        return digest(self.to_json())

    @classmethod
    def from_json(cls, data: Any) -> Config:
        """The config that `to_json` wrote; a UsageError says what is wrong with it."""
        names = [f.name for f in fields(cls)]
        if not isinstance(data, dict) or sorted(data) != sorted(names):
            raise UsageError(f"a run's config needs exactly the fields {', '.join(names)}")
        for name, kind in {"algorithm": str, "env": str}.items():
            if not isinstance(data[name], kind):
                raise UsageError(f"{name} must be text, not {data[name]!r}")
        for name in ("seed", "steps", "eval_every", "eval_episodes", "envs", "threads"):
            if type(data[name]) is not int:
                raise UsageError(f"{name} must be a whole number, not {data[name]!r}")
        if type(data["normalize_obs"]) is not bool:
            raise UsageError(f"normalize_obs must be true or false, not {data['normalize_obs']!r}")
        kind = type(algos.find(data["algorithm"]).spec)
        try:
            return cls(**{**data, "spec": from_json(kind, data["spec"])})
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from None

    def folder_name(self, settings: Iterable[str] = ()) -> str:
        """Algorithm, what was set, environment and seed, as a name that any file system takes."""
        parts = ["_".join([self.algorithm, *settings]), self.env, f"seed{self.seed}"]
        return "_".join(re.sub(r"[^\w.,=+-]", "-", part) for part in parts)
