"""What a model's critics believe: Q and its uncertainty for a user's observations and actions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.api.arguments import integer
from mepg.api.learner import Learner
from mepg.core.posterior import SAMPLES
from mepg.envs.legal import add_action_masks
from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.words import many

Floats = npt.NDArray[np.float32]


def mean_and_std(learner: Learner, observation: Any, action: npt.ArrayLike) -> tuple[Floats, Floats]:
    """[B] each, or two numbers for one pair."""
    obs, actions, is_single = _read_pairs(learner.spaces, observation, action)
    _warn_of_samples(learner)
    with learner.lock:
        mean, variance = learner.queries.moments(learner.state, obs, actions)
    std = np.sqrt(variance)
    return (mean[0], std[0]) if is_single else (mean, std)


def covariance(learner: Learner, observation: Any, action: npt.ArrayLike) -> Floats:
    """[B, B]"""
    obs, actions, _ = _read_pairs(learner.spaces, observation, action)
    _warn_of_samples(learner)
    with learner.lock:
        return learner.queries.covariance(learner.state, obs, actions)


def samples(learner: Learner, observation: Any, action: npt.ArrayLike, n: int) -> Floats:
    """Q of `n` sub-networks, [n, B], or [n] for one pair."""
    obs, actions, is_single = _read_pairs(learner.spaces, observation, action)
    n = integer("n", n, least=1, most=10**6)
    with learner.lock:
        learner.draws += 1
        if not len(obs):
            return np.empty((n, 0), np.float32)
        q = learner.queries.subnetworks(learner.state, obs, actions, n, learner.draws)
    return q[:, 0] if is_single else q


def _warn_of_samples(learner: Learner) -> None:
    """Warn if mean and variance have no closed form."""
    if not learner.queries.beliefs.closed_form:
        warnings.warn(
            f"the masks of this {learner.config.algorithm} have no closed form: mean and spread of Q are estimated "
            f"from {SAMPLES} sub-networks",
            stacklevel=4,
        )


def _read_pairs(spaces: Spaces, observation: Any, action: npt.ArrayLike) -> tuple[Floats, Floats, bool]:
    """[B, S], [B, A] in [-1, 1], and whether both were single ones."""
    obs, is_single_obs = spaces.read_observations(observation)
    obs = add_action_masks(spaces, obs)
    actions, is_single_action = spaces.read_actions(action)
    count = len(actions) if is_single_obs else len(obs)
    if not is_single_action and len(actions) != count:
        raise UsageError(f"{many(len(obs), 'observation')} and {many(len(actions), 'action')} do not make pairs")
    obs, actions = (np.broadcast_to(each, (count, each.shape[1])) for each in (obs, actions))
    return obs, actions, is_single_obs and is_single_action
