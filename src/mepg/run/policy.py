"""The policy that a run leaves: one file that needs no other, and cannot run code."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from mepg.core.arithmetic import ours
from mepg.core.types import Trainable
from mepg.envs.env import Env
from mepg.envs.spaces import Row
from mepg.errors import UsageError
from mepg.run.checkpoint import Checkpoints, flatten, unflatten
from mepg.run.config import Config
from mepg.run.files import Damaged, read_sealed_arrays, write_sealed_arrays
from mepg.run.folder import Folder
from mepg.run.identity import Identity


class Policy(NamedTuple):
    """A trained agent, without the means to go on training."""

    config: Config
    state: Any
    step: int  # of training, at which it was saved
    exploit: Any

    @property
    def title(self) -> str:
        """Whose it is, and whether there is more to come."""
        whose = f"{self.config.algorithm} on {self.config.env}"
        if self.step == self.config.steps:
            return whose
        return f"{whose}; the run is unfinished, this is its policy at step {self.step:,}"

    def act(self, obs: Row) -> Row:
        """The action in [-1, 1] without exploration."""
        action: Row = np.asarray(self.exploit(self.state, obs[None]))[0]
        return action


def save_policy(folder: Folder, identity: Identity, state: Any) -> None:
    """Write the networks as they are now, and whose they are."""
    write_sealed_arrays(folder.policy_file, flatten(online_networks(state), "agent"), identity.to_json())


@ours
def load_policy(folder: Folder, env: Env) -> Policy:
    """The final policy of the run in `folder`, or while it is unfinished that of its newest whole checkpoint.

    It is played only in an environment that has the observations and actions it was trained with.
    """
    identity = folder.identity()
    identity.require_fit(env.spaces)
    config = identity.config
    agent = config.build(env.sizes)
    state, step = read_state(folder, config, jax.eval_shape(agent.init, jax.random.key(0)))
    return Policy(config, state, step, ours(jax.jit(agent.exploit)))


def read_state(folder: Folder, config: Config, template: Any) -> tuple[Any, int]:
    """The networks of an agent whose whole state is like `template`, and the step at which they were saved."""
    if folder.policy_file.exists():
        try:
            arrays, about = read_sealed_arrays(folder.policy_file)
            if Config.from_json(about.get("config")) != config:
                raise Damaged(f"{folder.policy_file.name} is another run's")
            return unflatten(arrays, online_networks(template), "agent"), config.steps
        except (Damaged, UsageError) as damage:
            raise UsageError(f"{folder.path} holds a damaged policy: {damage}") from None
    checkpoints = Checkpoints(folder.path, config.fingerprint)
    for step in checkpoints.steps():
        try:
            state = unflatten(checkpoints.load_agent(step)[0], template, "agent")
            return online_networks(state), step
        except Damaged:
            continue
    raise UsageError(f"{folder.path} holds no policy yet: its run has not reached a checkpoint")


def online_networks(state: Any) -> Any:
    """The state without target networks and Adam's moments: what a policy needs to act, and to be asked about."""
    return jax.tree.map(
        lambda leaf: Trainable(leaf.params, None, None) if isinstance(leaf, Trainable) else leaf,
        state,
        is_leaf=lambda leaf: isinstance(leaf, Trainable),
    )
