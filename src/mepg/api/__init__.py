"""The Python face: `mepg.ME_SAC("MlpPolicy", env).learn(100_000)`, as in Stable-Baselines3."""

from mepg.api.model import Model, algorithm, load


class ME_SAC(Model):  # noqa: N801
    """The consistent Bellman update on SAC: one critic, masked, that is an ensemble of 2^n."""

    algorithm = "me-sac"


class ME_DDPG(Model):  # noqa: N801
    """The consistent Bellman update on DDPG, with smoothed targets and a delayed policy."""

    algorithm = "me-ddpg"


class DDPG(Model):
    """A deterministic policy, improved along its critic's gradient."""

    algorithm = "ddpg"


class TD3(Model):
    """DDPG with two critics, smoothed targets and a delayed policy."""

    algorithm = "td3"


class SAC(Model):
    """A stochastic policy that is paid for its entropy; two critics."""

    algorithm = "sac"


class REDQ(Model):
    """SAC with ten critics, of which a random two are asked for the target."""

    algorithm = "redq"


class SUNRISE(Model):
    """Three bootstrapped SAC agents; what they disagree on counts less."""

    algorithm = "sunrise"


class ACE(Model):
    """Several actors, a critic that says which of them to follow, and a learned model to look ahead with."""

    algorithm = "ace"


class DroQ(Model):
    """SAC with dropout and layer normalisation in its critics, 20 updates a step."""

    algorithm = "droq"


class CrossQ(Model):
    """SAC with batch normalisation and without target networks."""

    algorithm = "crossq"


class ME_CrossQ(Model):  # noqa: N801
    """The consistent Bellman update on CrossQ: one masked critic, the same mask in both halves of the joint batch."""

    algorithm = "me-crossq"


class TQC(Model):
    """SAC with two critics of 25 quantiles; the largest are left out of the target."""

    algorithm = "tqc"


class ME_TQC(Model):  # noqa: N801
    """The consistent Bellman update on TQC: one critic of 25 quantiles, masked."""

    algorithm = "me-tqc"


class DQN(Model):
    """Discrete actions: the one with the largest Q, or with probability epsilon any."""

    algorithm = "dqn"


class ME_DQN(Model):  # noqa: N801
    """The consistent Bellman update on DQN."""

    algorithm = "me-dqn"


class QRDQN(Model):
    """DQN whose critic knows the quantiles of the return."""

    algorithm = "qr-dqn"


class ME_QRDQN(Model):  # noqa: N801
    """The consistent Bellman update on QR-DQN."""

    algorithm = "me-qr-dqn"


__all__ = [
    "ACE", "DDPG", "DQN", "ME_DDPG", "ME_DQN", "ME_QRDQN", "ME_SAC", "ME_TQC", "QRDQN", "REDQ", "SAC", "SUNRISE", "TD3",
    "TQC", "CrossQ", "DroQ", "ME_CrossQ", "Model", "algorithm", "load",
]  # fmt: skip
