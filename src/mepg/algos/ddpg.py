"""DDPG and TD3: a deterministic policy, improved along the critic's gradient (Eq. 5)."""

from dataclasses import replace

from mepg.algos import Algorithm
from mepg.core.spec import Noise, Spec

SMOOTHING = Noise(std=0.2, clip=0.5)  # D8: TD3's defaults

DDPG = Spec(exploration=Noise(std=0.1))
TD3 = replace(DDPG, critics=2, policy_q="first", smoothing=SMOOTHING, actor_every=2)

ALGORITHMS = {
    "ddpg": Algorithm(DDPG, "deterministic policy gradient, one critic", python_name="DDPG"),
    "td3": Algorithm(TD3, "two critics, smoothed targets, delayed policy", parent="ddpg", python_name="TD3"),
}
