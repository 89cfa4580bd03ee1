"""Models with Stable-Baselines3's face: the same names and arguments, `mepg.run` behind them."""

from __future__ import annotations

import glob
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from rich.progress import MofNCompleteColumn, Progress

from mepg import algos
from mepg.api.acting import require_new_episodes
from mepg.api.arguments import ARGUMENTS, run_settings, spec_from, takes_run_settings, whole
from mepg.api.attributes import FIXED, SpecAttribute, add_missing
from mepg.api.callbacks import Callbacks, step_locals
from mepg.api.files import Location, name_of, read_model
from mepg.api.logger import Logger
from mepg.api.storage import Storage, require_cpu
from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.settings import from_json, to_json
from mepg.signals import interrupt_between_steps
from mepg.storage.folder import versions
from mepg.training.config import MAX_SEED
from mepg.training.loop import Loop
from mepg.training.threads import limit_threads

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
    _custom_logger = False  # True: `set_logger` has set it

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
        given = {name: value for name, value in locals().items() if name in ARGUMENTS}
        if not self.algorithm:
            raise UsageError("Model is what all models have in common: use ME_SAC, or mepg.algorithm('me-sac-r')")
        if policy != "MlpPolicy":
            raise UsageError(
                f"policy={policy!r}: there is only 'MlpPolicy'; policy_kwargs=dict(net_arch=...) shapes it"
            )
        require_cpu(device)
        if not _init_setup_model:
            raise UsageError("_init_setup_model=False: networks are made when there is an environment; leave out env")
        self._run_settings = run_settings(others)  # normalize_obs, threads, and whatever else Config declares
        _prepare(self._run_settings["threads"])
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        seed = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
        self._seed = whole("seed", seed, least=0, most=MAX_SEED)
        self._n_envs = whole("n_envs", n_envs, least=1)
        count = self._n_envs if env is None or isinstance(env, str) else _count(env)
        self._spec = spec_from(self.default_spec if spec is None else self._checked(spec), given | others, count)
        self._learning = threading.Lock()
        if env is not None:
            self._enter(make_envs(env, self._n_envs, self.seed), env)

    def _checked(self, spec: Any) -> Any:
        kind = type(self.default_spec)
        if not isinstance(spec, kind):
            raise UsageError(f"spec must be a {kind.__name__}, not {spec!r:.80}")
        return from_json(kind, to_json(spec))  # whatever a file would refuse is refused here

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what would have no effect. An attribute of the user's own is left alone."""
        if name in FIXED:
            raise AttributeError(f"{name} cannot be set: {FIXED[name]}")
        if name == "verbose":
            value = whole(name, int(value) if isinstance(value, bool | np.bool) else value or 0, least=0)
        if name == "tensorboard_log" and not isinstance(value, str | Path | None):
            raise UsageError(f"{name} is the path of a folder, not {value!r:.80}")
        super().__setattr__(name, value)

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
        if not self._custom_logger:
            self._open_log(tb_log_name, anew=reset_num_timesteps)
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
                    variables |= step_locals(record, self._spaces.scale(actions), loop.obs.copy())
                    if not callbacks.after_step(variables):
                        break
        loop.check_finite()
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
    def ep_info_buffer(self) -> list[dict[str, float]]:
        """Return and length of the last training episodes, at most a hundred."""
        recent = self._standing.recent if isinstance(self._standing, Loop) else []
        return [{"r": total, "l": length} for total, length in recent]

    # What a spec says, by Stable-Baselines3's names
    device = property(lambda _: "cpu")
    learning_rate = SpecAttribute()
    buffer_size = SpecAttribute()
    learning_starts = SpecAttribute()
    batch_size = SpecAttribute()
    tau = SpecAttribute()
    gamma = SpecAttribute()
    n_steps = SpecAttribute()
    train_freq = SpecAttribute()
    gradient_steps = SpecAttribute()
    action_noise = SpecAttribute()
    policy_delay = SpecAttribute()
    target_update_interval = SpecAttribute()
    target_policy_noise = SpecAttribute()
    target_noise_clip = SpecAttribute()
    ent_coef = SpecAttribute()
    target_entropy = SpecAttribute()
    top_quantiles_to_drop_per_net = SpecAttribute()
    exploration_initial_eps = SpecAttribute()
    exploration_final_eps = SpecAttribute()
    exploration_steps = SpecAttribute()
    max_grad_norm = SpecAttribute()
    dropout_p = SpecAttribute()
    policy_kwargs = SpecAttribute()

    @property
    def logger(self) -> Any:
        if self._logger is None:
            self._logger = Logger(verbose=self.verbose)
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Log with another one: anything with `record` and `dump`, such as Stable-Baselines3's."""
        if not (callable(getattr(logger, "record", None)) and callable(getattr(logger, "dump", None))):
            raise UsageError(f"a logger has the methods record and dump, and {logger!r:.80} has not")
        self._logger, self._custom_logger = logger, True

    def _open_log(self, name: str | None, *, anew: bool) -> None:
        """Log this call of `learn` to tensorboard_log/ME_SAC_1, ME_SAC_2, ..., or go on with the latest of them."""
        folder = self._log_folder(str(name or type(self).__name__), anew=anew)
        if self._logger is None or self._logger.dir != (folder and str(folder)):
            self.logger.close()
            self._logger = Logger(folder, verbose=self.verbose)
        self._logger.verbose = self.verbose

    def _log_folder(self, name: str, *, anew: bool) -> Path | None:
        if self.tensorboard_log is None:
            return None
        base = Path(self.tensorboard_log)
        taken = [path.name.removeprefix(f"{name}_") for path in base.glob(f"{glob.escape(name)}_*")]
        latest = max((int(number) for number in taken if number.isdecimal()), default=0)
        return base / f"{name}_{latest + 1 if anew or not latest else latest}"

    @classmethod
    def load(
        cls,
        path: Location,
        env: Any = None,
        device: str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        *,
        best: bool = False,
        **others: Any,
    ) -> Self:
        """The model that `save` wrote, or the one in a folder of `mepg train`.

        :param env: to go on learning in; without one the model can only predict. Of an id, as many copies are made as
            the model was trained with, or `n_envs`
        :param custom_objects: as `others`, in a dictionary
        :param print_system_info: print the versions that it was saved with, and those that are here
        :param best: of a run's folder, the policy of its best evaluation; it continues to learn with a new Adam
        :param others: arguments of the class that are to be other than they were saved, such as buffer_size; None: as
            they were saved
        """
        require_new_episodes(force_reset)
        custom = _replacements(custom_objects, predicts_only=env is None)
        saved = read_model(path, env)
        config = saved.identity.config
        kind = cls if cls.algorithm else _class_of(config.algorithm)
        if config.algorithm != kind.algorithm:
            raise UsageError(
                f"{name_of(path)} holds {config.algorithm}, not {kind.algorithm}: load it with mepg.load, "
                f"or mepg.algorithm({config.algorithm!r}).load"
            )
        if print_system_info:
            print(f"saved with {_listed(saved.versions)}\nloaded with {_listed(versions(config.backend))}")
        same = run_settings({name: value for name, value in vars(config).items() if name not in OF_THIS_MACHINE})
        count = config.envs if env is None or isinstance(env, str) else _count(env)
        same |= {"spec": config.spec, "seed": config.seed, "device": device, "n_envs": count}
        model = kind(**same | {name: value for name, value in (custom | others).items() if value is not None})
        if not isinstance(env, str | None) and model.n_envs != count:
            raise UsageError(f"n_envs={model.n_envs} makes copies of an environment by its id; this one is ready-made")
        model._restore(saved, path, best=best)
        if env is not None:
            model.set_env(env)
        assert isinstance(model, cls)
        return model


add_missing(Model)


def _replacements(custom_objects: Any, *, predicts_only: bool) -> dict[str, Any]:
    """The arguments among them, without stand-ins for what Stable-Baselines3 might not be able to unpickle.

    Its zoo gives two schedules, which no file of ours holds, and a learning rate of 0 to a model that only predicts.
    """
    if not isinstance(custom_objects, Mapping | None):
        raise UsageError(f"custom_objects is a dictionary of arguments, not {custom_objects!r:.80}")
    stand_ins = {"lr_schedule", "clip_range"}
    if custom_objects and predicts_only and custom_objects.get("learning_rate") == 0:
        stand_ins.add("learning_rate")
    return {name: value for name, value in (custom_objects or {}).items() if name not in stand_ins}


def _listed(versions: Mapping[str, str]) -> str:
    return (
        ", ".join(f"{name} {version}" for name, version in versions.items()) or "versions that the file does not name"
    )


def algorithm(name: str) -> type[Model]:
    """The class for any name that `mepg list` prints, such as "me-sac-r", or for "my_module:name" of your own."""
    algos.import_named(name)
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
