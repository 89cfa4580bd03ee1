"""ME-DDPG and ME-SAC, one critic each, and the paper's ablations: the subject of this package."""

from dataclasses import replace

from mepg.algos import Algorithm
from mepg.algos.ddpg import DDPG, SMOOTHING
from mepg.algos.sac import SAC
from mepg.core.spec import Dropout, Pessimism, PolicyAverage, Temperature

ME_DDPG = replace(DDPG, dropout=Dropout(), smoothing=SMOOTHING, actor_every=2)
ME_SAC = replace(SAC, dropout=Dropout(), critics=1, actor_every=2)

INDEPENDENT = Dropout(masks="independent")  # D18
EXPECTED = Dropout(masks="expected")  # not the paper's: what its masks do on average, without drawing one
LOWER_BOUND = Pessimism(beta=0.25, policy=True)  # not the paper's either

ALGORITHMS = {
    "me-ddpg": Algorithm(ME_DDPG, "the consistent Bellman update on DDPG", parent="ddpg", python_name="ME_DDPG"),
    "me-ddpg-do": Algorithm(replace(ME_DDPG, dropout=None), "without dropout", parent="me-ddpg"),
    "me-ddpg-du": Algorithm(replace(ME_DDPG, actor_every=1), "without delayed policy updates", parent="me-ddpg"),
    "me-ddpg-tps": Algorithm(replace(ME_DDPG, smoothing=None), "without target policy smoothing", parent="me-ddpg"),
    "me-ddpg-r": Algorithm(replace(ME_DDPG, dropout=INDEPENDENT), "a separate mask on each side", parent="me-ddpg"),
    "me-ddpg+cdq": Algorithm(
        replace(ME_DDPG, critics=2, policy_q="first"), "with clipped double Q, as in TD3 (D4)", parent="me-ddpg"
    ),
    "me-ddpg-x": Algorithm(replace(ME_DDPG, dropout=EXPECTED), "the masks' expected update, none drawn", "me-ddpg"),
    "me-ddpg+lcb": Algorithm(
        replace(ME_DDPG, pessimism=LOWER_BOUND),
        "on a lower confidence bound over all masks",
        parent="me-ddpg",
        python_name="ME_DDPG_LCB",
    ),
    "me-sac": Algorithm(ME_SAC, "the consistent Bellman update on SAC", parent="sac", python_name="ME_SAC"),
    "me-sac-do": Algorithm(replace(ME_SAC, dropout=None), "without dropout", parent="me-sac"),
    "me-sac-du": Algorithm(replace(ME_SAC, actor_every=1), "without delayed policy updates", parent="me-sac"),
    "me-sac-r": Algorithm(replace(ME_SAC, dropout=INDEPENDENT), "a separate mask on each side", parent="me-sac"),
    "me-sac+cdq": Algorithm(replace(ME_SAC, critics=2), "with clipped double Q, as in SAC (D4)", parent="me-sac"),
    "me-sac+fixent": Algorithm(
        replace(ME_SAC, temperature=Temperature(lr=None)), "with a fixed temperature", parent="me-sac"
    ),
    "me-sac-x": Algorithm(replace(ME_SAC, dropout=EXPECTED), "the masks' expected update, none drawn", "me-sac"),
    "me-sac+lcb": Algorithm(
        replace(ME_SAC, pessimism=LOWER_BOUND, policy_average=PolicyAverage()),
        "on a lower confidence bound over all masks, with an averaged policy",
        parent="me-sac",
        python_name="ME_SAC_LCB",
    ),
}
