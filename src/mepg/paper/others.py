"""Learning curves that others published for nearly the same tasks, and an estimate of what they cost on a CPU.

The files in published/ say where their curves come from: repository, commit and licence.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from mepg.core.types import Sizes
from mepg.report.long_format import PublishedCurve, read_long_format
from mepg.report.tables import Cell, TableRow

# The v4 tasks that the curves are of, with their sizes, and the v5 tasks that they are shown beside.
TASKS = {
    "Ant-v4": ("Ant-v5", Sizes(obs=27, action=8)),
    "HalfCheetah-v4": ("HalfCheetah-v5", Sizes(obs=17, action=6)),
    "Hopper-v4": ("Hopper-v5", Sizes(obs=11, action=3)),
    "Walker2d-v4": ("Walker2d-v5", Sizes(obs=17, action=6)),
    "Humanoid-v4": ("Humanoid-v5", Sizes(obs=376, action=17)),
}
GFLOPS = 95.5  # of one core: SAC's update in native code, docs/bench.json; a multiply-add is two operations
ENV_SECONDS = 1e-4  # of a step in a MuJoCo task
CAPTION = (
    "Thin: mean and half a standard deviation over 5 to 10 seeds on the v4 tasks, as others published them ({}). v4 is "
    "not v5: our SAC on v5 beside their SAC on v4 shows how far they can be compared."
)
HOURS_CAPTION = (
    f" Their core-hours are an estimate, from the multiply-adds of their updates at {GFLOPS:g} GFLOPS on one core; "
    "docs/reproduce.md has the formula."
)


class Net(NamedTuple):
    """A network, by the products of its layers: its first and last hidden width, and the weights in between."""

    width: int
    inner: int

    def weights(self, inputs: int, outputs: int) -> int:
        return inputs * self.width + self.inner + self.width * outputs


def _mlp(width: int, layers: int) -> Net:
    return Net(width, (layers - 1) * width**2)


def _blocks(width: int, blocks: int, expansion: int) -> Net:
    """Residual blocks: to `expansion` times the width, and back."""
    return Net(width, blocks * 2 * expansion * width**2)


class Method(NamedTuple):
    """What one step of a published method multiplies."""

    critic: Net
    actor: Net
    critics: int = 2
    target_critics: int = 2  # that y is made of
    actor_critics: int = 2  # that the policy is improved on
    atoms: int = 1  # that a critic gives
    batch: int = 256
    critic_updates: float = 1  # for each step in the environment
    actor_updates: float = 1
    encoder: bool = False  # MR.Q's

    def multiply_adds(self, sizes: Sizes) -> float:
        """Of one step in the environment.

        W weights cost a transition W multiply-adds forward, W for the gradients of the weights, W for those of the
        inputs. A critic's update goes through the critics both ways, and forward through the target critics and the
        policy. A policy's update goes through the policy both ways, and through critics forward and to their inputs.
        """
        state, both = (_CODE, _CODE) if self.encoder else (sizes.obs, sizes.obs + sizes.action)
        q, pi = self.critic.weights(both, self.atoms), self.actor.weights(state, 2 * sizes.action)
        critic = 3 * self.critics * q + self.target_critics * q + pi
        actor = 3 * pi + 2 * self.actor_critics * q
        encoder = _encoder(sizes) if self.encoder else 0
        return self.batch * (self.critic_updates * critic + self.actor_updates * actor + encoder)

    def core_hours(self, sizes: Sizes, steps: float) -> float:
        """An estimate: only products and the environment count, and products are as fast as our own."""
        return steps * (2 * self.multiply_adds(sizes) / (GFLOPS * 1e9) + ENV_SECONDS) / 3600


_CODE = 512  # numbers that MR.Q's encoders make of a state, and of an action in it


def _encoder(sizes: Sizes) -> int:
    """MR.Q's encoders of states and of actions in states. They learn from 5 steps, whose next states are encoded too;
    critics and policy look through them.
    """
    state = _mlp(512, 2).weights(sizes.obs, _CODE)
    action = 256 * sizes.action + _mlp(512, 2).weights(_CODE + 256, _CODE)
    predicted = _CODE * (_CODE + 65 + 1)
    learning = 3 * state + 5 * state + 5 * 3 * (action + predicted)
    return learning + 2 * state + 4 * action


# Widths, updates and batches as their repositories and papers give them. Of PPO only that it is PPO: it has the widths
# and epochs here that Stable-Baselines3 has by default.
METHODS = {
    "SAC": Method(_mlp(256, 2), _mlp(256, 2)),
    "CrossQ": Method(_mlp(2048, 2), _mlp(256, 2), actor_updates=1 / 3),
    "DroQ UTD20": Method(_mlp(256, 2), _mlp(256, 2), critic_updates=20),
    "REDQ UTD20": Method(_mlp(256, 2), _mlp(256, 2), critics=10, actor_critics=10, critic_updates=20),
    "MR.Q": Method(_mlp(512, 3), _mlp(512, 2), encoder=True),
    "BRO UTD2": Method(  # two policies
        _blocks(512, 2, 1), _blocks(256, 1, 1), atoms=100, batch=128, critic_updates=2, actor_updates=4
    ),
    "SimbaV2 UTD2": Method(_blocks(512, 2, 4), _blocks(128, 1, 4), atoms=101, critic_updates=2, actor_updates=2),
    "FlashSAC": Method(_blocks(256, 2, 4), _blocks(128, 2, 4), atoms=101, batch=512, actor_updates=1 / 2),
    "PPO": Method(
        _mlp(64, 2), _mlp(64, 2), 1, target_critics=0, actor_critics=0, batch=1, critic_updates=10, actor_updates=10
    ),
    "XQC": Method(_mlp(512, 4), _mlp(256, 4), atoms=101, critic_updates=2, actor_updates=2 / 3),
}  # fmt: skip


def published_curves(name: str, steps: int) -> list[PublishedCurve]:
    """The curves in a file of published/ up to so many steps, named after their algorithm, each on its v5 task."""
    found = []
    for algorithm, curve in _curves(name):
        env, sizes = TASKS[curve.env]
        upto = curve.steps <= steps
        hours = np.array([METHODS[algorithm].core_hours(sizes, step) for step in curve.steps[upto]])
        label = f"{algorithm}, v4"
        found.append(PublishedCurve(label, env, curve.steps[upto], curve.means[upto], hours))
    return [curve for curve in found if len(curve.steps)]


def published_rows(name: str, steps: int, envs: Sequence[str]) -> list[TableRow]:
    """A row for each algorithm: mean and standard deviation over seeds at this step, between two if need be."""
    by_label: dict[str, dict[str, list[float]]] = {}
    for algorithm, curve in _curves(name):
        if curve.steps[0] <= steps <= curve.steps[-1]:
            cells = by_label.setdefault(f"{algorithm}, v4", {})
            cells.setdefault(TASKS[curve.env][0], []).append(float(np.interp(steps, curve.steps, curve.means)))
    return [
        TableRow(label, "", tuple(_cell(env, values.get(env)) for env in envs)) for label, values in by_label.items()
    ]


def _cell(env: str, values: list[float] | None) -> Cell:
    if values is None:
        return Cell(env)
    return Cell(env, final=float(np.mean(values)), final_std=float(np.std(values)))


@cache
def sources(name: str) -> str:
    """`SimbaV2 86899c2 (Apache-2.0), ...`."""
    with (resources.files("mepg.paper") / "published" / f"{name}.csv").open(encoding="utf-8") as file:
        lines = [(line["repository"], line["commit"], line["licence"]) for line in csv.DictReader(file)]
    return ", ".join(f"{repository} {commit} ({licence})" for repository, commit, licence in dict.fromkeys(lines))


@cache
def _curves(name: str) -> list[tuple[str, PublishedCurve]]:
    """Every curve of a file, with the name of its algorithm."""
    with resources.as_file(resources.files("mepg.paper") / "published" / f"{name}.csv") as path:
        return [(curve.label.removesuffix(f" ({path.name})"), curve) for curve in read_long_format(path)]
