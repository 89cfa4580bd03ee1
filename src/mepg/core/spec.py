"""An algorithm, as data.

A mechanism is a value or `None`: `smoothing=None` is off, and there is no flag beside it. A spec is
canonical: two specs that mean the same compare equal (`Dropout(p=0)` becomes `None`, and so on).
The defaults are Table 5 of the paper, written here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal

from mepg.core.nets import Precision


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Gaussian noise on an action, `clip(N(0, std^2), -clip, clip)`; `clip=None`: unbounded (D8)."""

    std: float
    clip: float | None = None

    def __post_init__(self) -> None:
        require(0 <= self.std <= 1e6, "std", "in [0, 1e6]", self.std)
        require(self.clip is None or self.clip > 0, "clip", "above 0, or none", self.clip)


Masks = Literal["consistent", "independent", "online", "expected"]  # on the two sides of the Bellman equation


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """The dropout operator D_m on the critics' hidden units (Eq. 3)."""

    p: float = 0.1  # the probability that a unit is dropped
    masks: Masks = "consistent"  # D18; online: on Q(s, a) alone; expected: on both sides, averaged in closed form
    layers: Literal["last", "all"] = "last"  # which hidden layers (D1)
    rows: Literal["sample", "batch"] = "sample"  # one mask for each sample, or for the batch (D2)
    shared: bool = False  # whether all critics have the same mask
    place: Literal["after", "before"] = "after"  # the activation; before is also before layer normalisation
    policy_mask: bool = False  # whether the policy is improved under a mask too

    def __post_init__(self) -> None:
        require(0 <= self.p < 1, "p", "in [0, 1)", self.p)

    @property
    def closed_form(self) -> bool:
        """Whether the distribution of Q over masks has a closed form: Q is linear in all that is masked."""
        return self.layers == "last" and self.place == "after"


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """The entropy coefficient alpha and how it is learned (Eq. 8)."""

    initial: float = 0.1  # D10
    lr: float | None = 1e-4  # None: alpha stays as it is (D21)
    target_entropy: float | None = None  # None: -dim(A); for discrete actions, `entropy_ratio` says it
    every: int | None = None  # alpha is updated every so many critic updates; None: with the policy (D7)

    def __post_init__(self) -> None:
        require(1e-30 <= self.initial <= 1e30, "initial", "in [1e-30, 1e30]", self.initial)
        require(self.lr is None or 0 < self.lr <= 1, "lr", "in (0, 1], or none", self.lr)
        entropy = self.target_entropy
        require(entropy is None or abs(entropy) <= 1e6, "target_entropy", "in [-1e6, 1e6], or none", entropy)
        require(self.every is None or 1 <= self.every <= 10**9, "every", "in [1, 10^9], or none", self.every)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """A Gaussian policy squashed by tanh, and the range of its log standard deviation (D10)."""

    log_std: tuple[float, float] = (-5.0, 2.0)
    bound: Literal["tanh", "clip"] = "tanh"  # how the network's output is kept in that range

    def __post_init__(self) -> None:
        low, high = self.log_std
        require(-80 <= low < high <= 80, "log_std", "LOW,HIGH with -80 <= LOW < HIGH <= 80", self.log_std)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Exploring by choice: of several actions that the policy proposes, the best by the critics and their uncertainty.

    `ucb`: the largest mean + kappa std of Q over the masks. `thompson`: the largest Q of one sub-network, which is
    drawn for the episode.
    """

    how: Literal["ucb", "thompson"] = "ucb"
    proposals: int = 8  # K: draws of a stochastic policy, or a deterministic one's action with noise
    kappa: float = 1.0  # how much uncertainty is worth; of ucb alone

    def __post_init__(self) -> None:
        require(2 <= self.proposals <= 10_000, "proposals", "in [2, 10000]", self.proposals)
        require(0 <= self.kappa <= 1e6, "kappa", "in [0, 1e6]", self.kappa)
        if self.how == "thompson":
            object.__setattr__(self, "kappa", 1.0)


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """A critic's value as a distribution: its quantiles at (k - 1/2) / count, k = 1, 2, ..."""

    count: int = 25  # K
    dropped: int = 0  # TQC: the N * dropped largest of the N critics' pooled quantiles are left out of y

    def __post_init__(self) -> None:
        require(1 <= self.count <= 10_000, "count", "in [1, 10000]", self.count)
        valid = 0 <= self.dropped < self.count
        require(valid, "dropped", f"in [0, {self.count - 1}], which leaves one of {self.count} quantiles", self.dropped)


