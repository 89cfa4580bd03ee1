"""make bench: each algorithm's update against the multiplications that it cannot avoid, and the loop on Hopper.

Everything runs on one core and interleaved, so that noise hits all alike: read the ratios, not the times.
"""

from __future__ import annotations

import os

CORE = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})  # before anything counts the cores
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import json
import math
import time

import numpy as np

from mepg.run.threads import limit_threads

limit_threads(1)

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mepg.algos import algorithms
from mepg.algos.ace import Ace, AceFlat
from mepg.algos.sunrise import Sunrise
from mepg.core.policies import head_width
from mepg.core.types import Batch
from mepg.run.config import Config
from mepg.run.envs import PAPER_TASKS, Env
from mepg.run.folder import versions
from mepg.run.loop import Loop
from mepg.run.replay import Replay

ALGORITHMS = ("me-ddpg", "ddpg", "td3", "me-sac", "sac")
ENSEMBLES = ("redq", "redq-ours", "redq-utd20", "sunrise", "sunrise-ucb", "droq", "ace-flat", "ace")
STEPS = 40  # of the loop, in one measurement
WARMUP = 300

Shape = tuple[int, int, int]  # (m, k, n): [m, k] times [k, n]
Net = list[tuple[int, int]]  # inputs and outputs of each layer


def dense(*widths: int) -> Net:
    return list(itertools.pairwise(widths))


def forward(rows: int, net: Net) -> list[Shape]:
    return [(rows, i, o) for i, o in net]


def to_weights(rows: int, net: Net) -> list[Shape]:
    return [(i, rows, o) for i, o in net]


def to_inputs(rows: int, net: Net) -> list[Shape]:
    """Down to the first layer's outputs, which is as far as the weights need."""
    return [(rows, o, i) for i, o in net[1:]]


def multiplications(spec, sizes) -> tuple[list[Shape], list[Shape]]:
    """Those of one critic update and of one policy update, forward and backward."""
    if isinstance(spec, Ace):
        return tree_multiplications(spec, sizes)
    rows = spec.batch_size
    actor = dense(sizes.obs, *spec.hidden, head_width(spec, sizes))
    critic = dense(sizes.obs + sizes.action, *spec.hidden, 1)
    members = spec.members if isinstance(spec, Sunrise) else 1
    actors = spec.actors if isinstance(spec, AceFlat) else 1

    asked = spec.subset or spec.critics
    targets = actors * (forward(rows, actor) + asked * forward(rows, critic))
    if isinstance(spec, Sunrise) and spec.backup_temperature is not None:
        targets += forward(rows, actor) + spec.critics * forward(rows, critic)
    learning = forward(rows, critic) + to_weights(rows, critic) + to_inputs(rows, critic)
    evaluation = targets + spec.critics * learning

    seen = 1 if spec.improve_on == "first" else spec.critics
    to_the_action = [*to_inputs(rows, critic), (rows, spec.hidden[0], sizes.action)]
    through_critics = seen * (forward(rows, critic) + to_the_action)
    learning = forward(rows, actor) + to_weights(rows, actor) + to_inputs(rows, actor)
    return members * evaluation, members * actors * (learning + through_critics)


def tree_multiplications(spec: Ace, sizes) -> tuple[list[Shape], list[Shape]]:
    """ACE's, of depth 2. In the tree, K actors propose again behind each action, and the critic judges them all."""
    assert spec.depth == 2
    rows, (code, width), k = spec.batch_size, spec.hidden, spec.actors
    encoder, actor, pair = (
        dense(sizes.obs, code),
        dense(code, width, sizes.action),
        dense(code + sizes.action, width, 1),
    )
    first, second = dense(code, code), dense(code + sizes.action, code)

    def tree(n: int) -> list[Shape]:  # below n * rows actions, all of a layer's inputs at once
        model = forward(rows, first) + forward(n * rows, second) + forward(n * rows, pair)
        return model + k * forward(n * rows, actor) + forward(n * k * rows, pair)

    def tree_to_actions(n: int) -> list[Shape]:
        """The gradient of n * rows values: only the best leaf of each has one."""
        through = lambda net: [*to_inputs(n * rows, net), (n * rows, net[0][1], net[0][0])]  # noqa: E731
        return 2 * through(pair) + through(second)

    learning = [*to_weights(rows, encoder)]
    for net in (first, second, pair, pair):
        learning += to_weights(rows, net)
    proposing = forward(rows, encoder) + k * forward(rows, actor)
    evaluation = proposing + tree(k) + forward(rows, encoder) + tree(1) + learning + tree_to_actions(1)
    evaluation += [(rows, code, code)]
    actors = k * (to_weights(rows, actor) + to_inputs(rows, actor) + [(rows, width, code)]) + to_weights(rows, encoder)
    return evaluation, proposing + tree(k) + tree_to_actions(k) + actors


