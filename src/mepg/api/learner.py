"""The agent of a model: its compiled program, its state, and the loop in which it learns if it has an environment."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.algos import explores_with_critics, is_stochastic
from mepg.api.arguments import integer
from mepg.api.model_config import in_envs
from mepg.api.vecenv import VecEnv, register_with_stable_baselines
from mepg.core.posterior import SAMPLES
from mepg.envs.legal import add_action_masks
from mepg.envs.spaces import Spaces
from mepg.envs.vector import Envs, StableBaselinesEnvs, make_envs
from mepg.errors import UsageError, unknown
from mepg.storage.checkpoint import flatten, unflatten
from mepg.storage.data import with_data
from mepg.storage.identity import Identity
from mepg.training.assembly import assemble
from mepg.training.config import Config
from mepg.training.data import Data
from mepg.training.loop import Loop
from mepg.training.program import DeviceState, Program
from mepg.training.queries import AgentQueries
from mepg.training.replay import Replay
from mepg.words import many

Floats = npt.NDArray[np.float32]


class LearningLock:
    """Held by the one call that learns with a model or changes its environment. Others are refused, and do not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None  # the thread that holds it

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            is_mine = self._owner == threading.get_ident()
            where = "in the call that this callback is part of" if is_mine else "in another thread"
            raise UsageError(f"this model is learning already, {where}: wait for its end, or use copy.deepcopy(model)")
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def refuse_other_threads(self, hint: str) -> None:
        """A UsageError if another thread is learning."""
        if self.locked() and self._owner != threading.get_ident():
            raise UsageError(f"another thread is learning with this model: {hint}")


@dataclass
class TrainingState:
    """What a model without an environment has in the place of a loop, under the same names."""

    device_state: DeviceState
    step: int
    next_episode: int
    replay: Replay | None  # None: it was not saved with the model
    lock: threading.RLock = field(default_factory=threading.RLock)