@dataclass(frozen=True, kw_only=True)
class Pessimism:
    """A lower confidence bound over all masks: Q - beta sigma, sigma^2 = lambda sum_j c_j^2, in place of Q in y."""

    beta: float = 0.25
    policy: bool = False  # whether the policy is improved on the bound too

    def __post_init__(self) -> None:
        require(0 <= self.beta <= 10, "beta", "in [0, 10]", self.beta)


@dataclass(frozen=True, kw_only=True)
class PolicyAverage:
    """A running average of the policy's parameters: phi_avg <- rate phi + (1 - rate) phi_avg, with the targets."""

    rate: float | None = None  # None: the target networks'
    use: Literal["acting", "targets", "both"] = "both"  # whose actions it chooses: those taken, a' in y, or both

    def __post_init__(self) -> None:
        require(self.rate is None or 0 < self.rate <= 1, "rate", "in (0, 1], or none", self.rate)

    @property
    def acts(self) -> bool:
        """Whether it chooses the actions that are taken."""
        return self.use in ("acting", "both")

    @property
    def in_targets(self) -> bool:
        """Whether it chooses a' in y."""
        return self.use in ("targets", "both")


@dataclass(frozen=True, kw_only=True)
class CriticSpec:
    """What any algorithm with critics says of them and of the loop. Hashable, so it can be static under `jit`."""

    critics: int = 1  # N
    dropout: Dropout | None = None  # None: always the complete network
    pessimism: Pessimism | None = None  # None: y is made from Q itself
    quantiles: Quantiles | None = None  # None: a critic's value is a number
    huber: float | None = None  # k of the Huber loss; None: the squared error
    policy_q: Literal["first", "min", "mean"] = "min"  # which Q of N critics the policy is improved on
    layer_norm: bool = False  # on the critics' hidden layers
    target_every: int = 2  # the target networks follow every so many critic updates (D9)
    updates_per_step: int = 1  # critic updates for each step in the environment

    discount: float = 0.99  # gamma
    n_step: int = 1  # rewards that are added up before the next value
    target_rate: float = 0.005  # eta
    critic_lr: float = 3e-4
    adam_b1: float = 0.9  # beta1 of Adam, for actor and critics
    hidden: tuple[int, ...] = (256, 256)
    init: Literal["uniform", "orthogonal"] = "uniform"  # D10
    precision: Precision = "full"  # mixed: hidden layers multiply numbers rounded to bfloat16
    batch_size: int = 256
    replay_size: int = 1_000_000
    warmup: int = 25_000  # steps with uniformly random actions, before the first update

    def __post_init__(self) -> None:
        for name, upper in _UPPER_BOUNDS.items():
            require(1 <= getattr(self, name) <= upper, name, f"in [1, {upper}]", getattr(self, name))
        require(0 < self.critic_lr <= 1, "critic_lr", "in (0, 1]", self.critic_lr)
        valid = 1 <= len(self.hidden) <= 100 and all(1 <= width <= 65_536 for width in self.hidden)
        require(valid, "hidden", "one to a hundred widths in [1, 65536]", self.hidden)
        require(0 <= self.warmup <= 10**12, "warmup", "in [0, 10^12]", self.warmup)
        require(0 <= self.discount <= 1, "discount", "in [0, 1]", self.discount)
        require(0 < self.target_rate <= 1, "target_rate", "in (0, 1]", self.target_rate)
        require(0 <= self.adam_b1 < 1, "adam_b1", "in [0, 1)", self.adam_b1)
        require(self.huber is None or 0 < self.huber <= 1e6, "huber", "in (0, 1e6], or none", self.huber)
        self._make_canonical()
        if self.dropout is not None and self.dropout.masks == "expected":
            _require_closed_form(self, self.dropout)
        if self.pessimism is not None:
            _require_sigma(self.dropout)

    @property
    def mask_place(self) -> Literal["after", "before"]:
        """Where a mask acts, if there is one."""
        return "after" if self.dropout is None else self.dropout.place

    def _make_canonical(self) -> None:
        """Give every meaning one spelling, so that `==` compares meanings."""
        if self.dropout is not None:
            if self.dropout.p == 0:
                self._set("dropout", None)
            elif self.dropout.layers == "all" and len(self.hidden) == 1:
                self._set("dropout", replace(self.dropout, layers="last"))
        if self.dropout is not None and not self.layer_norm:  # ReLU(m z) = m ReLU(z), since m >= 0
            self._set("dropout", replace(self.dropout, place="after"))
        if self.dropout is not None and self.dropout.masks == "expected":  # no mask is drawn, so none has rows
            self._set("dropout", replace(self.dropout, rows="sample"))
        if self.pessimism is not None and self.pessimism.beta == 0:
            self._set("pessimism", None)
        if self.critics == 1:
            if self.dropout is not None:
                self._set("dropout", replace(self.dropout, shared=False))
            self._set("policy_q", "min")
            if (
                self.quantiles is not None and self.quantiles.count == 1
            ):  # `doubled_quantile_huber_loss` of one quantile is `doubled_huber_loss`
                self._set("quantiles", None)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class ActorSpec(CriticSpec):
    """Critics, and an actor that is improved on them."""

    temperature: Temperature | None = None  # None: no entropy term
    actor_every: int = 1  # the policy is updated every so many critic updates: the delay d
    actor_lr: float = 3e-4
    policy_average: PolicyAverage | None = None  # None: the policy itself acts
    lr_decay: int | None = None  # updates until actor_lr and critic_lr have fallen to 0; None: they stay

    def __post_init__(self) -> None:
        decay = self.lr_decay
        require(decay is None or 1 <= decay <= 10**9, "lr_decay", "in [1, 10^9], or none", decay)
        require(1 <= self.actor_every <= 10**9, "actor_every", f"in [1, {10**9}]", self.actor_every)
        require(0 < self.actor_lr <= 1, "actor_lr", "in (0, 1]", self.actor_lr)
        super().__post_init__()

    @property
    def stochastic(self) -> bool:
        """Whether the policy is stochastic. A deterministic one has a target network, and no entropy."""
        return True

    @property
    def explores_with_critics(self) -> bool:
        """Whether exploration asks the critics which of several proposals is best."""
        return False

    def _make_canonical(self) -> None:
        super()._make_canonical()
        if self.temperature is not None:
            if self.temperature.lr is None:  # a fixed alpha has nothing to aim at
                self._set("temperature", Temperature(initial=self.temperature.initial, lr=None))
            elif self.temperature.every == self.actor_every:
                self._set("temperature", replace(self.temperature, every=None))
        if self.policy_average is not None and self.policy_average.rate == self.target_rate:
            self._set("policy_average", replace(self.policy_average, rate=None))


