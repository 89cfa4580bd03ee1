"""Stable-Baselines3's arguments as settings of a spec: the one place where its names meet ours.

Each argument becomes settings of the spec, the same that `--set` takes, so a value that the command line
refuses is refused here, with the same words. And each can be read back from a spec: `model.gamma`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mepg.algos import is_stochastic
from mepg.api import unsupported
from mepg.errors import UsageError, unknown
from mepg.settings import apply_settings, describe
from mepg.training.config import MAX_COUNT

Settings = list[str]  # ["replay_size=1000000", ...], as `--set` takes them


class Argument(NamedTuple):
    """One of Stable-Baselines3's arguments. A spec can be any dataclass, also one of the user's own."""

    settings: Callable[[Any, Any, int], Settings]  # from its value, a spec and the number of environments
    read: Callable[[Any, int], Any]  # its value, from a spec and the number of environments; None: it is off


def apply_arguments(spec: object, arguments: Mapping[str, Any], envs: int) -> Any:
    """The spec with these arguments; None leaves the spec's own value."""
    for name, value in arguments.items():
        value = as_python(value)
        if value is None or _is_harmless(name, value, unsupported.ARGUMENTS):
            continue
        if name in unsupported.ATTRIBUTES:
            raise UsageError(f"{name} is not an argument: {unsupported.ATTRIBUTES[name]}")
        if name not in ARGUMENTS:
            raise unknown("argument", name, ARGUMENTS)
        try:
            spec = apply_settings(spec, ARGUMENTS[name].settings(value, spec, envs))
        except UsageError as error:
            raise UsageError(f"{name}={value!r:.200}: {error}") from None
    return spec


def _is_harmless(name: str, value: object, table: Mapping[str, unsupported.Unsupported]) -> bool:
    """Whether this is an unsupported argument with a value that asks for nothing; another value is refused."""
    if name not in table:
        return False
    is_relu = name == "activation_fn" and getattr(value, "__name__", "").lower() == "relu"
    if value is None or is_relu or _is_in(value, table[name].harmless):
        return True
    raise UsageError(f"{name}={value!r} is not supported: {table[name].instead}")


