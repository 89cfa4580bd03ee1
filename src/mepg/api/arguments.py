"""Stable-Baselines3's names for what a spec says: the one place where the two meet.

Each argument becomes settings of the spec, the same that `--set` takes, so a value that the command line
refuses is refused here, with the same words. And each can be read back from a spec: `model.gamma`.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from mepg.algos import is_stochastic
from mepg.errors import UsageError, unknown
from mepg.settings import apply_settings, describe
from mepg.training.config import MOST, Config, Setting, settings_of

P = ParamSpec("P")

Settings = list[str]  # ["replay_size=1000000", ...]


class Argument(NamedTuple):
    """One of Stable-Baselines3's arguments."""

    settings: Callable[[Any, Any, int], Settings]  # its value, a spec, the number of environments -> as --set has it
    read: Callable[[Any, int], Any]  # a spec, the number of environments -> its value; None: the mechanism is off


def spec_from(spec: Any, arguments: Mapping[str, Any], envs: int) -> Any:
    """The spec with the arguments that were given; None is the spec's own value."""
    given = {name: as_python(value) for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        if name in NOT_SUPPORTED:
            harmless, instead = NOT_SUPPORTED[name]
            if _is_one_of(value, harmless):
                continue
            raise UsageError(f"{name}={value!r} is not supported: {instead}")
        if name in INSTEAD:
            raise UsageError(f"{name} is not an argument: {INSTEAD[name]}")
        if name not in ARGUMENTS:
            raise unknown("argument", name, ARGUMENTS)
        try:
            settings = ARGUMENTS[name].settings(value, spec, envs)
            spec = apply_settings(spec, settings)
        except UsageError as error:
            raise UsageError(f"{name}={value!r:.200}: {error}") from None
    return spec


def as_python(value: Any) -> Any:
    """NumPy's scalars as Python's own, also inside a dictionary or a list: `np.int64(2)` is 2, `np.True_` is True."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, Mapping):
        return {name: as_python(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(as_python(inner) for inner in value)
    return value


def takes_run_settings(init: Callable[P, None]) -> Callable[P, None]:
    """Show the settings of a run in a constructor's signature, which takes them as `**others`."""
    signature = inspect.signature(init)
    *named, others = signature.parameters.values()
    by_name = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(s.name, by_name, default=s.default, annotation=s.kind) for s in _of_a_model()]
    init.__signature__ = signature.replace(parameters=[*named, *added, others])  # type: ignore[attr-defined]
    return init


def run_settings(others: dict[str, Any]) -> dict[str, Any]:
    """Remove them from the arguments; one that is missing has its default."""
    found = {setting.name: as_python(others.pop(setting.name, setting.default)) for setting in _of_a_model()}
    for setting in _of_a_model():
        setting.check(found[setting.name])
    return found


def _of_a_model() -> list[Setting]:
    """The settings of a run that a model takes under the same name. The others it has in Stable-Baselines3's form."""
    others = ("seed", "steps", "eval_every", "eval_episodes", "envs")
    return [setting for name, setting in settings_of(Config).items() if name not in others]