@dataclass(frozen=True, kw_only=True)
class Spec(ActorSpec):
    """What `core.agent.build` turns into an agent: critics, and a policy for continuous actions."""

    gaussian: Gaussian | None = None  # None: a deterministic policy, with a target network
    exploration: Noise | None = None  # added to the policy's own action while training
    search: Search | None = None  # None: while training, the policy's action with noise is taken
    subset: int | None = None  # M: y is made from a random M of the N critics; None: from all
    smoothing: Noise | None = None  # added to the next action: target policy smoothing
    minto: bool = False  # y from the smaller of target and online network's Q (MINTO)

    def __post_init__(self) -> None:
        valid = self.subset is None or 1 <= self.subset <= self.critics
        require(valid, "subset", f"in [1, {self.critics}], the number of critics, or none", self.subset)
        if self.temperature is not None and self.gaussian is None:
            raise ValueError("temperature needs a stochastic policy: a deterministic one has no entropy; set gaussian")
        super().__post_init__()
        if self.search is not None:
            if self.gaussian is None and self.exploration is None:
                raise ValueError(
                    "search needs proposals that differ: set exploration.std, or gaussian for a stochastic policy"
                )
            require_uncertainty(self, self.search)

    @property
    def stochastic(self) -> bool:
        return self.gaussian is not None

    @property
    def explores_with_critics(self) -> bool:
        return self.search is not None

    def _make_canonical(self) -> None:
        super()._make_canonical()
        for name in ("exploration", "smoothing"):
            noise = getattr(self, name)
            if noise is not None and noise.std == 0:
                self._set(name, None)
        if self.subset == self.critics:
            self._set("subset", None)