class Learner:
    """An agent for certain observations and actions, and how far it has come."""

    env: Any = None  # the environments, with the interface of Stable-Baselines3's VecEnv
    _env_id: str | None = None  # theirs, if that is all that was given
    data: Data | None = None  # that it began with
    predictions = 0  # so far, of drawn actions
    draws = 0  # so far, of sub-networks

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        program: Program,
        training: Loop | TrainingState,
        learning_lock: LearningLock,
    ) -> None:
        self.config, self.spaces, self.program, self.training = config, spaces, program, training
        self.queries = AgentQueries(program.agent, config.seed)
        self._learning_lock = learning_lock
        entries = config.with_actor_entries(spaces.sizes).actor_entries
        self._actor_entries = None if entries is None else {entry.name for entry in entries}  # None: all

    @classmethod
    def for_env(cls, config: Config, env: object, copies: int, learning_lock: LearningLock) -> Learner:
        """A new agent that learns in `env`, or if that is an id, in this many copies of it."""
        config, data = with_data(config)
        return cls._in_envs(config, make_envs(env, copies, config.seed), env, learning_lock, data)

    @classmethod
    def _in_envs(
        cls, config: Config, envs: Envs, env: object, learning_lock: LearningLock, data: Data | None
    ) -> Learner:
        loop = assemble(in_envs(config, envs.spaces.id, envs.count), envs, data=data)
        for note in (envs.spaces.observations.note, loop.note):
            if note:
                warnings.warn(note, stacklevel=4)  # where a user makes a model, or sets its environment
        learner = cls(loop.config, envs.spaces, loop.program, loop, learning_lock)
        learner.env = env if isinstance(envs, StableBaselinesEnvs) else VecEnv(envs, learner.lend_envs)
        learner._env_id = env if isinstance(env, str) else None
        learner.data = data
        return learner

    def in_other_envs(self, config: Config, env: object, copies: int) -> Learner:
        """The same agent in other environments with the same spaces."""
        envs = make_envs(env, copies, config.seed)
        Identity(self.config, self.spaces).require_fit(envs.spaces)
        state, before = self.state, self.training
        config, data = with_data(config) if self.data is None else (config, self.data)
        learner = self._in_envs(config, envs, env, self._learning_lock, data)
        learner.loop.restart(state, before.step, before.next_episode)
        if before.replay is not None:
            learner.loop.replay.restore_from(before.replay)
        learner.predictions, learner.draws = self.predictions, self.draws
        return learner

    def copy(self, learning_lock: LearningLock) -> Learner:
        """All that was learned, in environments of its own if an id says how to make them, or else in none."""
        now = self.training
        if isinstance(now, Loop) and self._env_id is not None:
            snapshot = now.snapshot()
            envs = make_envs(self._env_id, now.envs.count, self.config.seed)
            learner = self._in_envs(self.config, envs, self._env_id, learning_lock, self.data)
            learner.loop.replay.restore_from(now.replay)
            learner.loop.restore(snapshot)
            learner.loop.envs_disturbed = now.envs_disturbed
        else:
            replay = None
            if now.replay is not None:
                replay = Replay(now.replay.capacity, now.replay.sizes)
                replay.restore_from(now.replay)
            training = TrainingState(self.program.flatten(self.state), now.step, now.next_episode, replay)
            learner = Learner(self.config, self.spaces, self.program, training, learning_lock)
            learner.data = self.data
        learner.predictions, learner.draws = self.predictions, self.draws
        return learner

    @property
    def loop(self) -> Loop:
        """A UsageError if there is none."""
        if not isinstance(self.training, Loop):
            raise UsageError("this model has no environment to learn in: model.set_env(env), or load(..., env=env)")
        return self.training

    @property
    def lock(self) -> threading.RLock:
        """To be held while the state is read: another thread may be learning, and an update overwrites the state."""
        return self.training.lock

    @property
    def state(self) -> Any:
        """The agent's."""
        return self.program.unflatten(self.training.device_state)

    def predict(self, observation: object, *, deterministic: bool, action_masks: Any = None) -> npt.NDArray[Any]:
        """Actions within the environment's own bounds, for one observation or a batch."""
        drawn = is_stochastic(self.config.spec) and not deterministic
        whole = self._actor_entries is None or (drawn and explores_with_critics(self.config.spec))
        obs, is_single = self.spaces.read_observations(observation, None if whole else self._actor_entries)
        if action_masks is None and self.spaces.sizes.n_legal:
            warnings.warn(
                "predict without action_masks may choose an action that is not legal: give it what the environment's "
                "action_masks(), or info['action_mask'], says",
                stacklevel=3,
            )
        obs = add_action_masks(self.spaces, obs, action_masks)
        with self.lock:
            if not drawn:
                actions = self.program.exploit(self.training.device_state, obs)
            else:
                self.predictions += 1
                actions = self.queries.draw_actions(self.state, obs, self.predictions)
        scaled: npt.NDArray[Any] = self.spaces.scale(actions[0] if is_single else actions)
        return scaled

    def q_posterior(self, observation: object, action: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Mean and standard deviation of Q: [B] each, or two numbers for one pair."""
        obs, actions, is_single = self._read_pairs(observation, action)
        self._warn_of_samples()
        with self.lock:
            mean, variance = self.queries.moments(self.state, obs, actions)
        std = np.sqrt(variance)
        return (mean[0], std[0]) if is_single else (mean, std)

    def q_covariance(self, observation: object, action: npt.ArrayLike) -> Floats:
        """[B, B]"""
        obs, actions, _ = self._read_pairs(observation, action)
        self._warn_of_samples()
        with self.lock:
            return self.queries.covariance(self.state, obs, actions)

    def q_samples(self, observation: object, action: npt.ArrayLike, n: int) -> Floats:
        """Q of `n` sub-networks, [n, B], or [n] for one pair."""
        obs, actions, is_single = self._read_pairs(observation, action)
        n = integer("n", n, least=1, most=10**6)
        with self.lock:
            self.draws += 1
            if not len(obs):
                return np.empty((n, 0), np.float32)
            q = self.queries.subnetworks(self.state, obs, actions, n, self.draws)
        return q[:, 0] if is_single else q

    def _warn_of_samples(self) -> None:
        """Warn if mean and variance have no closed form."""
        if not self.queries.beliefs.closed_form:
            warnings.warn(
                f"the masks of this {self.config.algorithm} have no closed form: mean and spread of Q are estimated "
                f"from {SAMPLES} sub-networks",
                stacklevel=4,
            )

    def _read_pairs(self, observation: object, action: npt.ArrayLike) -> tuple[Floats, Floats, bool]:
        """[B, S], [B, A] in [-1, 1], and whether both were single ones."""
        obs, is_single_obs = self.spaces.read_observations(observation)
        obs = add_action_masks(self.spaces, obs)
        actions, is_single_action = self.spaces.read_actions(action)
        count = len(actions) if is_single_obs else len(obs)
        if not is_single_action and len(actions) != count:
            raise UsageError(f"{many(len(obs), 'observation')} and {many(len(actions), 'action')} do not make pairs")
        obs, actions = (np.broadcast_to(each, (count, each.shape[1])) for each in (obs, actions))
        return obs, actions, is_single_obs and is_single_action

    def get_parameters(self) -> dict[str, Any]:
        """Copies of the state's arrays: {"actor": {"params": {"0": {"w": ...}}}}."""
        tree: dict[str, Any] = {}
        with self.lock:
            for name, array in flatten(self.state, "agent").items():
                _, *path, last = name.split(".")
                inner = tree
                for part in path:
                    inner = inner.setdefault(part, {})
                inner[last] = np.array(array)
        return tree

    def set_parameters(self, values: Mapping[str, Any], *, exact_match: bool) -> None:
        """Put arrays into the state, by the names that `flatten` gives them; a UsageError says which does not fit."""
        with self.lock:
            arrays = flatten(self.state, "agent")
            missing = [name for name in arrays if name not in values]
            if exact_match and missing:
                raise UsageError(f"{_without_prefix(missing[0])} is missing: exact_match=False sets only what is given")
            for name in values:
                if name not in arrays:
                    raise unknown("parameter", _without_prefix(name), map(_without_prefix, arrays))
            arrays |= {name: _like(value, arrays[name], _without_prefix(name)) for name, value in values.items()}
            self.training.device_state = self.program.flatten(unflatten(arrays, self.state, "agent"))

    def get_env(self) -> Any:
        """The environments, for the user to reset and step."""
        if not isinstance(self.env, VecEnv) and not self._learning_lock.locked():
            self.lend_envs()  # a user's own VecEnv does not tell us when it is used
        return register_with_stable_baselines(self.env)

    def lend_envs(self) -> None:
        """Note that the user is about to use the environments: `learn` then begins new episodes."""
        self._learning_lock.refuse_other_threads("its environments are in use; make others to evaluate in")
        if isinstance(self.training, Loop):
            self.training.envs_disturbed = True


def _without_prefix(name: str) -> str:
    return name.removeprefix("agent.")


def _like(value: object, expected: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception:  # ragged, or another library's array that will not be one of NumPy's
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, expected.dtype, "same_kind"):
        raise UsageError(f"{name} has to be numbers of type {expected.dtype}, not {array.dtype}")
    if array.shape != expected.shape:
        raise UsageError(f"{name} has shape {expected.shape}, not {array.shape}")
    with np.errstate(over="ignore"):
        array = array.astype(expected.dtype)
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds a number that is not finite")
    return array