def whole(name: str, value: Any, *, least: int, most: int = MOST) -> int:
    """A whole number, `least` or more; 1e5 counts as one."""
    value = as_python(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -math.inf < value < math.inf or value != int(value) or value < least:
        raise UsageError(f"{name} must be a whole number, at least {least}, not {value!r:.80}")
    if value > most:
        raise UsageError(f"{name} must be at most {most:,}, not {value!r:.80}")
    return int(value)


def _plain(path: str) -> Argument:
    """An argument that a field of the spec takes as it is."""
    field, *inner = path.split(".")

    def settings(value: Any, spec: Any, _: int) -> Settings:
        _require_field(spec, field)
        return [f"{path}={_text(value)}"]

    def read(spec: Any, _: int) -> Any:
        _require_field(spec, field)
        found = getattr(spec, field)
        for name in inner:
            found = None if found is None else getattr(found, name)
        return found

    return Argument(settings, read)


RATES = ("actor_lr", "critic_lr", "lr")


def _learning_rate(value: Any, spec: Any, _: int) -> Settings:
    if callable(value):
        raise UsageError("a learning rate is a number; schedules are not supported")
    known = {f.name for f in fields(spec)}
    settings = [f"{name}={_text(value)}" for name in RATES if name in known]
    temperature = getattr(spec, "temperature", None)
    learned = temperature is not None and temperature.lr is not None
    return settings + ([f"temperature.lr={_text(value)}"] if learned else [])


def _read_learning_rate(spec: Any, _: int) -> Any:
    found = [getattr(spec, name) for name in RATES if hasattr(spec, name)]
    if not found:
        raise UsageError(f"{type(spec).__name__} has none of {', '.join(RATES)}")
    return found[0]


def _gradient_steps(value: Any, _: Any, envs: int) -> Settings:
    if value == -1:  # Stable-Baselines3's word for one update for each step, which is also the default here
        return ["updates_per_step=1"]
    try:
        updates, rest = divmod(whole("it", value, least=1), envs)
    except UsageError:
        updates, rest = 0, 1
    if rest:
        raise UsageError(
            f"it is the number of updates after one step in each of {envs} environments, and there are equally many "
            f"for each step here: give a multiple of {envs}, or -1 for one update a step"
        )
    return [f"updates_per_step={updates}"]


def _train_freq(value: Any, _: Any, __: int) -> Settings:
    if not _is_one_of(value, (1, (1, "step"), [1, "step"])):
        raise UsageError("updates follow every step; several for each step are gradient_steps")
    return []


def _ent_coef(value: Any, spec: Any, __: int) -> Settings:
    _require_field(spec, "temperature")
    if not is_stochastic(spec):
        raise UsageError("a deterministic policy has no entropy; it explores by action_noise")
    if isinstance(value, str):
        word, _, initial = value.partition("_")
        if word != "auto":
            raise UsageError('it is a number, "auto", or "auto_0.1" for where to begin')
        # Naming it turns it on, if it was off.
        return [f"temperature.lr={_text(_learned_rate(spec))}"] + (
            [f"temperature.initial={initial}"] if initial else []
        )
    return ["temperature=none"] if value == 0 else ["temperature.lr=none", f"temperature.initial={_text(value)}"]


def _learned_rate(spec: Any) -> float:
    rate = None if spec.temperature is None else spec.temperature.lr
    return 1e-4 if rate is None else rate  # Table 5's


def _read_ent_coef(spec: Any, _: int) -> Any:
    _require_field(spec, "temperature")
    if not is_stochastic(spec):
        return None
    if spec.temperature is None:
        return 0.0
    return spec.temperature.initial if spec.temperature.lr is None else f"auto_{spec.temperature.initial}"


def _target_entropy(value: Any, spec: Any, _: int) -> Settings:
    if getattr(spec, "temperature", None) is None:
        raise UsageError("there is no entropy coefficient that is learned")
    return [f"temperature.target_entropy={'none' if value == 'auto' else _text(value)}"]


def _read_target_entropy(spec: Any, _: int) -> Any:
    _require_field(spec, "temperature")
    if spec.temperature is None or spec.temperature.lr is None:
        return None
    return "auto" if spec.temperature.target_entropy is None else spec.temperature.target_entropy


def _action_noise(value: Any, spec: Any, _: int) -> Settings:
    """A standard deviation, for all actions or for each, or Stable-Baselines3's NormalActionNoise."""
    _require_field(spec, "exploration")
    value = getattr(value, "base_noise", value)  # of a VectorizedActionNoise, which has one for each environment
    mean = getattr(value, "_mu", 0.0) if type(value).__name__ == "NormalActionNoise" else 0.0
    std = getattr(value, "_sigma", value) if type(value).__name__ == "NormalActionNoise" else value
    try:
        if isinstance(std, bool):
            raise TypeError
        means, stds = (np.atleast_1d(np.asarray(each, np.float64)) for each in (mean, std))
    except (TypeError, ValueError):
        raise UsageError(
            "noise is normal, and drawn anew at each step: give its standard deviation, or a NormalActionNoise"
        ) from None
    if np.any(means != 0) or stds.size == 0 or np.any(stds != stds.flat[0]):
        raise UsageError("noise needs mean 0, and the same standard deviation for every action")
    return [f"exploration.std={_text(float(stds.flat[0]))}"]


def _policy_kwargs(value: Any, spec: Any, envs: int) -> Settings:
    if not isinstance(value, Mapping):
        raise UsageError("it is a dictionary, such as dict(net_arch=[256, 256])")
    settings: Settings = []
    for name, inner in value.items():
        if name not in _POLICY_KWARGS:
            harmless, instead = _NOT_IN_POLICY_KWARGS.get(name, ((), ""))
            if name in _NOT_IN_POLICY_KWARGS and (
                inner is None or _is_one_of(inner, harmless) or _is_relu(name, inner)
            ):
                continue
            if not instead:
                raise unknown("key of policy_kwargs", str(name), _POLICY_KWARGS)
            raise UsageError(f"{name}={inner!r} is not supported: {instead}")
        if inner is not None:
            settings += _POLICY_KWARGS[name].settings(inner, spec, envs)
    return settings


def _read_policy_kwargs(spec: Any, envs: int) -> dict[str, Any]:
    """Those that this kind of spec has, and that are not off."""
    found = {}
    for name, argument in _POLICY_KWARGS.items():
        with contextlib.suppress(UsageError):
            found[name] = argument.read(spec, envs)
    return {name: value for name, value in found.items() if value is not None}


def _net_arch(value: Any, spec: Any, _: int) -> Settings:
    apart = "actor_hidden" in {f.name for f in fields(spec)}  # has a width of its own for the policy
    actor = critic = value
    if isinstance(value, Mapping):
        actor, critic = value.get("pi"), value.get("qf")
        if actor is None or critic is None or (not apart and list(actor) != list(critic)):
            raise UsageError("net_arch has to be the same for pi and qf" if not apart else "net_arch needs pi and qf")
    if any(isinstance(widths, str | int | float) or not len(list(widths)) for widths in (actor, critic)):
        raise UsageError("net_arch is a list of widths, such as [256, 256]")
    networks = {"hidden": critic, "actor_hidden": actor} if apart else {"hidden": critic}
    return [f"{name}={','.join(map(_text, widths))}" for name, widths in networks.items()]


def _read_net_arch(spec: Any, _: int) -> Any:
    _require_field(spec, "hidden")
    if hasattr(spec, "actor_hidden"):
        return {"pi": list(spec.actor_hidden), "qf": list(spec.hidden)}
    return list(spec.hidden)


def _batch_norm(value: Any, spec: Any, _: int) -> Settings:
    _require_field(spec, "batch_norm")
    return [] if value else ["batch_norm=none"]


def _batch_norm_momentum(value: Any, spec: Any, _: int) -> Settings:
    """Stable-Baselines3 gives the weight of the new value, we that of the old one."""
    _require_field(spec, "batch_norm")
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"batch_norm_momentum must be a number, not {value!r:.80}")
    return [f"batch_norm.momentum={_text(round(1 - value, 12))}"]


