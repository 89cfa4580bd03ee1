"""What is raced, as data: the tasks, and the algorithms of this library and of others with their settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from mepg.algos import tuned_settings


class RaceTask(NamedTuple):
    """A task, and the mean return that counts as solved. Fixed before the first race."""

    threshold: float
    eval_every: int = 2_500  # steps


class Contestant(NamedTuple):
    """An algorithm of this library, or of another."""

    algorithm: str
    settings: tuple[str, ...] = ()  # of this library's
    library: str = ""  # another one
    zoo: bool = False  # with the settings below, instead of that library's own


TASKS = {
    "Pendulum-v1": RaceTask(-200, eval_every=500),
    "HopperBulletEnv-v0": RaceTask(1_500),
    "AntBulletEnv-v0": RaceTask(1_500),
    "HalfCheetah-v5": RaceTask(5_000),
    "Hopper-v5": RaceTask(2_000),
    "Walker2d-v5": RaceTask(2_000),
}
_BULLET, _MUJOCO = ("HopperBulletEnv-v0", "AntBulletEnv-v0"), ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")

_OURS = {
    **{name: Contestant(name) for name in ("sac", "me-sac", "me-ddpg")},
    "me-sac+lcb-tuned": Contestant("me-sac+lcb", tuple(tuned_settings("me-sac+lcb"))),
}
_THEIRS = {
    f"{library}-{name}": Contestant(name, library=library)
    for library, names in {"sb3": ("sac", "td3"), "sbx": ("sac", "tqc", "crossq")}.items()
    for name in names
}
CONTESTANTS = {
    **_OURS,
    **{f"{name}-mixed": each._replace(settings=(*each.settings, "precision=mixed")) for name, each in _OURS.items()},
    **_THEIRS,
    **{f"{name}-zoo": each._replace(zoo=True) for name, each in _THEIRS.items()},
}

# RL Baselines3 Zoo 2.9.2 publishes these settings for the PyBullet tasks, Pendulum-v1, and MuJoCo's v4, which stand
# here for v5. `lin_` is a learning rate that falls to 0 over `n_timesteps`.
_GSDE = {
    "learning_rate": 7.3e-4, "buffer_size": 300_000, "batch_size": 256, "gamma": 0.98, "train_freq": 8,
    "gradient_steps": 8, "learning_starts": 10_000, "use_sde": True,
}  # fmt: skip
_GSDE_SAC = {**_GSDE, "tau": 0.02, "policy_kwargs": {"log_std_init": -3, "net_arch": [400, 300], "use_expln": True}}
_GSDE_CROSSQ = {**_GSDE, "policy_kwargs": {"log_std_init": -3, "use_expln": True}}
_FALLING = {"learning_rate": "lin_7.3e-4", "n_timesteps": 1_000_000}
_TD3 = {"learning_starts": 10_000, "noise_std": 0.1, "policy_kwargs": {"net_arch": [400, 300]}}
_TD3_MUJOCO = {**_TD3, "learning_rate": 1e-3, "batch_size": 256}
_TD3_BULLET = {**_TD3, "gamma": 0.98, "buffer_size": 200_000, "batch_size": 256, "learning_rate": 7e-4}
_LATER = {"learning_starts": 10_000}
_CROSSQ = {
    "buffer_size": 1_000_000, "learning_rate": 1e-3, "learning_starts": 5_000, "policy_delay": 3,
    "policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [2048, 2048]}},
}  # fmt: skip
ZOO: dict[str, dict[str, dict[str, Any]]] = {
    "sac": {
        "Pendulum-v1": {"learning_rate": 1e-3},
        "HopperBulletEnv-v0": {**_GSDE_SAC, **_FALLING},
        "AntBulletEnv-v0": _GSDE_SAC,
        **dict.fromkeys(_MUJOCO, _LATER),
    },
    "td3": {
        "Pendulum-v1": {**_TD3, "gamma": 0.98, "buffer_size": 200_000, "learning_rate": 1e-3},
        **dict.fromkeys(_BULLET, _TD3_BULLET),
        **dict.fromkeys(_MUJOCO, _TD3_MUJOCO),
    },
    "tqc": {
        "Pendulum-v1": {"learning_rate": 1e-3},
        "HopperBulletEnv-v0": {**_GSDE_SAC, **_FALLING, "top_quantiles_to_drop_per_net": 5},
        "AntBulletEnv-v0": _GSDE_SAC,
        **dict.fromkeys(_MUJOCO, _LATER),
        "Hopper-v5": {**_LATER, "top_quantiles_to_drop_per_net": 5},
    },
    "crossq": {
        "Pendulum-v1": {"policy_delay": 2, "policy_kwargs": {"net_arch": [256, 256]}},
        "HopperBulletEnv-v0": {**_GSDE_CROSSQ, **_FALLING},
        "AntBulletEnv-v0": _GSDE_CROSSQ,
        **dict.fromkeys(_MUJOCO, _CROSSQ),
    },
}
