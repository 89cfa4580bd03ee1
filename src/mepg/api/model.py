"""Models with Stable-Baselines3's face: the same names and arguments, `mepg.run` behind them."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from rich.progress import MofNCompleteColumn, Progress

from mepg import algos
from mepg.api.arguments import instead_of, run_settings, spec_from, takes_run_settings, whole
from mepg.api.callbacks import Callbacks
from mepg.api.files import FORMAT, Location, name_of, read_model, read_rows, to_archive, write, write_rows
from mepg.api.logger import Logger
from mepg.api.parameters import flat, nested, replaced
from mepg.api.vecenv import VecEnv, infos_of, known_to_stable_baselines
from mepg.core.posterior import SAMPLES
from mepg.core.settings import from_json, to_json
from mepg.errors import UsageError
from mepg.run.checkpoint import flatten, unflatten
from mepg.run.config import MAX_SEED, Config
from mepg.run.envs import Spaces
from mepg.run.files import Damaged
from mepg.run.folder import versions
from mepg.run.loop import Loop, Record
from mepg.run.program import Leaves, Program
from mepg.run.replay import Replay
from mepg.run.threads import limit_threads
from mepg.run.vector import Envs, FromStableBaselines, gather
from mepg.signals import interrupt_between_steps
from mepg.words import many

WITHOUT_END = 10**9  # rounds of steps: whoever calls `learn` says how many


class _Loaded(NamedTuple):
    """A model that has no environment to learn in."""

    leaves: Leaves
    step: int
    next_episode: int
    replay: Replay | None  # None: it was not saved with the model
    lock: threading.RLock  # as a loop's


class Model:
    """An agent, the environment it learns in, and what it has learned.

    Names and meanings are Stable-Baselines3's; an argument that is not given is the algorithm's own, the
    paper's Table 5 (`mepg show me-sac` prints them).

    :param policy: "MlpPolicy", the only one there is
    :param env: an id such as "HopperBulletEnv-v0", a ``gymnasium.Env``, a ``gymnasium.vector.VectorEnv``, or a
        ``VecEnv`` of Stable-Baselines3
    :param learning_rate: of every Adam: the policy's, the critics' and the entropy coefficient's
    :param buffer_size: transitions that the replay memory holds
    :param learning_starts: steps with random actions before the first update
    :param batch_size: transitions in an update
    :param tau: the rate at which target networks follow
    :param gamma: the discount
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
    :param normalize_obs: observations with running mean 0 and variance 1, saved with the model
    :param n_envs: copies of `env`, which is then an id, stepped together
    :param spec: a whole spec, such as ``dataclasses.replace(mepg.ME_SAC.default_spec, critics=2)``
    :param tensorboard_log: folder for TensorBoard
    :param policy_kwargs: ``net_arch``, ``n_critics``, ``layer_norm``, ``dropout_rate``
    :param verbose: 1: a table of metrics now and then
    :param seed: everything random follows from it; none given: another one each time
    :param threads: cores to compute on; can only be said before the first model of a process
    """

    algorithm: ClassVar[str] = ""  # as `mepg list` names it
    default_spec: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        cls.default_spec = algos.find(cls.algorithm).spec

    @takes_run_settings
    def __init__(
        self,
        policy: str = "MlpPolicy",
        env: Any = None,
        learning_rate: float | None = None,
        buffer_size: int | None = None,
        learning_starts: int | None = None,
        batch_size: int | None = None,
        tau: float | None = None,
        gamma: float | None = None,
        train_freq: int | None = None,
        gradient_steps: int | None = None,
        action_noise: Any = None,
        policy_delay: int | None = None,
        target_update_interval: int | None = None,
        target_policy_noise: float | None = None,
        target_noise_clip: float | None = None,
        ent_coef: str | float | None = None,
        target_entropy: str | float | None = None,
        dropout_p: float | None = None,
        n_envs: int = 1,
        spec: Any = None,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
        **others: Any,
    ) -> None:
        if not self.algorithm:
            raise UsageError("Model is what all models have in common: use ME_SAC, or mepg.algorithm('me-sac-r')")
        if policy != "MlpPolicy":
            raise UsageError(
                f"policy={policy!r}: there is only 'MlpPolicy'; policy_kwargs=dict(net_arch=...) shapes it"
            )
        if device not in ("auto", "cpu"):
            raise UsageError(f"device={device!r}: mepg computes on the CPU")
        self._run_settings = run_settings(others)  # normalize_obs, threads, and whatever else run/config.py declares
        given = {
            "learning_rate": learning_rate,
            "buffer_size": buffer_size,
            "learning_starts": learning_starts,
            "batch_size": batch_size,
            "tau": tau,
            "gamma": gamma,
            "train_freq": train_freq,
            "gradient_steps": gradient_steps,
            "action_noise": action_noise,
            "policy_delay": policy_delay,
            "target_update_interval": target_update_interval,
            "target_policy_noise": target_policy_noise,
            "target_noise_clip": target_noise_clip,
            "ent_coef": ent_coef,
            "target_entropy": target_entropy,
            "dropout_p": dropout_p,
            "policy_kwargs": policy_kwargs,
            **others,
        }
        _prepare(self._run_settings["threads"])
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else whole("seed", seed, least=0)
        n_envs = whole("n_envs", n_envs, least=1)
        count = n_envs if isinstance(env, str) else _count(env)
        self.spec = spec_from(self.default_spec if spec is None else self._checked(spec), given, count)
        self._logger: Any = None
        self._learn_began_at = 0  # steps of earlier calls of `learn` that began anew
        self._predictions = 0
        self._draws = 0  # of sub-networks
        self._standing: Loop | _Loaded | None = None
        self._learning = threading.Lock()
        self._learner: int | None = None  # the thread that holds it
        self._env_id: str | None = None  # of the environments, if that is all that was given
        self.env: Any = None
        if env is not None:
            self._enter(gather(env, n_envs, self.seed), env)

    def _checked(self, spec: Any) -> Any:
        kind = type(self.default_spec)
        if not isinstance(spec, kind):
            raise UsageError(f"spec must be a {kind.__name__}, not {spec!r:.80}")
        return spec

    def _enter(self, envs: Envs, env: Any) -> None:
        """Get ready to act in these environments."""
        self._spaces, self._env_id = envs.spaces, env if isinstance(env, str) else None
        self.env = env if isinstance(envs, FromStableBaselines) else VecEnv(envs, self._lend_envs)
        self._config = self._make_config(envs.spaces.id, envs.count)
        replay = Replay(self.spec.replay_size, envs.sizes)
        self._standing = Loop(self._config, self._config.build(envs.sizes), envs, None, replay)
        self._program = self._standing.program

    def _make_config(self, env_id: str, envs: int) -> Config:
        endless = WITHOUT_END * envs
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

    # Learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Take this many steps, and learn from each; a second call goes on where the first one ended.

        :param callback: a function of (locals, globals), an object with Stable-Baselines3's method names, or a list
        :param log_interval: training episodes between two rows of the log; None: no log
        :param tb_log_name: the run's name in `tensorboard_log`
        :param reset_num_timesteps: count this call's steps from 0; what was learned is kept either way
        :param progress_bar: show one
        """
        steps = whole("total_timesteps", total_timesteps, least=0)
        if log_interval is not None:
            log_interval = whole("log_interval", log_interval, least=1)
        with self._alone():
            self._learn(
                self._need_loop(), steps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
            )
        return self

    def _learn(
        self,
        loop: Loop,
        steps: int,
        callback: Any,
        log_interval: int | None,
        tb_log_name: str | None,
        reset_num_timesteps: bool,
        progress_bar: bool,
    ) -> None:
        if reset_num_timesteps:
            self._learn_began_at = loop.step
        end = self.num_timesteps + steps
        if self._logger is None:
            self._logger = Logger(self._log_folder(tb_log_name), verbose=self.verbose)
            self._logger.log(loop.pace)
        callbacks = Callbacks(callback)
        variables: dict[str, Any] = {"self": self, "total_timesteps": end, "env": self.env, "callback": callback}
        callbacks.begin(self, variables)
        episodes, self._tick = 0, (loop.step, time.monotonic())
        columns = *Progress.get_default_columns(), MofNCompleteColumn()
        with Progress(*columns, disable=not progress_bar) as bar, interrupt_between_steps() as check_interrupt:
            task = bar.add_task("learning", total=steps)
            while self.num_timesteps < end:
                check_interrupt()
                callbacks.before_step()
                actions = loop.actions
                record = loop.advance()
                bar.advance(task, loop.envs.count)
                episodes += len(record.episodes)
                if log_interval is not None and record.episodes and episodes % log_interval < len(record.episodes):
                    self.dump_logs()
                if callbacks:
                    variables |= _variables(record, self._spaces.scale(actions), loop.obs.copy())
                    if not callbacks.after_step(variables):
                        break
        loop.settle()
        callbacks.end()
        if loop.updates == 0:
            warnings.warn(
                f"nothing has been learned yet: the first {self.spec.warmup:,} actions are random; learn for longer, "
                "or give a smaller learning_starts",
                stacklevel=3,
            )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else may learn with this model meanwhile, nor take its environments away."""
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
    def _still(self) -> Iterator[Loop | _Loaded]:
        """Where the model stands, while nothing of it changes: another thread may be learning, and an update writes
        over the state before it.
        """
        now = self._stand()
        with now.lock:
            yield now

    def dump_logs(self) -> None:
        """Write a row of metrics to the log."""
        loop, now = self._need_loop(), time.monotonic()
        (step, then), self._tick = self._tick, (loop.step, now)
        for name, value in loop.report().items():
            self.logger.record(name, value)
        self.logger.record("time/fps", int((loop.step - step) / max(now - then, 1e-9)))
        self.logger.record("time/total_timesteps", self.num_timesteps)
        self.logger.dump(self.num_timesteps)

    @property
    def num_timesteps(self) -> int:
        """Steps in all environments together, since `learn` last began counting."""
        return 0 if self._standing is None else self._standing.step - self._learn_began_at

    @property
    def ep_info_buffer(self) -> list[dict[str, float]]:
        """Return and length of the last training episodes, at most a hundred."""
        recent = self._standing.recent if isinstance(self._standing, Loop) else []
        return [{"r": total, "l": length} for total, length in recent]

    # What a spec says, by Stable-Baselines3's names. None of it can be changed under way.
    device = property(lambda _: "cpu")
    buffer_size = property(lambda self: self.spec.replay_size)
    learning_starts = property(lambda self: self.spec.warmup)
    batch_size = property(lambda self: self.spec.batch_size)
    tau = property(lambda self: self.spec.target_rate)
    gamma = property(lambda self: self.spec.discount)
    learning_rate = property(lambda self: getattr(self.spec, "actor_lr", None) or self.spec.lr)
    gradient_steps = property(lambda self: self.spec.updates_per_step * self.n_envs)
    train_freq = property(lambda _: 1)

    @property
    def logger(self) -> Any:
        if self._logger is None:
            self._logger = Logger(verbose=self.verbose)
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Log with another one: anything with `record` and `dump`, such as Stable-Baselines3's."""
        self._logger = logger

    def _log_folder(self, name: str | None) -> Path | None:
        """tensorboard_log/ME_SAC_1, or the next number that is free."""
        if self.tensorboard_log is None:
            return None
        base = Path(self.tensorboard_log)
        taken = {path.name for path in base.iterdir()} if base.is_dir() else set()
        names = (f"{name or type(self).__name__}_{number}" for number in range(1, len(taken) + 2))
        return base / next(candidate for candidate in names if candidate not in taken)

    # Acting

    def predict(
        self,
        observation: npt.ArrayLike,
        state: Any = None,
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], Any]:
        """Actions for one observation [S] or a batch [B, S], within the environment's own bounds; and `state` again.

        With `deterministic=False` a Gaussian policy's actions are drawn. A deterministic policy acts the same
        either way: the noise that it explores with belongs to `learn`.
        """
        obs, alone = self._check_observation(observation)
        with self._still() as now:
            if deterministic or getattr(self.spec, "gaussian", None) is None:
                actions = self._program.exploit(now.leaves, obs)
            else:
                self._predictions += 1
                actions = self._program.sample(now.leaves, obs, self._predictions)
        return self._spaces.scale(actions[0] if alone else actions), state

    # What the critics believe

    def q_posterior(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> tuple[Any, Any]:
        """Mean and standard deviation of Q over the critics' masks, for one observation and action or a batch.

        One forward pass: with masks on the last hidden layer both have a closed form. The mean is the complete
        network's Q. With several critics or members, masked or not, it is their mean, and the standard deviation
        is within and between them; a single critic without masks has none, 0. Where masks on several layers, or
        before a normalisation, have no closed form, both are estimated from drawn sub-networks, and a warning says so.

        :param observation: [S] or [B, S]
        :param action: [A] or [B, A], within the environment's own bounds, as `predict` returns them. Of a single
            observation or action and a batch of the other, the one is taken with each of the many.
        """
        obs, actions, alone = self._check_pairs(observation, action)
        self._warn_of_samples()
        with self._still() as now:
            mean, variance = self._program.moments(now.leaves, obs, actions)
        std = np.sqrt(variance)
        return (mean[0], std[0]) if alone else (mean, std)

    def q_covariance(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The covariance of Q between any two of these inputs, under the same mask: [B, B], or [1, 1] for one."""
        obs, actions, _ = self._check_pairs(observation, action)
        self._warn_of_samples()
        with self._still() as now:
            return self._program.covariance(now.leaves, obs, actions)

    def q_samples(self, observation: npt.ArrayLike, action: npt.ArrayLike, n: int = 100) -> npt.NDArray[np.float32]:
        """Q of `n` sub-networks, drawn: [n] for one input, [n, B] for a batch, of which all have the same masks."""
        obs, actions, alone = self._check_pairs(observation, action)
        if whole("n", n, least=1) > 10**6:
            raise UsageError(f"n must be in [1, 1000000], not {n}")
        with self._still() as now:
            self._draws += 1
            q = self._program.subnetworks(now.leaves, obs, actions, int(n), self._draws)
        return q[:, 0] if alone else q

    def _warn_of_samples(self) -> None:
        if not self._program.beliefs.closed_form:
            warnings.warn(
                f"masks as those of this {self.algorithm} have no closed form: mean and spread of Q are estimated "
                f"from {SAMPLES} sub-networks",
                stacklevel=3,
            )

    def _check_pairs(
        self, observation: npt.ArrayLike, action: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], bool]:
        """[B, S], [B, A] in [-1, 1], and whether both were single ones."""
        obs, obs_alone = self._check_observation(observation)
        actions, action_alone = self._check_action(action)
        rows = len(actions) if obs_alone else len(obs)
        if not action_alone and len(actions) != rows:
            raise UsageError(f"{many(len(obs), 'observation')} and {many(len(actions), 'action')} do not make pairs")
        obs, actions = (np.broadcast_to(each, (rows, each.shape[1])) for each in (obs, actions))
        return obs, actions, obs_alone and action_alone

    def _check_action(self, action: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], bool]:
        """[B, A] in [-1, 1], and whether it was a single one."""
        spaces = self._need_spaces()
        actions, alone = _check_rows(action, "action", spaces.action_shape)
        low, high = spaces.low.astype(float), spaces.high.astype(float)
        outside = (actions < low - 1e-4 * (high - low)) | (actions > high + 1e-4 * (high - low))
        if outside.any():
            row, index = (int(i) for i in np.argwhere(outside)[0])
            raise UsageError(
                f"the action holds {actions[row, index]} at index {index if alone else (row, index)}, "
                f"which is not in [{low[index]:g}, {high[index]:g}]"
            )
        return spaces.unscale(actions.reshape(-1, *spaces.action_shape)), alone

    def _check_observation(self, observation: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], bool]:
        """[B, S], and whether it was a single one."""
        return _check_rows(observation, "observation", (self._need_spaces().sizes.obs,))

    # The environment

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        return self._need_spaces().observation_space

    @property
    def action_space(self) -> gymnasium.spaces.Box:
        return self._need_spaces().action_space

    @property
    def n_envs(self) -> int:
        self._need_spaces()
        return self._config.envs

    def get_env(self) -> Any:
        """The environments that it learns in, with the interface of Stable-Baselines3's VecEnv.

        To reset or step them ends the episodes under way: `learn` goes on with new ones.
        """
        if not isinstance(self.env, VecEnv) and not self._learning.locked():
            self._lend_envs()  # what is done to the user's own VecEnv cannot be seen
        return known_to_stable_baselines(self.env)

    def _lend_envs(self) -> None:
        """Somebody is to use the environments."""
        self._refuse_while_learning_elsewhere("its environments are in use; make others to evaluate in")
        if isinstance(self._standing, Loop):
            self._standing.left = True

    def set_env(self, env: Any, force_reset: bool = True) -> None:  # noqa: ARG002
        """Go on in another environment with the same spaces; the replay memory stays."""
        before = self._need_spaces()
        with self._alone():
            envs = gather(env, 1, self.seed)
            _require_same_spaces(before, envs.spaces)
            then = self._stand()
            state = self._program.unflatten(then.leaves)
            self._enter(envs, env)
            now = self._need_loop()
            now.restart(state, then.step, then.next_episode)
            if then.replay is not None:
                _refill(now.replay, then.replay)

    def get_vec_normalize_env(self) -> Any:
        """Stable-Baselines3's VecNormalize around the environment, if there is one."""
        env = self.env
        while env is not None and type(env).__name__ != "VecNormalize":
            env = getattr(env, "venv", None)
        return env

    # Files

    @property
    def replay_buffer(self) -> Replay | None:
        return None if self._standing is None else self._standing.replay

    def get_parameters(self) -> dict[str, Any]:
        """All arrays of the agent's state, by name: {"actor": {"params": {"0": {"w": ...}}}}; copies."""
        with self._still() as now:
            return nested(_by_name(self._program.unflatten(now.leaves)))

    def set_parameters(
        self,
        load_path_or_dict: Location | dict[str, Any],
        exact_match: bool = True,
        device: str = "auto",  # noqa: ARG002
    ) -> None:
        """Put other numbers into the agent's state: what `get_parameters` gave, or a file that `save` wrote.

        :param exact_match: all of them, or it is refused; False: only those that are given
        """
        if isinstance(load_path_or_dict, dict):
            given = flat(load_path_or_dict)
        else:
            _, arrays = read_model(load_path_or_dict)
            given = {name.removeprefix("agent."): array for name, array in arrays.items()}
        with self._still() as now:
            state = self._program.unflatten(now.leaves)
            arrays = replaced(_by_name(state), given, all_of_them=exact_match)
            named = {f"agent.{name}": array for name, array in arrays.items()}
            now.leaves[:] = self._program.flatten(unflatten(named, state, "agent"))

    def save(self, path: Location, exclude: Any = None, include: Any = None) -> None:  # noqa: ARG002
        """Write the model to a file, or into an open one: networks, optimisers, normaliser, spec and counters.

        The replay memory is not among them: `save_replay_buffer`.
        """
        if include:
            raise UsageError(f"include={include!r}: a model's file holds all but the replay memory: save_replay_buffer")
        spaces = self._need_spaces()
        with self._still() as now:
            if isinstance(now, Loop):
                now.settle()  # networks that are no longer finite are not worth a file
            about = {
                "format": FORMAT,
                "algorithm": self.algorithm,
                "spec": to_json(self.spec),
                "env": spaces.id,
                "sizes": list(spaces.sizes),
                "action_bounds": spaces.bounds,
                "normalize_obs": self._run_settings["normalize_obs"],
                "seed": self.seed,
                "steps": now.step,
                "episodes": now.next_episode,
                "versions": versions(),
            }
            content = to_archive(about, flatten(self._program.unflatten(now.leaves), "agent"))
        write(path, ".zip", content)

    @classmethod
    def load(
        cls,
        path: Location,
        env: Any = None,
        device: str = "auto",
        custom_objects: Any = None,  # noqa: ARG003
        print_system_info: bool = False,  # noqa: ARG003
        force_reset: bool = True,  # noqa: ARG003
        **others: Any,
    ) -> Self:
        """The model that `save` wrote, or the one in a folder of `mepg train`.

        :param env: to go on learning in; without one the model can only predict
        :param others: arguments of the class that are to be other than they were saved, such as buffer_size
        """
        about, arrays = read_model(path, env)
        name = name_of(path)
        kind = cls if cls.algorithm else _class_of(str(about.get("algorithm")))
        if about.get("algorithm") != kind.algorithm:
            raise UsageError(
                f"{name} holds {about.get('algorithm')}, not {kind.algorithm}: load it with mepg.load, "
                f"or mepg.algorithm({about.get('algorithm')!r}).load"
            )
        try:
            spec = from_json(type(kind.default_spec), about["spec"])
            seed, steps, episodes = (_counter(about[name]) for name in ("seed", "steps", "episodes"))
            spaces = Spaces.from_json(str(about["env"]), about["sizes"], about["action_bounds"])
            normalize_obs = about["normalize_obs"] is True
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{name} is damaged: {error!r}") from None
        model = kind(**{"spec": spec, "seed": seed, "normalize_obs": normalize_obs, "device": device, **others})
        model._spaces, model._config = spaces, model._make_config(spaces.id, 1)
        agent = model._config.build(spaces.sizes)
        model._program = Program(model._config, agent, spaces.sizes)
        try:
            state = unflatten(arrays, model._program.template, "agent")
        except Damaged as damage:
            raise UsageError(f"{name} is damaged: {damage}") from None
        model._standing = _Loaded(model._program.flatten(state), steps, episodes, None, threading.RLock())
        if env is not None:
            model.set_env(env)
        assert isinstance(model, cls)
        return model

    def save_replay_buffer(self, path: Location) -> None:
        """Write the replay memory to a file of its own."""
        with self._still() as now:
            if now.replay is None:
                raise UsageError("this model has no replay memory: it was loaded, and has not learned since")
            rows = now.replay.read(now.replay.oldest, now.replay.count)
        write_rows(path, rows)

    def load_replay_buffer(self, path: Location, truncate_last_traj: bool = True) -> None:  # noqa: ARG002
        """Read what `save_replay_buffer` wrote."""
        replay = self._need_loop().replay
        rows = read_rows(path, replay.width)
        with self._still():
            replay.restore(0, rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A model of its own, with all that this one has learned.

        In environments that were given by their id it goes on just as this one would. Those that were given as
        objects stay with this one, because many a simulator breaks when it is copied: `set_env` gives it others.
        """
        self._refuse_while_learning_elsewhere("save it, or copy it in a callback")
        ours = {"_learning": threading.Lock(), "_learner": None, "_logger": None, "_standing": None, "env": None}
        shared = {name: vars(self)[name] for name in ("_program", "_config") if name in vars(self)}
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        vars(twin).update(ours | shared)
        vars(twin).update({k: copy.deepcopy(v, memo) for k, v in vars(self).items() if k not in ours | shared})
        now = self._standing
        if isinstance(now, Loop) and self._env_id is not None:
            snapshot = now.snapshot()
            twin._enter(gather(self._env_id, now.envs.count, self.seed), self._env_id)
            loop = twin._need_loop()
            _refill(loop.replay, now.replay)
            loop.restore(snapshot)
            loop.left = now.left
        elif now is not None:
            replay = None
            if now.replay is not None:
                replay = Replay(now.replay.capacity, now.replay.sizes)
                _refill(replay, now.replay)
            leaves = self._program.flatten(now.leaves)
            twin._standing = _Loaded(leaves, now.step, now.next_episode, replay, threading.RLock())
        return twin

    # What is missing

    def __getattr__(self, name: str) -> Any:
        instead = instead_of(name)
        raise AttributeError(f"{type(self).__name__} has no {name!r}" + (f": {instead}" if instead else ""))

    def _need_loop(self) -> Loop:
        if not isinstance(self._standing, Loop):
            raise UsageError("this model has no environment to learn in: model.set_env(env), or load(..., env=env)")
        return self._standing

    def _stand(self) -> Loop | _Loaded:
        self._need_spaces()
        assert self._standing is not None
        return self._standing

    def _need_spaces(self) -> Spaces:
        if not hasattr(self, "_spaces"):
            raise UsageError("this model has no environment yet: give it one, env='HopperBulletEnv-v0'")
        return self._spaces


def algorithm(name: str) -> type[Model]:
    """The class for any name that `mepg list` prints, such as "me-sac-r", or for "my_module:name" of your own."""
    algos.trust(name)
    return _class_of(name)


def _class_of(name: str) -> type[Model]:
    found = algos.find(name)
    for kind in _subclasses(Model):
        if kind.algorithm == name:
            return kind
    title = "".join(c if c.isalnum() else "_" for c in name).upper()
    return type(title, (Model,), {"algorithm": name, "__doc__": found.summary})


def load(path: Location, env: Any = None, **others: Any) -> Model:
    """A model of whichever algorithm, from `save`'s file or a folder of `mepg train`."""
    return Model.load(path, env, **others)


def _subclasses(kind: type[Model]) -> list[type[Model]]:
    return [below for child in kind.__subclasses__() for below in (child, *_subclasses(child))]


def _prepare(threads: int) -> None:
    """Settle threads and compiled programs with the machine, once for each process."""
    global _PREPARED
    if _PREPARED is None:
        limit_threads(threads)
        _PREPARED = threads
    elif threads != _PREPARED:
        raise UsageError(f"threads={threads}: this process computes with {_PREPARED}, which its first model chose")


_PREPARED: int | None = None


def _count(env: Any) -> int:
    return int(getattr(env, "num_envs", 1))


def _counter(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= max(MAX_SEED, WITHOUT_END * 1000):
        raise ValueError(f"{value!r} is not a count")
    return value


def _require_same_spaces(model: Spaces, env: Spaces) -> None:
    if difference := model.difference(env):
        raise UsageError(f"the model was trained on {model.id} with {difference}")


def _check_rows(given: npt.ArrayLike, what: str, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.float32], bool]:
    """Finite numbers, a row for each that has this shape, and whether it was a single one."""
    try:
        rows = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"an {what} is {math.prod(shape)} numbers, not a {type(given).__name__}") from None
    alone = rows.ndim == len(shape)
    if rows.shape[not alone :] != shape:
        several = f"({', '.join(map(str, ('n', *shape)))})" if shape else "(n,)"
        raise UsageError(f"an {what} has shape {shape}, or {several} for several, not {rows.shape}")
    if not np.isfinite(rows).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        where = f" at index {place if len(place) > 1 else place[0]}" if place else ""
        raise UsageError(f"the {what} holds {rows[place]}{where}")
    return rows.reshape(-1, math.prod(shape)), alone


def _variables(record: Record, actions: npt.NDArray[Any], obs: npt.NDArray[np.float32]) -> dict[str, Any]:
    """What callbacks look for in their `locals`: as with Stable-Baselines3's VecEnv, episodes have begun anew."""
    infos, ended = infos_of(record.outcomes), iter(record.episodes)
    for info, outcome in zip(infos, record.outcomes, strict=True):
        if outcome.over:
            total, length = next(ended)
            info.setdefault("episode", {"r": total, "l": length})
    return {
        "actions": actions,
        "new_obs": obs,
        "rewards": np.array([outcome.reward for outcome in record.outcomes], np.float32),
        "dones": np.array([outcome.over for outcome in record.outcomes]),
        "infos": infos,
    }


def _by_name(state: Any) -> dict[str, Any]:
    return {name.removeprefix("agent."): array for name, array in flatten(state, "agent").items()}


def _refill(replay: Replay, other: Replay) -> None:
    """With the rows of another."""
    replay.restore(other.oldest, other.read(other.oldest, other.count))
