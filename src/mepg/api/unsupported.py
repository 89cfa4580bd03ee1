"""What Stable-Baselines3 has and mepg has not, and what to use instead."""

from __future__ import annotations

from typing import Any, NamedTuple


class Unsupported(NamedTuple):
    """An argument that is refused, except with a value that asks for nothing."""

    instead: str
    harmless: tuple[Any, ...] = ()


_EXPLORATION = "exploration is the policy's own, or action_noise"
_FLATTEN = "observations are flattened: a network of another kind belongs into a wrapper of the environment"
_UNIFORM = "there is one kind of replay buffer, uniformly sampled"
_NOT_NEEDED = "it is not needed"

ARGUMENTS: dict[str, Unsupported] = {
    "use_sde": Unsupported(_EXPLORATION, (False,)),
    "use_sde_at_warmup": Unsupported(_EXPLORATION, (False,)),
    "sde_sample_freq": Unsupported(_EXPLORATION, (-1,)),
    "replay_buffer_class": Unsupported(_UNIFORM),
    "replay_buffer_kwargs": Unsupported(_UNIFORM, ({},)),
    "optimize_memory_usage": Unsupported("give a smaller buffer_size", (False,)),
    "stats_window_size": Unsupported("rollout/ep_rew_mean is over the last 100 episodes", (100,)),
    "monitor_wrapper": Unsupported(_NOT_NEEDED, (True, False)),
    "qf_learning_rate": Unsupported("give spec=, whose critic_lr it is"),
    "exploration_fraction": Unsupported("nothing here depends on total_timesteps: give exploration_steps"),
    "value_clip": Unsupported("values are not clipped"),
}

POLICY_KWARGS: dict[str, Unsupported] = {
    "activation_fn": Unsupported("hidden layers are ReLU"),
    "log_std_init": Unsupported("a Gaussian policy's range is --set gaussian.log_std, or spec=", (-3,)),
    "use_sde": Unsupported(_EXPLORATION, (False,)),
    "use_expln": Unsupported(_EXPLORATION, (False,)),
    "clip_mean": Unsupported("the mean is not clipped", (2.0,)),
    "features_extractor_class": Unsupported(_FLATTEN),
    "features_extractor_kwargs": Unsupported(_FLATTEN, ({},)),
    "normalize_images": Unsupported(_NOT_NEEDED, (True, False)),
    "optimizer_class": Unsupported("the optimiser is Adam"),
    "optimizer_kwargs": Unsupported("the optimiser is Adam, with its usual settings", ({},)),
    "batch_norm_eps": Unsupported("it is 0.001", (0.001,)),
    "share_features_extractor": Unsupported("the actor and the critics share nothing", (False,)),
}

# Arguments that mean something here too, with one value or two that mean the same.
FIXED: dict[str, Unsupported] = {
    "policy": Unsupported(
        "there is only 'MlpPolicy'; policy_kwargs=dict(net_arch=...) shapes it",
        ("MlpPolicy", "MultiInputPolicy"),  # any observation is flattened
    ),
    "device": Unsupported("mepg computes on the CPU", ("auto", "cpu")),
    "_init_setup_model": Unsupported("networks are made when there is an environment; leave out env", (True,)),
    "force_reset": Unsupported("a model always begins new episodes in an environment that it is given", (True,)),
}

ATTRIBUTES: dict[str, str] = {
    "policy": "the networks are arrays, not modules: get_parameters() returns them, predict() calls them",
    "actor": 'its arrays are get_parameters()["actor"]',
    "critic": 'its arrays are get_parameters()["critic"], its Q is q_posterior()',
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
    "rollout_buffer": "it is the replay buffer, replay_buffer",
    "ep_success_buffer": "a callback finds is_success in the infos",
}
