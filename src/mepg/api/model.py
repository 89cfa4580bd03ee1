"""Models with Stable-Baselines3's interface: the same names and arguments, `mepg.training` behind them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import numpy.typing as npt

from mepg import algos
from mepg.api import files
from mepg.api.arguments import integer
from mepg.api.attributes import add_unsupported, check_attribute, spec_attributes
from mepg.api.files import Location
from mepg.api.learner import Learner, LearningLock
from mepg.api.learning import MaybeCallback, run_steps
from mepg.api.logger import TrainingLog, log_folder
from mepg.api.model_config import make_config, require_fixed, show_run_options
from mepg.api.vecenv import find_vec_normalize
from mepg.envs.simulators import first_task
from mepg.errors import UsageError
from mepg.training.loop import Loop
from mepg.training.replay import Replay


class Model:
    """An agent, the environment it learns in, and what it has learned.

    Names and meanings are Stable-Baselines3's; an argument that is not given has the algorithm's own value, the
    paper's Table 5 (`mepg show me-sac` prints them).

    :param policy: "MlpPolicy", the only one there is; "MultiInputPolicy" means the same
    :param env: an id such as "HopperBulletEnv-v0", a ``gymnasium.Env``, a ``gymnasium.vector.VectorEnv``, or a
        ``VecEnv`` of Stable-Baselines3
    :param learning_rate: of every Adam: the policy's, the critics' and the entropy coefficient's
    :param buffer_size: transitions that the replay buffer holds
    :param learning_starts: steps with random actions before the first update
    :param batch_size: transitions in an update
    :param tau: the rate at which target networks follow
    :param gamma: the discount
    :param n_steps: rewards that are added up before the next value
    :param train_freq: 1, because updates follow every step
    :param gradient_steps: updates after a step in every environment; -1 or none given: one for each step
    :param action_noise: standard deviation of the noise on a deterministic policy's actions in [-1, 1], or a
        ``NormalActionNoise``
    :param policy_delay: critic updates for each of the policy's
    :param target_update_interval: critic updates for each of the target networks'
    :param target_policy_noise: standard deviation of target policy smoothing
    :param target_noise_clip: its bound
    :param ent_coef: the entropy coefficient: a number, "auto", or "auto_0.1" to begin with 0.1
    :param target_entropy: a number, or "auto" for minus the number of actions
    :param dropout_p: the probability that the masks drop a unit; 0: no masks
    :param n_envs: copies of `env`, which is then an id, stepped together
    :param spec: a whole spec, such as ``dataclasses.replace(mepg.ME_SAC.default_spec, critics=2)``
    :param tuned: faster rates in place of the paper's (`mepg show me-sac --tuned` prints them); any other argument
        overrides them
    :param tensorboard_log: folder for TensorBoard
    :param policy_kwargs: ``net_arch``, ``n_critics``, ``layer_norm``, ``dropout_rate``
    :param verbose: 1: a table of metrics now and then
    :param seed: the seed of everything random; if none is given, a new one each time
    :param kwargs: six more. ``actor_obs=("joints", "goal")`` names the entries of a Dict that the policy sees, while
        the critics see all of it. ``normalize_obs=True`` scales observations to mean 0 and variance 1, by running
        statistics that are saved with the model. ``threads`` is the number of cores to compute on; only the first model
        of a process can choose it. ``backend`` is "native" (C++ compiled for this agent), "xla", or "auto": native if
        it works. ``data`` names transitions that the replay buffer begins with: a Minari dataset, the folder of a run,
        or an .npz. With ``data_share=0.5`` half of each batch is drawn from them throughout instead
    """

    algorithm: ClassVar[str] = ""  # as `mepg list` names it
    default_spec: ClassVar[Any] = None
    _maybe_learner: Learner | None = None  # None until there is an environment
    _first_step = 0  # at which `num_timesteps` was 0

    def __init_subclass__(cls) -> None:
        cls.default_spec = algos.find(cls.algorithm).spec

    @show_run_options
    def __init__(
        self,
        policy: str = "MlpPolicy",
        env: object = None,
        learning_rate: float | None = None,
        buffer_size: int | None = None,
        learning_starts: int | None = None,
        batch_size: int | None = None,
        tau: float | None = None,
        gamma: float | None = None,
        train_freq: int | None = None,
        gradient_steps: int | None = None,
        action_noise: object = None,
        policy_delay: int | None = None,
        target_update_interval: int | None = None,
        target_policy_noise: float | None = None,
        target_noise_clip: float | None = None,
        ent_coef: str | float | None = None,
        target_entropy: str | float | None = None,
        dropout_p: float | None = None,
        n_envs: int = 1,
        spec: object = None,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
        n_steps: int | None = None,
        tuned: bool = False,
        **kwargs: Any,
    ) -> None:
        require_fixed(policy=policy, device=str(device), _init_setup_model=_init_setup_model)
        arguments = {
            "learning_rate": learning_rate, "buffer_size": buffer_size, "learning_starts": learning_starts,
            "batch_size": batch_size, "tau": tau, "gamma": gamma, "n_steps": n_steps, "train_freq": train_freq,
            "gradient_steps": gradient_steps, "action_noise": action_noise, "policy_delay": policy_delay,
            "target_update_interval": target_update_interval, "target_policy_noise": target_policy_noise,
            "target_noise_clip": target_noise_clip, "ent_coef": ent_coef, "target_entropy": target_entropy,
            "dropout_p": dropout_p, "policy_kwargs": policy_kwargs,
        }  # fmt: skip
        self._config = make_config(self.algorithm, env, spec, tuned, seed, n_envs, arguments | kwargs)
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        self._log, self._learning_lock = TrainingLog(self.verbose), LearningLock()
        if env is not None:
            self._attach(Learner.for_env(self._config, env, self.n_envs, self._learning_lock))

    def _attach(self, learner: Learner) -> None:
        """Learn with this one from now on; its config knows the environment and the backend."""
        self._maybe_learner, self._config = learner, learner.config

    @property
    def _learner(self) -> Learner:
        if self._maybe_learner is None:
            raise UsageError(f"this model has no environment yet: give it one, env='{first_task()}'")
        return self._maybe_learner

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse what would have no effect. An attribute of the user's own is left alone."""
        super().__setattr__(name, check_attribute(self, name, value))

    # Learning

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Take this many steps, and learn from each; a second call continues where the first one ended.

        :param callback: a function of (locals, globals), an object with Stable-Baselines3's method names, or a list
        :param log_interval: training episodes between two rows of the log; None: no log
        :param tb_log_name: the run's name in `tensorboard_log`
        :param reset_num_timesteps: count this call's steps from 0; what was learned is kept either way
        :param progress_bar: show one
        """
        steps = integer("total_timesteps", total_timesteps, least=0)
        if log_interval is not None:
            log_interval = integer("log_interval", log_interval, least=1)
        with self._learning_lock:
            loop = self._learner.loop
            if reset_num_timesteps:
                self.num_timesteps = 0
            folder = log_folder(self.tensorboard_log, str(tb_log_name or type(self).__name__), new=reset_num_timesteps)
            self._log.begin(loop, folder, self.verbose)
            run_steps(self, loop, steps, callback, log_interval, progress_bar=progress_bar)
        return self

    def dump_logs(self) -> None:
        """Write a row of metrics to the log."""
        self._log.write(self._learner.loop, self.num_timesteps)

    @property
    def logger(self) -> Any:
        return self._log.logger

    def set_logger(self, logger: object) -> None:
        """Log with another one: anything with `record` and `dump`, such as Stable-Baselines3's."""
        self._log.set_logger(logger)

    @property
    def num_timesteps(self) -> int:
        """Steps in all environments together, since `learn` last began counting."""
        return 0 if self._maybe_learner is None else self._maybe_learner.training.step - self._first_step

    @num_timesteps.setter
    def num_timesteps(self, steps: int) -> None:
        self._first_step = self._learner.training.step - integer("num_timesteps", steps, least=0)

    @property
    def ep_info_buffer(self) -> list[dict[str, float]]:
        """Return and length of the last training episodes, at most a hundred."""
        training = self._maybe_learner and self._maybe_learner.training
        recent = training.recent_episodes if isinstance(training, Loop) else []
        return [{"r": episode.return_, "l": episode.length} for episode in recent]

    # Acting

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,  # noqa: ARG002
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[npt.NDArray[Any], Any]:
        """Actions for one observation or a batch, within the environment's own bounds; and `state` again.

        An observation is what the environment gives. A batch has one more axis in front: of a Dict, in each array.
        `action_masks`, [A] or [B, A], says of each action whether it is legal; None: any may be chosen. With
        `deterministic=False` a stochastic policy's actions are drawn. A deterministic policy acts the same either way:
        the noise that it explores with belongs to `learn`. `state` and `episode_start` are of recurrent policies alone.
        """
        return self._learner.predict(observation, deterministic=deterministic, action_masks=action_masks), state

    def q_posterior(self, observation: object, action: npt.ArrayLike) -> tuple[Any, Any]:
        """Mean and standard deviation of Q over the critics' masks, for one observation and action or a batch.

        One forward pass: with masks on the last hidden layer both have a closed form. The mean is the complete
        network's Q. With several critics or members, masked or not, it is their mean, and the standard deviation
        is within and between them; a single critic without masks has none, 0. Where masks on several layers, or
        before a normalisation, have no closed form, both are estimated from drawn sub-networks, and a warning says so.

        :param observation: [S] or [B, S]
        :param action: [A] or [B, A], within the environment's own bounds, as `predict` returns them. A single
            observation or action is paired with each of a batch of the other.
        """
        return self._learner.q_posterior(observation, action)

    def q_covariance(self, observation: object, action: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The covariance of Q between any two of these inputs, under the same mask: [B, B], or [1, 1] for one."""
        return self._learner.q_covariance(observation, action)

    def q_samples(self, observation: object, action: npt.ArrayLike, n: int = 100) -> npt.NDArray[np.float32]:
        """Q of `n` sub-networks, drawn: [n] for one input, [n, B] for a batch, all under the same masks."""
        return self._learner.q_samples(observation, action, n)

    # The environment

    @property
    def env(self) -> Any:
        """The environments that it learns in, or None; `get_env()` is how to use them."""
        return None if self._maybe_learner is None else self._maybe_learner.env

    def get_env(self) -> Any:
        """The environments that it learns in, with the interface of Stable-Baselines3's VecEnv.

        Resetting or stepping them ends the current episodes: `learn` continues with new ones.
        """
        return None if self._maybe_learner is None else self._maybe_learner.get_env()

    def set_env(self, env: object, force_reset: bool = True) -> None:
        """Continue in another environment with the same spaces; the replay buffer stays.

        :param env: as in the constructor; of an id, as many copies are made as there were environments before
        :param force_reset: True: new episodes are begun
        """
        require_fixed(force_reset=force_reset)
        copies = self.n_envs if isinstance(env, str) else 1
        with self._learning_lock:
            if self._maybe_learner is None:  # the first that it is given
                self._attach(Learner.for_env(self._config, env, copies, self._learning_lock))
            else:
                self._attach(self._maybe_learner.in_other_envs(self._config, env, copies))

    def get_vec_normalize_env(self) -> Any:
        """Stable-Baselines3's VecNormalize around the environment, if there is one."""
        return find_vec_normalize(self.env)

    @property
    def n_envs(self) -> int:
        return self._config.envs

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        return self._learner.spaces.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self._learner.spaces.action_space

    # Parameters and files

    def get_parameters(self) -> dict[str, Any]:
        """All arrays of the agent's state, by name: {"actor": {"params": {"0": {"w": ...}}}}; copies."""
        return self._learner.get_parameters()

    def set_parameters(
        self, load_path_or_dict: Location | Mapping[str, Any], exact_match: bool = True, device: str = "auto"
    ) -> None:
        """Put other numbers into the agent's state: what `get_parameters` gave, or a file that `save` wrote.

        :param exact_match: refuse unless all are given; False: set only those that are given
        """
        require_fixed(device=str(device))
        self._learner.set_parameters(files.read_parameters(load_path_or_dict), exact_match=exact_match)

    def save(self, path: Location, exclude: object = None, include: object = None) -> None:
        """Write the model to a file, or into an open one: networks, optimisers, normaliser, spec and counters.

        The replay buffer is not among them: `save_replay_buffer`.
        """
        files.require_whole(exclude, include)
        files.save(self._learner, path, self._first_step)

    @property
    def replay_buffer(self) -> Replay | None:
        return None if self._maybe_learner is None else self._maybe_learner.training.replay

    def save_replay_buffer(self, path: Location) -> None:
        """Write the replay buffer to a file of its own."""
        files.save_replay_buffer(self._learner, path)

    def load_replay_buffer(self, path: Location, truncate_last_traj: bool = True) -> None:  # noqa: ARG002
        """Read what `save_replay_buffer` wrote. `truncate_last_traj` is for hindsight, which is not here."""
        files.load_replay_buffer(self._learner, path)

    @classmethod
    def load(
        cls,
        path: Location,
        env: object = None,
        device: str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        best: bool = False,
        **kwargs: Any,
    ) -> Self:
        """The model that `save` wrote, or the one in a folder of `mepg train`.

        :param env: to continue learning in; without one the model can only predict. Of an id, as many copies are made
            as the model was trained with, or `n_envs`
        :param custom_objects: as `kwargs`, in a dictionary
        :param print_system_info: print the versions that it was saved with, and those that are here
        :param best: of a run's folder, the policy of its best evaluation; it continues to learn with a new Adam
        :param kwargs: arguments of the class that are to differ, such as buffer_size; None: as they were saved
        """
        require_fixed(force_reset=force_reset)
        custom = files.custom_arguments(custom_objects, predicts_only=env is None)
        saved = files.read_model(path, env)
        if print_system_info:
            files.print_versions(saved)
        model = files.make_model(cls, saved, path, env, {"device": device, **custom, **kwargs})
        model._maybe_learner = files.restore(saved, model._config, path, model._learning_lock, best=best)
        model.num_timesteps = model._maybe_learner.training.step if best else saved.num_timesteps
        if env is not None:
            model.set_env(env)
        return model

    def __reduce_ex__(self, _: object) -> Any:
        raise TypeError("a model cannot be pickled: model.save(path), or model.save(io.BytesIO()), and mepg.load")

    def __copy__(self) -> Self:
        """As a deep copy: two models cannot share what they learn."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A model of its own, with all that this one has learned.

        If the environment was given by its id, the copy makes its own and continues just as this one would. An
        environment object is not copied, because many simulators would break: give the copy one with `set_env`.
        """
        self._learning_lock.refuse_other_threads("save it, or copy it in a callback")
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        own = {"_learning_lock": LearningLock(), "_log": TrainingLog(self.verbose), "_maybe_learner": None}
        others = {name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name not in own}
        vars(twin).update(own | others)
        if self._maybe_learner is not None:
            twin._maybe_learner = self._maybe_learner.copy(twin._learning_lock)
        return twin

    # What it was made with, by Stable-Baselines3's names

    @property
    def spec(self) -> Any:
        """The algorithm's, with the arguments that were given."""
        return self._config.spec

    @property
    def seed(self) -> int:
        return self._config.seed

    device = property(lambda _: "cpu")
    (
        learning_rate, buffer_size, learning_starts, batch_size, tau, gamma, n_steps, train_freq, gradient_steps,
        action_noise, policy_delay, target_update_interval, target_policy_noise, target_noise_clip, ent_coef,
        target_entropy, top_quantiles_to_drop_per_net, exploration_initial_eps, exploration_final_eps,
        exploration_steps, max_grad_norm, dropout_p, policy_kwargs,
    ) = spec_attributes()  # fmt: skip


add_unsupported(Model)
