"""What a run's critics believe, compared with what really followed.

An episode is played with the policy that the critics evaluate: a Gaussian policy's actions are drawn, a deterministic
policy's have no noise. At each step Q(s, a) and its band stand beside the discounted return that followed,

    G_t = r_t + gamma (G_t+1 - alpha log pi(a_t+1 | s_t+1)),

with the entropy bonus where Q has one (Eq. 7). A time limit is no end (D20), so episodes are played on past it until
what lies further ahead weighs at most `NEGLIGIBLE`. Where an environment truncates an episode itself, the steps that
are nearer to its end than that are left out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from mepg.core.spec import CriticSpec
from mepg.core.types import Array, Key
from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.jax_defaults import with_jax_defaults
from mepg.storage.checkpoint import Checkpoints, PyTree
from mepg.storage.files import Damaged, parse_count, parse_finite, path_exists, read_sealed, write_sealed
from mepg.storage.folder import Folder
from mepg.storage.policy import SavedPolicy, load_policy
from mepg.training import evaluate
from mepg.training.keys import episode_seed, jax_key
from mepg.training.queries import AgentQueries
from mepg.training.replay import FloatArray

FORMAT = 2
NEGLIGIBLE = 0.01  # the rest of a return is ignored once its weight gamma^n is at most this
STEPS_WITHOUT_TIME_LIMIT = 1_000  # steps of an episode that are compared where there is no time limit
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of the bands whose coverage is counted
POINTS = 500  # steps that are kept for the picture
BATCH = 256  # inputs that Q is computed for at a time: one compiled program for episodes of any length

Floats = npt.NDArray[np.float64]


class Trace(NamedTuple):
    """Steps of an episode: Q with its standard deviation, and the return that followed."""

    q: list[float]
    std: list[float]
    truth: list[float]  # G_t; named as in the file


class ResidualVariances(NamedTuple):
    """Through training: the variance that masks add to the Bellman residual. Empty where nothing is masked."""

    steps: list[float]
    one_mask: list[float]  # the same on both sides
    two_masks: list[float]  # independent ones


class Inspection(NamedTuple):
    """Q of one run, compared with the returns that followed."""

    run: str  # its folder's name
    algorithm: str
    env: str
    seed: int
    step: int  # of training
    episodes: int
    steps: int  # that are compared
    left_out: int  # steps that are too near to a truncation
    bias: float  # mean of Q - G: above 0, the critics overestimate
    error: float  # root of the mean of (Q - G)^2
    spread: float  # mean standard deviation of Q
    coverage: list[float] | None  # how often G lies in the band, for each of LEVELS; None: there is no band
    first: Trace  # the first episode
    some: Trace  # steps of all episodes, evenly chosen
    noise: ResidualVariances
    followed: float | None = None  # mean of G, the discounted return; None: a file of an earlier version does not say
    beta: float | None = None  # of a run with pessimism

    @property
    def mean_q(self) -> float | None:
        return None if self.followed is None else self.followed + self.bias

    @property
    def bound_bias(self) -> float | None:
        """Mean of Q - beta sigma - G, if the run has pessimism."""
        return None if self.beta is None else self.bias - self.beta * self.spread

    @property
    def covered(self) -> dict[float, float]:
        """The coverage, by level."""
        return dict(zip(LEVELS, self.coverage or (), strict=False))

    @property
    def noise_ratio(self) -> float | None:
        """How many times the residual's variance is as large with two masks, at the end of training; None: unknown."""
        if not self.noise.steps or self.noise.one_mask[-1] <= 0:
            return None
        return self.noise.two_masks[-1] / self.noise.one_mask[-1]

    def figures(self) -> dict[str, object]:
        """The figures, without what is only drawn."""
        drawn = Trace | ResidualVariances
        figures = {name: value for name, value in self._asdict().items() if not isinstance(value, drawn)}
        derived = {name: getattr(self, name) for name in ("mean_q", "bound_bias", "noise_ratio")}
        return figures | derived


