"""REDQ: many critics, of which a random few are asked for the target (D19). DroQ: two that are masked instead.

Both follow the SAC of this package in what their authors leave to it: the policy's head, its initial
weights and the learning rate of alpha.
"""

from dataclasses import replace

from mepg.algos import Algorithm
from mepg.algos.sac import SAC
from mepg.core.spec import Dropout

REDQ = replace(SAC, critics=10, subset=2, policy_q="mean", actor_every=20, target_every=1)
REDQ_UTD20 = replace(REDQ, updates_per_step=20)

# As its authors have it: ordinary dropout, before layer normalisation, on every hidden layer and in every pass.
DROQ_MASKS = Dropout(p=0.01, masks="independent", layers="all", place="before", policy_mask=True)
DROQ = replace(
    SAC,
    dropout=DROQ_MASKS,
    layer_norm=True,
    policy_q="mean",
    updates_per_step=20,
    actor_every=20,
    target_every=1,
)

ALGORITHMS = {
    "redq": Algorithm(
        REDQ, "ten critics, targets from a random two, policy every 20 updates", parent="sac", python_name="REDQ"
    ),
    "redq-ours": Algorithm(replace(REDQ, actor_every=2), "the paper's variant: policy every 2 updates", parent="redq"),
    "redq-utd20": Algorithm(REDQ_UTD20, "the original: 20 critic updates a step", parent="redq"),
    "droq": Algorithm(
        DROQ, "two critics with dropout and layer normalisation, 20 updates a step", parent="sac", python_name="DroQ"
    ),
}
