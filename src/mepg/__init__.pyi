# Written by scripts/stub.py from the registry of algorithms.
# ruff: noqa
from mepg.api.classes import algorithm as algorithm, load as load, recommended as recommended
from mepg.api.model import Model as Model
from mepg.errors import RunFailure as RunFailure, UsageError as UsageError

__version__: str

class ACE(Model):
    """Five actors; a tree through a learned model chooses one."""

class CrossQ(Model):
    """SAC with batch normalisation and without target networks."""

class DDPG(Model):
    """Deterministic policy gradient, one critic."""

class DQN(Model):
    """Discrete actions, the one with the largest Q."""

class DroQ(Model):
    """Two critics with dropout and layer normalisation, 20 updates a step."""

class ME_CrossQ(Model):
    """The consistent Bellman update on CrossQ."""

class ME_DDPG(Model):
    """The consistent Bellman update on DDPG."""

class ME_DDPG_LCB(Model):
    """On a lower confidence bound over all masks."""

class ME_DQN(Model):
    """The consistent Bellman update on DQN."""

class ME_QRDQN(Model):
    """The consistent Bellman update on QR-DQN."""

class ME_SAC(Model):
    """The consistent Bellman update on SAC."""

class ME_SACDiscrete(Model):
    """The consistent Bellman update on SAC for discrete actions."""

class ME_SAC_LCB(Model):
    """On a lower confidence bound over all masks, with an averaged policy."""

class ME_TQC(Model):
    """The consistent Bellman update on TQC."""

class QRDQN(Model):
    """DQN with 50 quantiles of the return."""

class REDQ(Model):
    """Ten critics, targets from a random two, policy every 20 updates."""

class SAC(Model):
    """Soft actor-critic, two critics, learned temperature."""

class SACDiscrete(Model):
    """SAC for discrete actions, two critics."""

class SUNRISE(Model):
    """Three bootstrapped SAC agents, backups weighted by their agreement."""

class TD3(Model):
    """Two critics, smoothed targets, delayed policy."""

class TQC(Model):
    """SAC with two critics of 25 quantiles, two of each dropped."""