def derive(spec_class: type[Any], spec: Any, **changes: Any) -> Any:
    """A spec of another class, a subclass of `spec`'s, with the same fields and some changes."""
    return spec_class(**{field.name: getattr(spec, field.name) for field in fields(spec)} | changes)


def _require_closed_form(spec: CriticSpec, dropout: Dropout) -> None:
    """Refuse what the masks' expected loss cannot be computed for."""
    if not dropout.closed_form:
        raise ValueError(
            "dropout.masks=expected needs masks on the last layer alone, after the activation: "
            "set dropout.layers=last and dropout.place=after"
        )
    if dropout.policy_mask:
        raise ValueError("dropout.masks=expected draws no mask to improve the policy on: set dropout.policy_mask=false")
    if spec.critics > 1:
        raise ValueError("dropout.masks=expected has no closed form for the minimum of several critics: set critics=1")
    if spec.quantiles is not None or spec.huber is not None:
        raise ValueError("dropout.masks=expected needs a squared error: set quantiles=none and huber=none")


def _require_sigma(dropout: Dropout | None) -> None:
    """Refuse pessimism where the masks' standard deviation has no closed form."""
    if dropout is None:
        raise ValueError("pessimism needs masks, whose spread is sigma: set dropout.p, or pessimism=none")
    if not dropout.closed_form:
        raise ValueError(
            "pessimism needs masks on the last layer alone, after the activation: "
            "set dropout.layers=last and dropout.place=after, or pessimism=none"
        )


def require_uncertainty(spec: CriticSpec, search: Search) -> None:
    """Refuse a search by critics without uncertainty, or without a closed form of it where one is needed."""
    if spec.dropout is None and spec.critics == 1:
        raise ValueError("search needs critics with uncertainty: set dropout.p, or critics to more than 1")
    if search.how == "ucb" and spec.dropout is not None and not spec.dropout.closed_form:
        raise ValueError(
            "search.how=ucb needs masks on the last layer alone, after the activation: set search.how=thompson"
        )


# A value outside these bounds is a typing error, and would fail much later, with an obscure message.
_UPPER_BOUNDS = MappingProxyType(
    {
        "critics": 1_000,
        "target_every": 10**9,
        "updates_per_step": 10_000,
        "n_step": 1_000,
        "batch_size": 10**6,
        "replay_size": 10**9,
    }
)


def require(holds: bool, field: str, expected: str, value: object) -> None:
    """Refuse a value of a field, with what it must be."""
    if not holds:
        raise ValueError(f"{field} must be {expected}, not {value}")