def as_python(value: Any) -> Any:
    """NumPy's scalars as Python's own, also inside a dictionary or a list: `np.int64(2)` is 2, `np.True_` is True."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, Mapping):
        return {name: as_python(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(as_python(inner) for inner in value)
    return value


def integer(name: str, value: Any, *, least: int, most: int = MAX_COUNT) -> int:
    """A whole number, `least` or more; 1e5 counts as one."""
    value = as_python(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -math.inf < value < math.inf or value != int(value) or value < least:
        raise UsageError(f"{name} must be a whole number, at least {least}, not {value!r:.80}")
    if value > most:
        raise UsageError(f"{name} must be at most {most:,}, not {value!r:.80}")
    return int(value)


def _get(spec: object, name: str) -> Any:
    """A field of a spec; a UsageError if this kind of spec does not have it."""
    if not hasattr(spec, name):
        raise UsageError(f"{type(spec).__name__} has no {name}; its fields are {', '.join(describe(spec))}")
    return getattr(spec, name)


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) >= 1:
        return str(int(value))  # people write 1e6 for a whole number
    return "none" if value is None else str(value)


def _is_in(value: object, values: tuple[Any, ...]) -> bool:
    try:
        return value in values
    except ValueError:  # an array, which is compared element by element
        return False


def _field(path: str) -> Argument:
    """An argument that is a field of the spec, or one of a mechanism, such as `dropout.p`."""
    name, *inner_names = path.split(".")

    def settings(value: object, spec: object, _: int) -> Settings:
        _get(spec, name)
        return [f"{path}={_text(value)}"]

    def read(spec: object, _: int) -> Any:
        value = _get(spec, name)
        for inner in inner_names:
            value = None if value is None else getattr(value, inner)
        return value

    return Argument(settings, read)


RATES = ("actor_lr", "critic_lr", "lr")


def _learning_rate(value: object, spec: object, _: int) -> Settings:
    if callable(value):
        raise UsageError("a learning rate is a number; schedules are not supported")
    paths = [name for name in RATES if hasattr(spec, name)]
    if hasattr(spec, "temperature") and spec.temperature is not None and spec.temperature.lr is not None:
        paths.append("temperature.lr")
    return [f"{path}={_text(value)}" for path in paths]


def _read_learning_rate(spec: object, _: int) -> Any:
    rates = [getattr(spec, name) for name in RATES if hasattr(spec, name)]
    if not rates:
        raise UsageError(f"{type(spec).__name__} has none of {', '.join(RATES)}")
    return rates[0]


def _gradient_steps(value: Any, _: Any, envs: int) -> Settings:
    if value == -1:  # Stable-Baselines3's word for one update for each step, which is also the default here
        return ["updates_per_step=1"]
    if type(value) not in (int, float) or not 1 <= value <= MAX_COUNT or value % envs:
        raise UsageError(
            f"it is the number of updates after one step in each of {envs} environments, and there are equally many "
            f"for each step here: give a multiple of {envs}, or -1 for one update a step"
        )
    return [f"updates_per_step={int(value) // envs}"]


def _train_freq(value: object, _: object, __: int) -> Settings:
    if not _is_in(value, (1, (1, "step"), [1, "step"])):
        raise UsageError("updates follow every step; several for each step are gradient_steps")
    return []


def _ent_coef(value: object, spec: object, _: int) -> Settings:
    temperature = _get(spec, "temperature")
    if not is_stochastic(spec):
        raise UsageError("a deterministic policy has no entropy; it explores by action_noise")
    if not isinstance(value, str):
        return ["temperature=none"] if value == 0 else ["temperature.lr=none", f"temperature.initial={_text(value)}"]
    word, _underscore, initial = value.partition("_")
    if word != "auto":
        raise UsageError('it is a number, "auto", or "auto_0.1" for where to begin')
    lr = None if temperature is None else temperature.lr
    learned = [f"temperature.lr={_text(1e-4 if lr is None else lr)}"]  # Table 5's, if it was not learned before
    return [*learned, f"temperature.initial={initial}"] if initial else learned


def _read_ent_coef(spec: object, _: int) -> Any:
    temperature = _get(spec, "temperature")
    if not is_stochastic(spec):
        return None
    if temperature is None:
        return 0.0
    return temperature.initial if temperature.lr is None else f"auto_{temperature.initial}"


def _target_entropy(value: object, spec: object, _: int) -> Settings:
    if not hasattr(spec, "temperature") or spec.temperature is None:
        raise UsageError("there is no entropy coefficient that is learned")
    return [f"temperature.target_entropy={'none' if value == 'auto' else _text(value)}"]


def _read_target_entropy(spec: object, _: int) -> Any:
    temperature = _get(spec, "temperature")
    if temperature is None or temperature.lr is None:
        return None
    return "auto" if temperature.target_entropy is None else temperature.target_entropy


def _action_noise(value: Any, spec: Any, _: int) -> Settings:
    """A standard deviation, for all actions or for each, or Stable-Baselines3's NormalActionNoise."""
    _get(spec, "exploration")
    value = getattr(value, "base_noise", value)  # of a VectorizedActionNoise, which has one for each environment
    mean, std = (value._mu, value._sigma) if type(value).__name__ == "NormalActionNoise" else (0.0, value)
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


def _policy_kwargs(value: object, spec: object, envs: int) -> Settings:
    if not isinstance(value, Mapping):
        raise UsageError("it is a dictionary, such as dict(net_arch=[256, 256])")
    settings: Settings = []
    for name, inner in value.items():
        if _is_harmless(name, inner, unsupported.POLICY_KWARGS):
            continue
        if name not in POLICY_KWARGS:
            raise unknown("key of policy_kwargs", str(name), POLICY_KWARGS)
        if inner is not None:
            settings += POLICY_KWARGS[name].settings(inner, spec, envs)
    return settings