def _read_batch_norm(spec: Any, _: int) -> Any:
    _require_field(spec, "batch_norm")
    return spec.batch_norm is not None


def _read_batch_norm_momentum(spec: Any, _: int) -> Any:
    _require_field(spec, "batch_norm")
    return None if spec.batch_norm is None else round(1 - spec.batch_norm.momentum, 12)


def _is_one_of(value: Any, those: tuple[Any, ...]) -> bool:
    try:
        return value in those
    except ValueError:  # an array, which is compared element by element
        return False


def _is_relu(name: str, value: Any) -> bool:
    return name == "activation_fn" and getattr(value, "__name__", "").lower() == "relu"


def _require_field(spec: Any, name: str) -> None:
    if name not in {f.name for f in fields(spec)}:
        raise UsageError(f"{type(spec).__name__} has no {name}; its fields are {', '.join(describe(spec))}")


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) >= 1:
        return str(int(value))  # people write 1e6 for a whole number
    return "none" if value is None else str(value)


ARGUMENTS: dict[str, Argument] = {
    "learning_rate": Argument(_learning_rate, _read_learning_rate),
    "buffer_size": _plain("replay_size"),
    "learning_starts": _plain("warmup"),
    "batch_size": _plain("batch_size"),
    "tau": _plain("target_rate"),
    "gamma": _plain("discount"),
    "n_steps": _plain("n_step"),
    "train_freq": Argument(_train_freq, lambda _, __: 1),
    "gradient_steps": Argument(_gradient_steps, lambda spec, envs: spec.updates_per_step * envs),
    "action_noise": Argument(_action_noise, _plain("exploration.std").read),
    "policy_delay": _plain("actor_every"),
    "target_update_interval": _plain("target_every"),
    "target_policy_noise": _plain("smoothing.std"),
    "target_noise_clip": _plain("smoothing.clip"),
    "ent_coef": Argument(_ent_coef, _read_ent_coef),
    "target_entropy": Argument(_target_entropy, _read_target_entropy),
    "top_quantiles_to_drop_per_net": _plain("quantiles.dropped"),
    "exploration_initial_eps": _plain("epsilon.start"),
    "exploration_final_eps": _plain("epsilon.end"),
    "exploration_steps": _plain("epsilon.steps"),
    "max_grad_norm": _plain("max_grad_norm"),
    "dropout_p": _plain("dropout.p"),
    "policy_kwargs": Argument(_policy_kwargs, _read_policy_kwargs),
}

