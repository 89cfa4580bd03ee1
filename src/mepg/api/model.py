"""Models with Stable-Baselines3's face: the same names and arguments, `mepg.run` behind them."""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from rich.progress import MofNCompleteColumn, Progress

from mepg import algos
from mepg.api.acting import Loaded
from mepg.api.arguments import SPEC_ARGUMENTS, instead_of, run_settings, spec_from, takes_run_settings, whole
from mepg.api.callbacks import Callbacks
from mepg.api.files import Location, name_of, read_model, run_at
from mepg.api.logger import Logger
from mepg.api.storage import Storage
from mepg.api.vecenv import infos_of
from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.run.checkpoint import unflatten
from mepg.run.config import MAX_SEED
from mepg.run.files import Damaged
from mepg.run.loop import Loop, Record
from mepg.run.policy import read_best, ready_to_learn
from mepg.run.program import Program
from mepg.run.questions import Questions
from mepg.run.threads import limit_threads
from mepg.signals import interrupt_between_steps

OF_THIS_MACHINE = ("threads", "backend")  # not what was saved on another


class Model(Storage):
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
    :param tensorboard_log: folder for TensorBoard
    :param policy_kwargs: ``net_arch``, ``n_critics``, ``layer_norm``, ``dropout_rate``
    :param verbose: 1: a table of metrics now and then
    :param seed: the seed of everything random; if none is given, a new one each time
    :param others: three more. ``normalize_obs=True`` scales observations to mean 0 and variance 1, by running
        statistics that are saved with the model. ``threads`` is the number of cores to compute on; only the first model
        of a process can choose it. ``backend`` is "native" (C++ compiled for this agent), "xla", or "auto": native if
        it works
    """

    algorithm: ClassVar[str] = ""  # as `mepg list` names it
    default_spec: ClassVar[Any] = None
    _logger: Any = None
    _learn_began_at = 0  # the step at which `num_timesteps` was 0

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
        n_steps: int | None = None,
        **others: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in SPEC_ARGUMENTS}
        if not self.algorithm:
            raise UsageError("Model is what all models have in common: use ME_SAC, or mepg.algorithm('me-sac-r')")
        if policy != "MlpPolicy":
            raise UsageError(
                f"policy={policy!r}: there is only 'MlpPolicy'; policy_kwargs=dict(net_arch=...) shapes it"
            )
        if device not in ("auto", "cpu"):
            raise UsageError(f"device={device!r}: mepg computes on the CPU")
        self._run_settings = run_settings(others)  # normalize_obs, threads, and whatever else run/config.py declares
        _prepare(self._run_settings["threads"])
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        seed = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
        self.seed = whole("seed", seed, least=0, most=MAX_SEED)
        n_envs = whole("n_envs", n_envs, least=1)
        count = n_envs if isinstance(env, str) else _count(env)
        self.spec = spec_from(self.default_spec if spec is None else self._checked(spec), given | others, count)
        self._learning = threading.Lock()
        if env is not None:
            self._enter(make_envs(env, n_envs, self.seed), env)

    def _checked(self, spec: Any) -> Any:
        kind = type(self.default_spec)
        if not isinstance(spec, kind):
            raise UsageError(f"spec must be a {kind.__name__}, not {spec!r:.80}")
        return spec

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
        """Take this many steps, and learn from each; a second call continues where the first one ended.

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

    @classmethod
    def load(
        cls,
        path: Location,
        env: Any = None,
        device: str = "auto",
        custom_objects: Any = None,  # noqa: ARG003
        print_system_info: bool = False,  # noqa: ARG003
        force_reset: bool = True,  # noqa: ARG003
        *,
        best: bool = False,
        **others: Any,
    ) -> Self:
        """The model that `save` wrote, or the one in a folder of `mepg train`.

        :param env: to go on learning in; without one the model can only predict
        :param best: of a run's folder, the policy of its best evaluation; it continues to learn with a new Adam
        :param others: arguments of the class that are to be other than they were saved, such as buffer_size
        """
        (config, spaces), steps, episodes, arrays = read_model(path, env)
        kind = cls if cls.algorithm else _class_of(config.algorithm)
        if config.algorithm != kind.algorithm:
            raise UsageError(
                f"{name_of(path)} holds {config.algorithm}, not {kind.algorithm}: load it with mepg.load, "
                f"or mepg.algorithm({config.algorithm!r}).load"
            )
        same = run_settings({name: value for name, value in vars(config).items() if name not in OF_THIS_MACHINE})
        model = kind(**{**same, "spec": config.spec, "seed": config.seed, "device": device, **others})
        assert spaces is not None
        model._spaces, model._config = spaces, replace(model._make_config(spaces.id, 1), backend=Program.backend)
        agent = model._config.build(spaces.sizes)
        model._program, model._questions = Program(model._config, agent, spaces.sizes), Questions(agent, model.seed)
        template = model._program.template
        try:
            state = unflatten(arrays, template, "agent")
        except Damaged as damage:
            raise UsageError(f"{name_of(path)} is damaged: {damage}") from None
        if best:
            online, steps, _ = read_best(run_at(path), config, template)
            state = ready_to_learn(online, template)
        model._standing = Loaded(model._program.flatten(state), steps, episodes, None, threading.RLock())
        if env is not None:
            model.set_env(env)
        assert isinstance(model, cls)
        return model

    # What is missing

    def __getattr__(self, name: str) -> Any:
        instead = instead_of(name)
        raise AttributeError(f"{type(self).__name__} has no {name!r}" + (f": {instead}" if instead else ""))


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
    """Set the number of threads, once for each process."""
    global _PREPARED
    if _PREPARED is None:
        limit_threads(threads)
        _PREPARED = threads
    elif threads != _PREPARED:
        raise UsageError(f"threads={threads}: this process computes with {_PREPARED}, which its first model chose")


_PREPARED: int | None = None


def _count(env: Any) -> int:
    return int(getattr(env, "num_envs", 1))


def _variables(record: Record, actions: npt.NDArray[Any], obs: npt.NDArray[np.float32]) -> dict[str, Any]:
    """What callbacks find in their `locals`: as with Stable-Baselines3's VecEnv, the next episodes have begun."""
    infos, ended = infos_of(record.results), iter(record.episodes)
    for info, result in zip(infos, record.results, strict=True):
        if result.over:
            total, length = next(ended)
            info.setdefault("episode", {"r": total, "l": length})
    return {
        "actions": actions,
        "new_obs": obs,
        "rewards": np.array([result.reward for result in record.results], np.float32),
        "dones": np.array([result.over for result in record.results]),
        "infos": infos,
    }
