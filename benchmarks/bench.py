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
import time

import numpy as np

from mepg.run.threads import limit_threads

limit_threads(1)

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mepg.algos import algorithms
from mepg.core.policies import head_width
from mepg.core.types import Batch
from mepg.run.config import Config
from mepg.run.envs import PAPER_TASKS, Env
from mepg.run.folder import versions
from mepg.run.loop import Loop
from mepg.run.replay import Replay

ALGORITHMS = ("me-ddpg", "ddpg", "td3", "me-sac", "sac")
UPDATES = 4  # in one measurement: a multiple of every period
STEPS = 40  # of the loop, in one measurement
WARMUP = 300

Shape = tuple[int, int, int]  # (m, k, n): [m, k] times [k, n]


def multiplications(spec, sizes) -> tuple[list[Shape], list[Shape]]:
    """Those of one critic update and of one policy update, forward and backward."""
    batch = spec.batch_size

    def layers(inputs, outputs):
        widths = (inputs, *spec.hidden, outputs)
        return list(itertools.pairwise(widths))

    def forward(net):
        return [(batch, i, o) for i, o in net]

    def weight_gradients(net):
        return [(i, batch, o) for i, o in net]

    def input_gradients(net):
        return [(batch, o, i) for i, o in net]

    actor = layers(sizes.obs, head_width(spec, sizes))
    critic = layers(sizes.obs + sizes.action, 1)
    one_critic = 2 * forward(critic) + weight_gradients(critic) + input_gradients(critic)[1:]
    evaluation = forward(actor) + spec.critics * one_critic

    asked = 1 if spec.improve_on == "first" else spec.critics
    to_the_action = [*input_gradients(critic)[1:], (batch, spec.hidden[0], sizes.action)]
    through_critics = asked * (forward(critic) + to_the_action)
    improvement = forward(actor) + through_critics + weight_gradients(actor) + input_gradients(actor)[1:]
    return evaluation, improvement


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
        self.batch = Batch(obs, action, draw(b), np.ones(b, np.float32), next_obs)
        self.key = jax.random.key(1)
        evaluation, improvement = multiplications(spec, sizes)
        self.multiply = Multiplier(evaluation * UPDATES + improvement * (UPDATES // spec.actor_every))
        self.flop = sum(2 * m * k * n for m, k, n in self.multiply.shapes) / UPDATES

    def __call__(self) -> None:
        for _ in range(UPDATES):
            self.state, _ = self.update(self.state, self.batch, self.key)
        jax.block_until_ready(self.state)


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure_updates(env_id: str, rounds: int) -> dict:
    updaters = {name: Updater(name, env_id) for name in ALGORITHMS}
    for updater in updaters.values():
        updater()
        updater.multiply()
    times = {name: [] for name in ALGORITHMS}
    for _ in track(range(rounds), f"updates on {env_id}", console=Console(stderr=True), transient=True):
        for name, updater in updaters.items():
            times[name].append((timed(updater), timed(updater.multiply)))
    results = {}
    for name, pairs in times.items():
        ours, bare = np.array(pairs).T / UPDATES
        results[name] = {
            "mflop": updaters[name].flop / 1e6,
            "update_ms": float(np.median(ours) * 1e3),
            "multiplications_ms": float(np.median(bare) * 1e3),
            "ratio": float(np.median(ours / bare)),
            "ratio_of_minima": float(ours.min() / bare.min()),
        }
    return results


def measure_loops(env_id: str, rounds: int) -> dict:
    loops, times = {}, {name: [] for name in ALGORITHMS}
    for name in ALGORITHMS:
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
    updates = measure_updates("AntBulletEnv-v0", arguments.rounds)
    loops = measure_loops("HopperBulletEnv-v0", arguments.rounds)
    if arguments.json:
        print(json.dumps({"versions": versions(), "updates_on_ant": updates, "loop_on_hopper": loops}, indent=2))
        return
    table = Table(title="One core. Update on Ant, batch 256, 256-256; loop on Hopper, without evaluation")
    for heading in ("", "MFLOP", "update, ms", "BLAS alone, ms", "ratio", "ratio of minima", "loop, steps/s"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in ALGORITHMS:
        u = updates[name]
        cells = (f"{u['mflop']:.0f}", f"{u['update_ms']:.2f}", f"{u['multiplications_ms']:.2f}")
        ratios = (f"{u['ratio']:.2f}", f"{u['ratio_of_minima']:.2f}")
        table.add_row(name, *cells, *ratios, f"{loops[name]['steps_per_second']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