_POLICY_KWARGS: dict[str, Argument] = {
    "net_arch": Argument(_net_arch, _read_net_arch),
    "n_critics": _plain("critics"),
    "n_quantiles": _plain("quantiles.count"),
    "layer_norm": _plain("layer_norm"),
    "dropout_rate": _plain("dropout.p"),
    "batch_norm": Argument(_batch_norm, _read_batch_norm),
    "batch_norm_momentum": Argument(_batch_norm_momentum, _read_batch_norm_momentum),
    "renorm_warmup_steps": _plain("batch_norm.warmup"),
}

# What Stable-Baselines3 has and we do not: the values that change nothing there, and what to do instead.
_NOT_IN_POLICY_KWARGS: dict[str, tuple[tuple[Any, ...], str]] = {
    "activation_fn": ((), "hidden layers are ReLU"),
    "log_std_init": ((-3,), "a Gaussian policy's range is --set gaussian.log_std, or spec="),
    "use_sde": ((False,), "exploration is the policy's own, or action_noise"),
    "use_expln": ((False,), "exploration is the policy's own, or action_noise"),
    "clip_mean": ((2.0,), "the mean is not clipped"),
    "features_extractor_class": ((), "flatten observations with gymnasium.wrappers.FlattenObservation"),
    "features_extractor_kwargs": (({},), "flatten observations with gymnasium.wrappers.FlattenObservation"),
    "normalize_images": ((True, False), ""),
    "optimizer_class": ((), "the optimiser is Adam"),
    "optimizer_kwargs": (({},), "the optimiser is Adam, with its usual settings"),
    "batch_norm_eps": ((0.001,), "it is 0.001"),
    "share_features_extractor": ((False,), "the actor and the critics share nothing"),
}

NOT_SUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_sde": ((False,), "exploration is the policy's own, or action_noise"),
    "use_sde_at_warmup": ((False,), "exploration is the policy's own, or action_noise"),
    "sde_sample_freq": ((-1,), "exploration is the policy's own, or action_noise"),
    "replay_buffer_class": ((), "there is one kind of replay memory, uniformly sampled"),
    "replay_buffer_kwargs": (({},), "there is one kind of replay memory, uniformly sampled"),
    "optimize_memory_usage": ((False,), "give a smaller buffer_size"),
    "stats_window_size": ((100,), "rollout/ep_rew_mean is over the last 100 episodes"),
    "monitor_wrapper": ((True, False), ""),
    "qf_learning_rate": ((), "give spec=, whose critic_lr it is"),
    "exploration_fraction": ((), "nothing here depends on how long learn() is told to go on: give exploration_steps"),
    "value_clip": ((), "values are not clipped"),
}


INSTEAD = {
    "policy": "the networks are arrays, not modules: get_parameters() gives them, predict() asks them",
    "actor": 'its arrays are get_parameters()["actor"]',
    "critic": 'its arrays are get_parameters()["critic"], what it believes is q_posterior()',
    "critic_target": 'its arrays are in get_parameters()["critic"]',
    "actor_target": 'its arrays are in get_parameters()["actor"]',
    **dict.fromkeys(("q_net", "quantile_net"), 'its arrays are get_parameters()["critic"]'),
    **dict.fromkeys(("q_net_target", "quantile_net_target"), 'its arrays are in get_parameters()["critic"]'),
    "n_quantiles": "model.policy_kwargs has it; it is a key of that argument too",
    "exploration_rate": "the log has it, train/exploration_rate",
    "exploration_schedule": "exploration_initial_eps, exploration_final_eps and exploration_steps say what it is",
    "policy_class": 'there is only "MlpPolicy"; model.spec says what it is like',
    "lr_schedule": "learning rates are constant: model.learning_rate",
    "log_ent_coef": 'it is get_parameters()["temperature"]["params"]',
    "ent_coef_optimizer": 'its arrays are in get_parameters()["temperature"]',
    "set_random_seed": "everything follows from the seed that a model is made with: give seed=",
    "train": "updates belong to steps: learn() does both; load_replay_buffer() gives them more to learn from",
    "collect_rollouts": "updates belong to steps: learn() does both",
    "rollout_buffer": "it is the replay memory, replay_buffer",
    "ep_success_buffer": "a callback finds is_success in the infos",
}