def inspect_run(folder: Folder, episodes: int, seed: int, env_id: str | None = None) -> Inspection:
    """Play a run's policy, and compare. `env_id`: see `Folder.env`."""
    config = folder.config()
    with contextlib.closing(Env(folder.env(env_id), time_limit=False)) as env:
        player = Player(folder, env)
        played = [player.play(seed, number) for number in range(episodes)]
    traces = [trace for trace, _ in played if trace.q]
    if not traces:
        raise UsageError(
            f"{folder.path}: {config.env} cuts its episodes so early that what follows a step is never known "
            f"at discount {config.spec.discount:g}"
        )
    q, std, returns = (np.concatenate([np.array(trace[i]) for trace in traces]) for i in range(3))
    pessimism = config.spec.pessimism if isinstance(config.spec, CriticSpec) else None
    chosen = np.unique(np.linspace(0, len(q) - 1, min(POINTS, len(q))).round().astype(int))
    return Inspection(
        run=folder.path.resolve().name,
        algorithm=config.algorithm,
        env=config.env,
        seed=config.seed,
        step=player.policy.step,
        episodes=len(traces),
        steps=len(q),
        left_out=sum(left_out for _, left_out in played),
        bias=float((q - returns).mean()),
        error=float(np.sqrt(((q - returns) ** 2).mean())),
        spread=float(std.mean()),
        coverage=coverage(q, std, returns) if std.any() else None,
        first=traces[0],
        some=Trace(q[chosen].tolist(), std[chosen].tolist(), returns[chosen].tolist()),
        noise=read_residual_variances(folder, player.policy),
        followed=float(returns.mean()),
        beta=None if pessimism is None else pessimism.beta,
    )


class Player:
    """Plays a run's policy, and asks its critics."""

    def __init__(self, folder: Folder, env: Env) -> None:
        self.policy, self.env = load_policy(folder, env.spaces), env
        self._queries = AgentQueries(self.policy.config.build(env.sizes), self.policy.config.seed)
        beliefs = self._queries.beliefs

        def play(state: PyTree, obs: Array, key: Key, episode: Array, step: Array) -> tuple[Array, Array]:
            k_episode, k_steps = jax.random.split(jax.random.fold_in(key, episode))
            return beliefs.critics_policy(state, obs, k_episode, jax.random.fold_in(k_steps, step))

        self._play = with_jax_defaults(jax.jit(play))

    def play(self, seed: int, number: int) -> tuple[Trace, int]:
        """One episode, and how many of its steps had to be left out."""
        discount = float(self.policy.config.spec.discount)
        limit, ahead = self.env.time_limit or STEPS_WITHOUT_TIME_LIMIT, steps_until_negligible(discount)
        most = limit + (STEPS_WITHOUT_TIME_LIMIT if ahead is None else ahead)
        obs, actions, rewards, bonuses, ended = self._episode(seed, number, most)
        returns = discounted_returns(rewards, bonuses, discount)
        unknown = 0 if ended else len(rewards) if ahead is None else ahead
        known = min(limit, max(0, len(rewards) - unknown))
        q, std = self._moments(obs[:known], actions[:known])
        return Trace(q.tolist(), std.tolist(), returns[:known].tolist()), min(limit, len(rewards)) - known

    def _episode(self, seed: int, number: int, most: int) -> tuple[FloatArray, FloatArray, Floats, Floats, bool]:
        """States [T, S], actions [T, A], rewards and entropy bonuses [T], and whether it ended by itself."""
        key = jax_key(seed, "belief")
        obs, rows, ended = self.env.reset(episode_seed(seed, "eval", number)), [], False
        for t in range(most):
            (action,), (bonus,) = map(np.asarray, self._play(self.policy.state, obs[None], key, number, t))
            outcome = self.env.step(action)
            rows.append((obs, action, outcome.reward, bonus))
            obs, ended = outcome.obs, outcome.terminated
            if outcome.done:
                break
        states, actions, rewards, bonuses = zip(*rows, strict=True)
        return np.array(states), np.array(actions), np.array(rewards, float), np.array(bonuses, float), ended

    def _moments(self, obs: FloatArray, actions: FloatArray) -> tuple[Floats, Floats]:
        """Mean and standard deviation of Q. [T], [T]"""
        means, variances = [np.zeros(0)], [np.zeros(0)]
        for at in range(0, len(obs), BATCH):
            batch = [np.resize(each[at : at + BATCH], (BATCH, each.shape[1])) for each in (obs, actions)]
            mean, variance = self._queries.moments(self.policy.state, *batch)
            means.append(mean.astype(float)[: len(obs) - at])
            variances.append(variance.astype(float)[: len(obs) - at])
        return np.concatenate(means), np.sqrt(np.concatenate(variances))