class Multiplier:
    """The machine's BLAS, on matrices of given shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        rng = np.random.default_rng(0)
        draw = lambda *shape: rng.standard_normal(shape, np.float32)  # noqa: E731
        self.work = {s: (draw(s[0], s[1]), draw(s[1], s[2]), np.empty((s[0], s[2]), np.float32)) for s in set(shapes)}
        self.shapes = shapes

    def __call__(self) -> None:
        for shape in self.shapes:
            a, b, out = self.work[shape]
            np.dot(a, b, out=out)


class Updater:
    """An agent that learns from one batch, over and over."""

    def __init__(self, name: str, env_id: str) -> None:
        spec, sizes = algorithms()[name].spec, PAPER_TASKS[env_id]
        agent = algorithms()[name].build(spec, sizes)
        self.state = jax.jit(agent.init)(jax.random.key(0))
        self.update = jax.jit(agent.update, donate_argnums=0)
        rng = np.random.default_rng(0)
        draw = lambda *shape: rng.standard_normal(shape, np.float32)  # noqa: E731
        b = spec.batch_size
        obs, action, next_obs = draw(b, sizes.obs), np.tanh(draw(b, sizes.action)), draw(b, sizes.obs)
        self.batch = Batch(obs, action, draw(b), np.ones(b, np.float32), next_obs, np.arange(b, dtype=np.uint32))
        self.key = jax.random.key(1)
        evaluation, improvement = multiplications(spec, sizes)
        actor_every, target_every = getattr(spec, "actor_every", 1), getattr(spec, "target_every", 1)
        self.updates = math.lcm(4, actor_every, target_every)  # in one measurement
        self.per_step = spec.updates_per_step
        self.multiply = Multiplier(evaluation * self.updates + improvement * (self.updates // actor_every))
        self.flop = sum(2 * m * k * n for m, k, n in self.multiply.shapes) / self.updates

    def once(self) -> None:
        self.state, _ = self.update(self.state, self.batch, self.key)

    def __call__(self) -> None:
        for _ in range(self.updates):
            self.once()
        jax.block_until_ready(self.state)


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure_updates(names: tuple[str, ...], env_id: str, rounds: int) -> dict:
    updaters = {name: Updater(name, env_id) for name in names}
    for updater in updaters.values():
        updater()
        updater.multiply()
    times = {name: [] for name in names}
    for _ in track(range(rounds), f"updates on {env_id}", console=Console(stderr=True), transient=True):
        for name, updater in updaters.items():
            updater.once()  # the others have filled the cache with their own
            times[name].append(np.array([timed(updater), timed(updater.multiply)]) / updater.updates)
    results = {}
    of_me_sac = np.array(times["me-sac"])[:, 0]
    for name, pairs in times.items():
        ours, bare = np.array(pairs).T
        results[name] = {
            "mflop": updaters[name].flop / 1e6,
            "update_ms": float(np.median(ours) * 1e3),
            "multiplications_ms": float(np.median(bare) * 1e3),
            "ratio": float(np.median(ours / bare)),
            "ratio_of_minima": float(ours.min() / bare.min()),
            "updates_per_step": updaters[name].per_step,
            "cost_of_a_step_relative_to_me_sac": float(np.median(ours / of_me_sac) * updaters[name].per_step),
        }
    return results


def measure_loops(names: tuple[str, ...], env_id: str, rounds: int) -> dict:
    loops, times = {}, {name: [] for name in names}
    for name in names:
        config = Config.make(name, [f"warmup={WARMUP}"], env=env_id, eval_every=10**9, steps=10**8)
        env, eval_env = Env(env_id), Env(env_id)
        replay = Replay(config.spec.replay_size, env.sizes)
        loops[name] = iter(Loop(config, config.build(env.sizes), env, eval_env, replay))
        for _ in range(WARMUP + 10):
            next(loops[name])
    for _ in track(range(rounds), f"loop on {env_id}", console=Console(stderr=True), transient=True):
        for name, loop in loops.items():
            times[name].append(timed(lambda loop=loop: [next(loop) for _ in range(STEPS)]))
    return {name: {"steps_per_second": float(STEPS / np.median(t))} for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="more of them, less noise")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    updates = measure_updates(ALGORITHMS + ENSEMBLES, "AntBulletEnv-v0", arguments.rounds)
    loops = measure_loops(ALGORITHMS, "HopperBulletEnv-v0", arguments.rounds)
    if arguments.json:
        print(json.dumps({"versions": versions(), "updates_on_ant": updates, "loop_on_hopper": loops}, indent=2))
        return
    table = Table(
        title="One core. Update on Ant, each algorithm's own batch and networks; loop on Hopper, no evaluation"
    )
    headings = ("", "MFLOP", "update, ms", "BLAS alone, ms", "ratio", "ratio of minima")
    for heading in (*headings, "updates a step", "a step's, relative to ME-SAC", "loop, steps/s"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, u in updates.items():
        cells = (f"{u['mflop']:.0f}", f"{u['update_ms']:.2f}", f"{u['multiplications_ms']:.2f}")
        ratios = (f"{u['ratio']:.2f}", f"{u['ratio_of_minima']:.2f}")
        cost = (f"{u['updates_per_step']}", f"{u['cost_of_a_step_relative_to_me_sac']:.1f}")
        speed = f"{loops[name]['steps_per_second']:.0f}" if name in loops else ""
        table.add_row(name, *cells, *ratios, *cost, speed)
    Console().print(table)


if __name__ == "__main__":
    main()
