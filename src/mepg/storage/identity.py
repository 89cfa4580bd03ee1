"""What every artifact of ours says about itself, whichever file it is in: a run, a policy, a saved model."""

from __future__ import annotations

from typing import Any, NamedTuple

from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.training.config import Config


class Identity(NamedTuple):
    """Which agent it is, and which observations and actions it was made for."""

    config: Config
    spaces: Spaces | None  # None: older runs do not say

    def to_json(self) -> dict[str, Any]:
        about: dict[str, Any] = {"config": self.config.to_json()}
        return about if self.spaces is None else about | self.spaces.to_json()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Identity:
        """What `to_json` wrote, among other things perhaps; a UsageError says what is wrong with it."""
        config = Config.from_json(data.get("config"))
        if "sizes" not in data:
            return cls(config, None)
        try:
            return cls(config, Spaces.from_json(config.env, data))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"what it says about observations and actions cannot be true: {error!r}") from None

    def require_fit(self, env: Spaces) -> None:
        """Refuse an environment with other observations or actions: what was learned would mean something else."""
        if self.spaces is not None and (difference := self.spaces.difference(env)):
            raise UsageError(f"this agent was trained on {self.spaces.id} with {difference}")