def steps_until_negligible(discount: float) -> int | None:
    """The first n with gamma^n <= NEGLIGIBLE. None: too far away; only episodes that end by themselves count."""
    if discount >= NEGLIGIBLE ** (1 / evaluate.MAX_EPISODE_STEPS):
        return None
    return 1 if discount <= NEGLIGIBLE else math.ceil(math.log(NEGLIGIBLE) / math.log(discount))


def discounted_returns(rewards: Floats, bonuses: Floats, discount: float) -> Floats:
    """G_t = r_t + gamma (bonus_t+1 + G_t+1): the entropy bonus of a_t itself is not part of Q(s_t, a_t). [T]"""
    returns, after = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = rewards[t] + discount * after
        after = bonuses[t] + returns[t]
    return returns


def coverage(q: Floats, std: Floats, returns: Floats) -> list[float]:
    """How often |Q - G| <= z std, with the normal distribution's z for each of LEVELS."""
    widths = (NormalDist().inv_cdf(0.5 + level / 2) for level in LEVELS)
    return [float((np.abs(q - returns) <= width * std).mean()) for width in widths]


def read_residual_variances(folder: Folder, policy: SavedPolicy) -> ResidualVariances:
    """The residual's variance with either choice of masks until this policy, from metrics.csv, where a row has it."""
    columns = ("time/total_timesteps", "train/noise_one_mask", "train/noise_two_masks")
    found: list[list[float]] = []
    for row in _metrics(folder, policy):
        with contextlib.suppress(KeyError, ValueError):
            numbers = [float(row[name]) for name in columns]
            if all(map(math.isfinite, numbers)):
                found.append(numbers)
    return ResidualVariances(*([row[i] for row in found] for i in range(3)))


def _metrics(folder: Folder, policy: SavedPolicy) -> list[dict[str, str]]:
    """The part of metrics.csv that has a checksum: the run's, or that of the checkpoint that the policy comes from."""
    result = folder.result(policy.config)
    try:
        if result is not None:
            return folder.checked_metrics(result)
        checksum = Checkpoints(folder.path, policy.config).metrics_checksum(policy.step)
        return [] if checksum is None else folder.metrics(checksum)
    except Damaged as damage:
        raise UsageError(f"{folder.path}: {damage}") from None


def write_inspection(folder: Folder, found: Inspection) -> None:
    """Write inspect.json, from which the picture can be drawn again."""
    content = found._asdict() | {"noise": found.noise._asdict()}
    for name, trace in (("first", found.first), ("some", found.some)):
        content[name] = {column: list(map(_as_drawn, numbers)) for column, numbers in trace._asdict().items()}
    metadata = {"format": FORMAT, "config": folder.config().fingerprint, "levels": LEVELS}
    write_sealed(folder.inspection_file, {**metadata, **content})


def _as_drawn(number: float) -> float:
    """Rounded to as many digits as a picture can show."""
    return float(f"{number:.4g}")


def read_inspection(folder: Folder) -> Inspection | None:
    """What `write_inspection` wrote, or None; a UsageError if it is something else."""
    if not path_exists(folder.inspection_file):
        return None
    try:
        data = read_sealed(folder.inspection_file)
        if data.pop("config") != folder.config().fingerprint:
            raise ValueError("it is another run's")
        if data.pop("format") != FORMAT or tuple(data.pop("levels")) != LEVELS:
            raise ValueError("of another version")
        found = Inspection(**{name: _READ[name](value) for name, value in data.items()})
        if not found.first.q or not found.some.q:
            raise ValueError("without a single step")
        if found.coverage is not None and len(found.coverage) != len(LEVELS):
            raise ValueError("a coverage for other levels")
    except (Damaged, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{folder.inspection_file} is damaged: {error}; mepg inspect writes it again") from None
    return found


def _numbers(data: Any) -> list[float]:
    return [parse_finite(number) for number in data]


def _columns(tuple_type: Any, data: Any) -> Any:
    columns = [_numbers(data[name]) for name in tuple_type._fields]
    if len(set(map(len, columns))) != 1:
        raise ValueError("columns of different lengths")
    return tuple_type(*columns)


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("run", "algorithm", "env"), str),
    **dict.fromkeys(("seed", "step", "episodes", "steps", "left_out"), parse_count),
    **dict.fromkeys(("first", "some"), partial(_columns, Trace)),
    "noise": partial(_columns, ResidualVariances),
    "coverage": lambda data: None if data is None else _numbers(data),
    **dict.fromkeys(("bias", "error", "spread"), parse_finite),
    **dict.fromkeys(("followed", "beta"), lambda data: None if data is None else parse_finite(data)),
}
