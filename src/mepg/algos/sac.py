"""SAC: a stochastic policy with an entropy bonus (Eq. 6 to 8)."""

from mepg.algos import Algorithm
from mepg.core.spec import Gaussian, Spec, Temperature

SAC = Spec(gaussian=Gaussian(), temperature=Temperature(), critics=2, init="orthogonal")

ALGORITHMS = {
    "sac": Algorithm(SAC, "soft actor-critic, two critics, learned temperature", python_name="SAC"),
}
