"""What every artifact says about itself, whichever file it is in: a run, a policy, a saved model."""

from __future__ import annotations

from typing import NamedTuple

from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.storage.files import JsonObject
from mepg.training.config import Config


class Identity(NamedTuple):
    """Which agent it is, and which observations and actions it is for."""

    config: Config
    spaces: Spaces

    def to_json(self) -> JsonObject:
        return {"config": self.config.to_json(), **self.spaces.to_json()}

    @classmethod
    def from_json(cls, data: JsonObject) -> Identity:
        """What `to_json` wrote, perhaps among other things; a UsageError says what is wrong with it."""
        config = Config.from_json(data.get("config"))
        try:
            return cls(config, Spaces.from_json(config.env, data))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"its description of observations and actions is not valid: {error!r}") from None

    def require_fit(self, env: Spaces) -> None:
        """Refuse an environment with other observations or actions: what was learned would mean something else."""
        if difference := self.spaces.difference(env):
            raise UsageError(f"this agent was trained on {self.spaces.id} with {difference}")