def _read_policy_kwargs(spec: object, envs: int) -> dict[str, Any]:
    """Those that this kind of spec has, and that are not off."""
    values = {}
    for name, argument in POLICY_KWARGS.items():
        with contextlib.suppress(UsageError):
            values[name] = argument.read(spec, envs)
    return {name: value for name, value in values.items() if value is not None}


def _net_arch(value: Any, spec: Any, _: int) -> Settings:
    separate = hasattr(spec, "actor_hidden")  # the policy has widths of its own
    actor = critic = value
    if isinstance(value, Mapping):
        actor, critic = value.get("pi"), value.get("qf")
        if actor is None or critic is None or (not separate and list(actor) != list(critic)):
            raise UsageError("net_arch needs pi and qf" if separate else "net_arch has to be the same for pi and qf")
    if any(isinstance(widths, str | int | float) or not len(list(widths)) for widths in (actor, critic)):
        raise UsageError("net_arch is a list of widths, such as [256, 256]")
    networks = {"hidden": critic, "actor_hidden": actor} if separate else {"hidden": critic}
    return [f"{name}={','.join(map(_text, widths))}" for name, widths in networks.items()]


def _read_net_arch(spec: object, _: int) -> Any:
    hidden = list(_get(spec, "hidden"))
    return {"pi": list(spec.actor_hidden), "qf": hidden} if hasattr(spec, "actor_hidden") else hidden


def _batch_norm(value: object, spec: object, _: int) -> Settings:
    _get(spec, "batch_norm")
    return [] if value else ["batch_norm=none"]


def _batch_norm_momentum(value: object, spec: object, _: int) -> Settings:
    """Stable-Baselines3 gives the weight of the new value, we that of the old one."""
    _get(spec, "batch_norm")
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"batch_norm_momentum must be a number, not {value!r:.80}")
    return [f"batch_norm.momentum={_text(round(1 - value, 12))}"]


def _read_batch_norm_momentum(spec: object, _: int) -> Any:
    batch_norm = _get(spec, "batch_norm")
    return None if batch_norm is None else round(1 - batch_norm.momentum, 12)


ARGUMENTS: dict[str, Argument] = {
    "learning_rate": Argument(_learning_rate, _read_learning_rate),
    "buffer_size": _field("replay_size"),
    "learning_starts": _field("warmup"),
    "batch_size": _field("batch_size"),
    "tau": _field("target_rate"),
    "gamma": _field("discount"),
    "n_steps": _field("n_step"),
    "train_freq": Argument(_train_freq, lambda _, __: 1),
    "gradient_steps": Argument(_gradient_steps, lambda spec, envs: spec.updates_per_step * envs),
    "action_noise": Argument(_action_noise, _field("exploration.std").read),
    "policy_delay": _field("actor_every"),
    "target_update_interval": _field("target_every"),
    "target_policy_noise": _field("smoothing.std"),
    "target_noise_clip": _field("smoothing.clip"),
    "ent_coef": Argument(_ent_coef, _read_ent_coef),
    "target_entropy": Argument(_target_entropy, _read_target_entropy),
    "top_quantiles_to_drop_per_net": _field("quantiles.dropped"),
    "exploration_initial_eps": _field("epsilon.start"),
    "exploration_final_eps": _field("epsilon.end"),
    "exploration_steps": _field("epsilon.steps"),
    "max_grad_norm": _field("max_grad_norm"),
    "dropout_p": _field("dropout.p"),
    "policy_kwargs": Argument(_policy_kwargs, _read_policy_kwargs),
}

POLICY_KWARGS: dict[str, Argument] = {
    "net_arch": Argument(_net_arch, _read_net_arch),
    "n_critics": _field("critics"),
    "n_quantiles": _field("quantiles.count"),
    "layer_norm": _field("layer_norm"),
    "dropout_rate": _field("dropout.p"),
    "batch_norm": Argument(_batch_norm, lambda spec, _: _get(spec, "batch_norm") is not None),
    "batch_norm_momentum": Argument(_batch_norm_momentum, _read_batch_norm_momentum),
    "renorm_warmup_steps": _field("batch_norm.warmup"),
}
