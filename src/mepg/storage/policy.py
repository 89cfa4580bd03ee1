"""The policies that a run saves: each is one file that needs no other, and cannot run code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mepg.core.types import Array, Trainable
from mepg.envs.spaces import Action, Observation, Spaces
from mepg.errors import UsageError
from mepg.jax_defaults import with_jax_defaults
from mepg.storage.checkpoint import Checkpoints, PyTree, flatten, unflatten
from mepg.storage.files import (
    Damaged,
    JsonObject,
    parse_count,
    parse_finite,
    path_exists,
    read_sealed_arrays,
    write_sealed_arrays,
)
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.training.config import Config


class SavedPolicy(NamedTuple):
    """A trained agent that can act, but not continue training."""

    config: Config
    state: PyTree
    step: int  # of training, at which it was saved
    exploit: Callable[[PyTree, Observation], Array]  # state, observations [B, S] -> actions [B, A]
    best_return: float | None = None  # of its evaluation, if it was saved as the best; else None

    @property
    def title(self) -> str:
        """Algorithm and environment, and the step if the policy is not the run's last."""
        run = f"{self.config.algorithm} on {self.config.env}"
        if self.best_return is not None:
            return f"{run}; its best evaluation so far, {self.best_return:,.1f} at step {self.step:,}"
        if self.step == self.config.steps:
            return run
        return f"{run}; the run is unfinished, this is its policy at step {self.step:,}"

    def act(self, obs: Observation) -> Action:
        """The action in [-1, 1] without exploration."""
        action: Action = np.asarray(self.exploit(self.state, obs[None]))[0]
        return action


def save_policy(folder: Folder, identity: Identity, state: PyTree, step: int) -> None:
    """Write the networks of this step, and which run's they are."""
    _write(folder.policy_file, identity, state, {"step": step})


def save_best(folder: Folder, identity: Identity, state: PyTree, step: int, mean_return: float) -> None:
    """The same, for the evaluation that is the best so far."""
    _write(folder.best_file, identity, state, {"step": step, "return": mean_return})


def _write(path: Path, identity: Identity, state: PyTree, metadata: JsonObject) -> None:
    # Without its length: the same bytes, whether the run was this long at once or made longer later.
    run = {**identity.to_json(), "config": identity.config.without_length()}
    write_sealed_arrays(path, flatten(online_networks(state), "agent"), {**run, **metadata})


def require_same_run(path: Path, metadata: JsonObject, config: Config) -> None:
    """Refuse a policy that belongs to another run. Its file does not say how long that run is to be."""
    stored = metadata.get("config")
    try:
        its_own = isinstance(stored, dict) and Config.from_json({**stored, "steps": config.steps}) == config
    except UsageError as error:
        raise Damaged(f"{path.name}: {error}") from None
    if not its_own:
        raise Damaged(f"{path.name} is another run's")


def read_networks(path: Path, config: Config, template: PyTree) -> tuple[PyTree, JsonObject]:
    """A file's networks, which have to be this run's, and its metadata; else `Damaged`."""
    arrays, metadata = read_sealed_arrays(path)
    require_same_run(path, metadata, config)
    return unflatten(arrays, online_networks(template), "agent"), metadata


def read_best(folder: Folder, config: Config, template: PyTree) -> tuple[PyTree, int, float]:
    """What `save_best` wrote: the networks, their step and their return."""
    if not path_exists(folder.best_file):
        raise UsageError(f"{folder.path} holds no {folder.best_file.name}: its run has not been evaluated yet")
    try:
        networks, metadata = read_networks(folder.best_file, config, template)
        return networks, parse_count(metadata["step"]), parse_finite(metadata["return"])
    except (Damaged, KeyError, TypeError, ValueError) as damage:
        raise UsageError(f"{folder.path} holds a damaged policy: {damage}") from None


def best_step(folder: Folder) -> int | None:
    """The step of the best evaluation so far; None if its policy is not there, or damaged."""
    try:
        return parse_count(read_sealed_arrays(folder.best_file)[1]["step"])
    except (Damaged, KeyError, ValueError):
        return None


@with_jax_defaults
def load_policy(folder: Folder, spaces: Spaces, *, best: bool = False) -> SavedPolicy:
    """The final policy of the run in `folder`, or while it is unfinished that of its newest whole checkpoint.

    :param spaces: of the environment to play it in: they have to be those that it was trained with
    :param best: that of its best evaluation instead
    """
    identity = folder.identity()
    identity.require_fit(spaces)
    config = identity.config
    agent = config.build(spaces.sizes)
    template = jax.eval_shape(agent.init, jax.random.key(0))
    if best:
        state, step, mean_return = read_best(folder, config, template)
        return SavedPolicy(config, state, step, with_jax_defaults(jax.jit(agent.exploit)), mean_return)
    state, step = read_state(folder, config, template)
    return SavedPolicy(config, state, step, with_jax_defaults(jax.jit(agent.exploit)))


def read_state(folder: Folder, config: Config, template: PyTree) -> tuple[PyTree, int]:
    """The networks of an agent whose whole state has the structure of `template`, and the step of them."""
    if path_exists(folder.policy_file):
        try:
            networks, metadata = read_networks(folder.policy_file, config, template)
            return networks, parse_count(metadata["step"])
        except (Damaged, KeyError, TypeError, ValueError) as damage:
            raise UsageError(f"{folder.path} holds a damaged policy: {damage}") from None
    checkpoints = Checkpoints(folder.path, config)
    for step in checkpoints.steps():
        try:
            state = unflatten(checkpoints.load_agent(step)[0], template, "agent")
            return online_networks(state), step
        except Damaged:
            continue
    raise UsageError(f"{folder.path} holds no policy yet: its run has not reached a checkpoint")


def online_networks(state: PyTree) -> PyTree:
    """The state without target networks and Adam's moments: what a policy needs to act and to answer queries."""
    return jax.tree.map(
        lambda leaf: Trainable(leaf.params, None, None) if isinstance(leaf, Trainable) else leaf,
        state,
        is_leaf=_is_trainable,
    )


def restore_trainables(online: PyTree, template: PyTree) -> PyTree:
    """The inverse of `online_networks`: targets begin as copies of the networks, and Adam starts afresh."""

    def complete(expected: PyTree, leaf: PyTree) -> PyTree:
        if not _is_trainable(expected):
            return leaf
        moments = jax.tree.map(lambda moment: jnp.zeros(moment.shape, moment.dtype), expected.moments)
        return Trainable(leaf.params, None if expected.target is None else leaf.params, moments)

    return jax.tree.map(complete, template, online, is_leaf=_is_trainable)


def _is_trainable(leaf: object) -> bool:
    return isinstance(leaf, Trainable)
