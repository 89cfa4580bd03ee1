"""TQC: SAC whose critics know distributions, and y the smaller quantiles; ME-TQC: with one masked critic.

Nothing here but data: `quantiles` is a field of any algorithm.
"""

from dataclasses import replace

from mepg.algos import Algorithm
from mepg.algos.mepg import INDEPENDENT
from mepg.algos.sac import SAC
from mepg.core.spec import Dropout, Quantiles

TQC = replace(SAC, quantiles=Quantiles(count=25, dropped=2), huber=1.0, policy_q="mean")
ME_TQC = replace(TQC, dropout=Dropout(), critics=1, actor_every=2)

ALGORITHMS = {
    "tqc": Algorithm(TQC, "SAC with two critics of 25 quantiles, two of each dropped", parent="sac", python_name="TQC"),
    "me-tqc": Algorithm(ME_TQC, "the consistent Bellman update on TQC", parent="tqc", python_name="ME_TQC"),
    "me-tqc-do": Algorithm(replace(ME_TQC, dropout=None), "without dropout", parent="me-tqc"),
    "me-tqc-r": Algorithm(replace(ME_TQC, dropout=INDEPENDENT), "a separate mask on each side", parent="me-tqc"),
}
