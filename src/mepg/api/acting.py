"""What a model does without learning: it acts, and says what its critics believe."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg.algos import is_stochastic
from mepg.api.arguments import whole
from mepg.api.vecenv import VecEnv, known_to_stable_baselines
from mepg.core.posterior import SAMPLES
from mepg.envs.simulators import first_task
from mepg.envs.spaces import Spaces
from mepg.envs.vector import Envs, StableBaselinesEnvs, make_envs
from mepg.errors import UsageError
from mepg.storage.identity import Identity
from mepg.training.assembly import assemble
from mepg.training.config import MOST, Config
from mepg.training.loop import Loop
from mepg.training.program import DeviceState, Program
from mepg.training.queries import AgentQueries
from mepg.training.replay import Replay
from mepg.words import many


@dataclass
class Loaded:
    """A model that has no environment to learn in."""

    device_state: DeviceState
    step: int
    next_episode: int
    replay: Replay | None  # None: it was not saved with the model
    lock: threading.RLock  # as `Loop.lock`


class Acting:
    """An agent, and the observations and actions that it is for."""

    algorithm: ClassVar[str] = ""  # as `mepg list` names it
    _spec: Any
    _seed: int
    _n_envs: int  # copies that are made of an environment by its id
    _env: Any = None  # with the interface of Stable-Baselines3's VecEnv
    _env_id: str | None = None  # of the environments, if that is all that was given
    _learning: threading.Lock
    _learner: int | None = None  # the thread that holds it
    _run_settings: dict[str, Any]  # those of `run.config` that a model has too
    _config: Config
    _spaces: Spaces
    _program: Program
    _questions: AgentQueries
    _standing: Loop | Loaded | None = None
    _learn_began_at = 0  # the step at which `num_timesteps` was 0
    _predictions = 0  # so far
    _draws = 0  # of sub-networks

    def _enter(self, envs: Envs, env: Any) -> None:
        """Get ready to act in these environments."""
        self._spaces, self._env_id = envs.spaces, env if isinstance(env, str) else None
        self._env = env if isinstance(envs, StableBaselinesEnvs) else VecEnv(envs, lambda: self._lend_envs(envs))
        self._n_envs = envs.count
        self._standing = loop = assemble(self._make_config(envs.spaces.id, envs.count), envs)
        self._config = loop.config
        self._run_settings["backend"] = loop.config.backend  # wherever else it learns
        if loop.note:
            warnings.warn(loop.note, stacklevel=3)
        self._program, self._questions = loop.program, AgentQueries(loop.program.agent, self.seed)

    def _make_config(self, env_id: str, envs: int) -> Config:
        endless = MOST // envs * envs  # `learn` says how many steps to take
        return Config(
            algorithm=self.algorithm,
            spec=self.spec,
            env=env_id,
            seed=self.seed,
            steps=endless,
            eval_every=endless,
            envs=envs,
            **self._run_settings,
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While this is open, no other call may learn with this model or use its environments."""
        if not self._learning.acquire(blocking=False):
            where = "in the call that this callback is part of" if self._mine() else "in another thread"
            raise UsageError(f"this model is learning already, {where}: wait for its end, or use copy.deepcopy(model)")
        self._learner = threading.get_ident()
        try:
            yield
        finally:
            self._learner = None
            self._learning.release()

    def _mine(self) -> bool:
        """Whether this thread is the one that learns."""
        return self._learner == threading.get_ident()

    def _refuse_while_learning_elsewhere(self, what: str) -> None:
        if self._learning.locked() and not self._mine():
            raise UsageError(f"another thread is learning with this model: {what}")

    @contextlib.contextmanager
    def _still(self) -> Iterator[Loop | Loaded]:
        """The model's current state, locked: another thread may be learning, and an update overwrites the state."""
        now = self._stand()
        with now.lock:
            yield now

    # Acting

    def predict(
        self,
        observation: npt.ArrayLike,
        state: Any = None,
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], Any]:
        """Actions for one observation [S] or a batch [B, S], within the environment's own bounds; and `state` again.

        With `deterministic=False` a stochastic policy's actions are drawn. A deterministic policy acts the same
        either way: the noise that it explores with belongs to `learn`. `state` and `episode_start` are for recurrent
        policies, of which there are none.
        """
        obs, alone = self._need_spaces().read_observations(observation)
        with self._still() as now:
            if deterministic or not is_stochastic(self.spec):
                actions = self._program.exploit(now.device_state, obs)
            else:
                self._predictions += 1
                actions = self._questions.draw_actions(self._state(now), obs, self._predictions)
        return self._spaces.scale(actions[0] if alone else actions), state

    # What the critics believe

    def q_posterior(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> tuple[Any, Any]:
        """Mean and standard deviation of Q over the critics' masks, for one observation and action or a batch.

        One forward pass: with masks on the last hidden layer both have a closed form. The mean is the complete
        network's Q. With several critics or members, masked or not, it is their mean, and the standard deviation
        is within and between them; a single critic without masks has none, 0. Where masks on several layers, or
        before a normalisation, have no closed form, both are estimated from drawn sub-networks, and a warning says so.

        :param observation: [S] or [B, S]
        :param action: [A] or [B, A], within the environment's own bounds, as `predict` returns them. A single
            observation or action is paired with each of a batch of the other.
        """
        obs, actions, alone = self._check_pairs(observation, action)
        self._warn_of_samples()
        with self._still() as now:
            mean, variance = self._questions.moments(self._state(now), obs, actions)
        std = np.sqrt(variance)
        return (mean[0], std[0]) if alone else (mean, std)

    def q_covariance(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The covariance of Q between any two of these inputs, under the same mask: [B, B], or [1, 1] for one."""
        obs, actions, _ = self._check_pairs(observation, action)
        self._warn_of_samples()
        with self._still() as now:
            return self._questions.covariance(self._state(now), obs, actions)

    def q_samples(self, observation: npt.ArrayLike, action: npt.ArrayLike, n: int = 100) -> npt.NDArray[np.float32]:
        """Q of `n` sub-networks, drawn: [n] for one input, [n, B] for a batch, all under the same masks."""
        obs, actions, alone = self._check_pairs(observation, action)
        if whole("n", n, least=1) > 10**6:
            raise UsageError(f"n must be in [1, 1000000], not {n}")
        with self._still() as now:
            self._draws += 1
            if not len(obs):
                return np.empty((int(n), 0), np.float32)
            q = self._questions.subnetworks(self._state(now), obs, actions, int(n), self._draws)
        return q[:, 0] if alone else q

    def _warn_of_samples(self) -> None:
        if not self._questions.beliefs.closed_form:
            warnings.warn(
                f"the masks of this {self.algorithm} have no closed form: mean and spread of Q are estimated "
                f"from {SAMPLES} sub-networks",
                stacklevel=3,
            )

    def _check_pairs(
        self, observation: npt.ArrayLike, action: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], bool]:
        """[B, S], [B, A] in [-1, 1], and whether both were single ones."""
        obs, obs_alone = self._need_spaces().read_observations(observation)
        actions, action_alone = self._need_spaces().read_actions(action)
        rows = len(actions) if obs_alone else len(obs)
        if not action_alone and len(actions) != rows:
            raise UsageError(f"{many(len(obs), 'observation')} and {many(len(actions), 'action')} do not make pairs")
        obs, actions = (np.broadcast_to(each, (rows, each.shape[1])) for each in (obs, actions))
        return obs, actions, obs_alone and action_alone

    @property
    def spec(self) -> Any:
        """The algorithm's, with the arguments that were given."""
        return self._spec

    @property
    def seed(self) -> int:
        return self._seed

    @property
    def env(self) -> Any:
        """The environments that it learns in, or None; `get_env()` is how to use them."""
        return self._env

    @property
    def num_timesteps(self) -> int:
        """Steps in all environments together, since `learn` last began counting."""
        return 0 if self._standing is None else self._standing.step - self._learn_began_at

    @num_timesteps.setter
    def num_timesteps(self, steps: int) -> None:
        self._learn_began_at = self._stand().step - whole("num_timesteps", steps, least=0)

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        return self._need_spaces().observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self._need_spaces().action_space

    @property
    def n_envs(self) -> int:
        return self._n_envs

    def get_env(self) -> Any:
        """The environments that it learns in, with the interface of Stable-Baselines3's VecEnv.

        Resetting or stepping them ends the current episodes: `learn` continues with new ones.
        """
        if not isinstance(self.env, VecEnv) and not self._learning.locked():
            self._lend_envs(None)  # a user's own VecEnv does not tell us when it is used
        return known_to_stable_baselines(self.env)

    def _lend_envs(self, envs: Envs | None) -> None:
        """Note that the user is about to use these environments: `learn` then begins new episodes.

        Not if they came back by `set_env(get_env())`: then it is `learn` that steps them.
        """
        self._refuse_while_learning_elsewhere("its environments are in use; make others to evaluate in")
        if isinstance(self._standing, Loop) and envs in (None, self._standing.envs):
            self._standing.left = True

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on in another environment with the same spaces; the replay memory stays.

        :param env: as in the constructor; of an id, as many copies are made as there were environments before
        :param force_reset: True: new episodes are begun
        """
        require_new_episodes(force_reset)
        with self._alone():
            envs = make_envs(env, self._n_envs if isinstance(env, str) else 1, self.seed)
            if self._standing is None:  # the first that it is given
                self._enter(envs, env)
                return
            Identity(self._config, self._spaces).require_fit(envs.spaces)
            then = self._stand()
            state = self._program.unflatten(then.device_state)
            self._enter(envs, env)
            now = self._need_loop()
            now.restart(state, then.step, then.next_episode)
            if then.replay is not None:
                now.replay.restore_from(then.replay)

    def get_vec_normalize_env(self) -> Any:
        """Stable-Baselines3's VecNormalize around the environment, if there is one."""
        env = self.env
        while env is not None and type(env).__name__ != "VecNormalize":
            env = getattr(env, "venv", None)
        return env

    def _state(self, now: Loop | Loaded) -> Any:
        return self._program.unflatten(now.device_state)

    def _need_loop(self) -> Loop:
        if not isinstance(self._standing, Loop):
            raise UsageError("this model has no environment to learn in: model.set_env(env), or load(..., env=env)")
        return self._standing

    def _stand(self) -> Loop | Loaded:
        self._need_spaces()
        assert self._standing is not None
        return self._standing

    def _need_spaces(self) -> Spaces:
        if not hasattr(self, "_spaces"):
            raise UsageError(f"this model has no environment yet: give it one, env='{first_task()}'")
        return self._spaces


def require_new_episodes(force_reset: Any) -> None:
    """Refuse `force_reset=False`, which would go on with the episode that a given environment is in."""
    if not force_reset:
        raise UsageError("force_reset=False: a model always begins new episodes in an environment that it is given")
