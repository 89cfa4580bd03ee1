"""The agent of a model: its compiled program, its state, and the loop in which it learns if it has an environment."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from mepg.algos import asks_critics, is_stochastic
from mepg.api.model_config import ModelConfig
from mepg.api.vecenv import VecEnv, register_with_stable_baselines
from mepg.envs.spaces import Spaces
from mepg.envs.vector import Envs, StableBaselinesEnvs, make_envs
from mepg.errors import UsageError
from mepg.storage.identity import Identity
from mepg.training.assembly import assemble
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import DeviceState, Program
from mepg.training.queries import AgentQueries
from mepg.training.replay import Replay


class LearningLock:
    """Held by the one call that learns with a model or changes its environment. Others are refused, and do not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None  # the thread that holds it

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            where = "in the call that this callback is part of" if self._is_mine() else "in another thread"
            raise UsageError(f"this model is learning already, {where}: wait for its end, or use copy.deepcopy(model)")
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def _is_mine(self) -> bool:
        return self._owner == threading.get_ident()

    def refuse_other_threads(self, way_out: str) -> None:
        """A UsageError if another thread is learning."""
        if self.locked() and not self._is_mine():
            raise UsageError(f"another thread is learning with this model: {way_out}")


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
        seen = config.with_view(spaces.sizes).actor_parts
        self._seen = None if seen is None else {part.name for part in seen}  # what a policy needs; None: everything

    @classmethod
    def for_env(cls, model_config: ModelConfig, env: Any, copies: int, learning_lock: LearningLock) -> Learner:
        """A new agent that learns in `env`, or if that is an id, in this many copies of it."""
        return cls._in_envs(model_config, make_envs(env, copies, model_config.seed), env, learning_lock)

    @classmethod
    def _in_envs(cls, model_config: ModelConfig, envs: Envs, env: Any, learning_lock: LearningLock) -> Learner:
        model_config.n_envs = envs.count
        loop = assemble(model_config.run_config(envs.spaces.id), envs, data=model_config.data)
        model_config.run_settings["backend"] = loop.config.backend  # wherever else it learns
        for note in (envs.spaces.observations.note, loop.note):
            if note:
                warnings.warn(note, stacklevel=4)  # where a user makes a model, or sets its environment
        learner = cls(loop.config, envs.spaces, loop.program, loop, learning_lock)
        learner.env = env if isinstance(envs, StableBaselinesEnvs) else VecEnv(envs, learner.lend_envs)
        learner._env_id = env if isinstance(env, str) else None
        return learner

    def in_other_envs(self, model_config: ModelConfig, env: Any, copies: int) -> Learner:
        """The same agent in other environments with the same spaces."""
        envs = make_envs(env, copies, model_config.seed)
        Identity(self.config, self.spaces).require_fit(envs.spaces)
        state, before = self.state, self.training
        learner = self._in_envs(model_config, envs, env, self._learning_lock)
        learner.loop.restart(state, before.step, before.next_episode)
        if before.replay is not None:
            learner.loop.replay.restore_from(before.replay)
        learner.predictions, learner.draws = self.predictions, self.draws
        return learner

    def copy(self, model_config: ModelConfig, learning_lock: LearningLock) -> Learner:
        """All that was learned, in environments of its own if an id says how to make them, or else in none."""
        now = self.training
        if isinstance(now, Loop) and self._env_id is not None:
            snapshot = now.snapshot()
            envs = make_envs(self._env_id, now.envs.count, model_config.seed)
            learner = self._in_envs(model_config, envs, self._env_id, learning_lock)
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

    def set_state(self, state: Any) -> None:
        self.training.device_state = self.program.flatten(state)

    def predict(self, observation: Any, *, deterministic: bool) -> npt.NDArray[Any]:
        """Actions within the environment's own bounds, for one observation or a batch."""
        drawn = is_stochastic(self.config.spec) and not deterministic
        whole = self._seen is None or (drawn and asks_critics(self.config.spec))
        obs, is_single = self.spaces.read_observations(observation, None if whole else self._seen)
        with self.lock:
            if not drawn:
                actions = self.program.exploit(self.training.device_state, obs)
            else:
                self.predictions += 1
                actions = self.queries.draw_actions(self.state, obs, self.predictions)
        scaled: npt.NDArray[Any] = self.spaces.scale(actions[0] if is_single else actions)
        return scaled

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
