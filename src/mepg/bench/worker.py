"""One contender, in a process of its own: prepares, reports that it is ready, then works once for each line it reads.

`python -m mepg.bench.worker TASK`, a task in JSON. Answers are lines of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, Required, TypedDict, runtime_checkable

import numpy as np
import numpy.typing as npt

from mepg.algos import import_named
from mepg.bench.multiplications import Multiplier, multiplications
from mepg.core.types import Sizes
from mepg.envs.env import Env
from mepg.envs.simulators import make
from mepg.envs.vector import make_envs
from mepg.paper.tasks import PAPER_TASKS
from mepg.storage.compilation_cache import configure_jax
from mepg.system import end_with_parent, peak_memory, resident_memory
from mepg.training.assembly import assemble, make_program
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.replay import layout, row_width

WARMUP = 300  # steps
Measure = Callable[[], dict[str, float]]


class Task(TypedDict, total=False):
    """What a contender does."""

    measurement: Required[str]  # one of _MEASUREMENTS
    env: Required[str]
    algorithm: str
    set: Sequence[str]
    backend: str
    library: str  # if it is not this one: see `peer`
    all_cores: bool  # instead of one
    threads: int
    parent: int  # the process that waits for the answers
    steps: int  # of a loop, in one turn; in a race, from one evaluation to the next
    seed: int  # in a race, as what follows
    episodes: int  # of an evaluation
    arguments: dict[str, Any]  # of another library's class


@runtime_checkable
class Delayed(Protocol):
    """A spec whose policy or targets are not updated at every update."""

    actor_every: int
    target_every: int


def main() -> None:
    """Measure once for each line on standard input, until it is closed."""
    task: Task = json.loads(sys.argv[1])
    end_with_parent(task["parent"])
    configure_jax(task["threads"])
    measure = _MEASUREMENTS[task["measurement"]](task)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        answer = measure()
        memory = peak_memory() / 2**20
        print(json.dumps({**answer, "megabytes": memory}), flush=True)


def _config(task: Task, *settings: str) -> Config:
    import_named(task["algorithm"])  # the user named it
    settings = (*settings, *task.get("set", ()))
    backend, threads = task.get("backend", "auto"), task["threads"]
    config = Config.make(task["algorithm"], settings, env=task["env"], backend=backend, threads=threads)
    return replace(config, steps=10**8, eval_every=10**9)


def updates(task: Task) -> Measure:
    """An agent that learns from one batch, over and over, by XLA and in native code; and its multiplications alone."""
    config, sizes = _config(task), _sizes(task["env"])
    spec, agent = config.spec, config.build(sizes)
    configs = {"seconds": replace(config, backend="xla"), "native": config}
    if config.threads > 1:
        configs["native_alone"] = replace(config, threads=1)
    programs = {name: make_program(each, agent, sizes)[0] for name, each in configs.items()}
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (spec.updates_per_step * spec.batch_size, row_width(sizes))).astype(np.float32)
    state, action, _, _, next_state = layout(sizes)
    if sizes.action_kind == "discrete":
        rows[:, action] = rng.integers(sizes.action, size=(len(rows), 1))
    for part in (state, next_state):
        rows[:, part][:, sizes.obs :] = 1  # all actions are legal, where observations say it
    numbers, obs = np.arange(len(rows), dtype=np.uint32), rows[:1, state].copy()
    multiply, count = _multiplier(config, sizes)

    def learner(program: Program) -> Callable[[], None]:
        state, carry, step = program.init(), program.begin(program.empty_carry(), 0, 0), 0

        def learn() -> None:
            nonlocal state, carry, step
            for _ in range(count // spec.updates_per_step):
                step += 1
                state, _, (_, carry) = program.learn(state, rows, numbers, carry, obs, step)

        return learn

    learners = {
        name: learner(program)
        for name, program in programs.items()
        if name == "seconds" or program.backend == "native"  # where there is a compiler
    }

    def measure() -> dict[str, float]:
        answer = {"mflop": mflop}
        for name, learn in learners.items():
            learn()  # not timed: the others have filled the caches
            answer[name] = timed(learn) / count
        answer["multiplications"] = timed(multiply) / count
        time.sleep(0.1)  # BLAS's threads spin for a while longer, in the way of the next contender
        return answer

    mflop = sum(2 * m * k * n for m, k, n in multiply.shapes) / count / 1e6
    measure()
    return measure


def loop(task: Task) -> Measure:
    """Training as it is, without evaluations; and what it cannot avoid, the multiplications and the environment."""
    training, steps = _warm_loop(task)
    env, spec = training.eval_env, training.config.spec
    assert env is not None
    multiply, count = _multiplier(training.config, env.sizes)
    rng = np.random.default_rng(0)
    actions = np.array([env.spaces.actions.random(rng) for _ in range(task["steps"])], np.float32)

    env.reset(0)

    def measure() -> dict[str, float]:
        used = time.process_time()
        seconds = timed(lambda: [next(steps) for _ in range(task["steps"])]) / task["steps"]
        answer = {
            "seconds": seconds,
            "processor": (time.process_time() - used) / task["steps"],
            "environment": timed(lambda: _play(env, actions)) / task["steps"],
            "multiplications": timed(multiply) / count * spec.updates_per_step,
        }
        time.sleep(0.1)  # BLAS's threads spin for a while longer, in the way of the next contender
        return answer

    return measure


def simulator(task: Task) -> Measure:
    """Steps of an environment as it comes, and through this package: `Env`, and PyBullet in fewer calls."""
    wrapped = Env(task["env"])
    os.environ["MEPG_BULLET"] = "plain"
    plain = make(task["env"])
    plain.reset(seed=0)
    rng = np.random.default_rng(0)
    steps = 10 * task["steps"]  # of a few microseconds each
    actions = np.array([wrapped.spaces.actions.random(rng) for _ in range(steps)], np.float32)
    scaled = [wrapped.spaces.scale(action) for action in actions]

    def play_plain() -> None:
        for action in scaled:
            _, _, terminated, truncated, _ = plain.step(action)
            if terminated or truncated:
                plain.reset(seed=0)

    def measure() -> dict[str, float]:
        wrapped.reset(0)
        plain.reset(seed=0)
        _play(wrapped, actions)  # not timed: the others have filled the caches
        play_plain()
        return {
            "seconds": timed(lambda: _play(wrapped, actions)) / steps,
            "environment": timed(play_plain) / steps,
        }

    return measure


def evaluation(task: Task) -> Measure:
    """Training, and an evaluation of ten episodes beside it."""
    training, steps = _warm_loop(task)
    training.evaluate()

    def measure() -> dict[str, float]:
        step = timed(lambda: [next(steps) for _ in range(task["steps"])]) / task["steps"]
        seconds = timed(training.evaluate)
        length = sum(episode.length for episode in training.evaluations[training.step])
        return {"seconds": step, "evaluation": seconds, "evaluation_steps": length}

    return measure


def memory(task: Task) -> Measure:
    """What a run holds whose replay buffer is full."""
    training, _ = _warm_loop(task)
    replay, rows = training.replay, np.ones((10_000, training.replay.width), np.float32)
    while len(replay) < replay.capacity:
        replay.restore(replay.count, rows)

    def measure() -> dict[str, float]:
        assert len(training.replay) == replay.capacity  # `training` must be alive
        return {"resident": resident_memory() / 2**20}

    return measure


def first_step(task: Task) -> Measure:
    """Ready after the first step with an update; measures nothing."""
    _warm_loop(task, updates=1)
    return lambda: {}


def race(task: Task) -> Measure:
    """Training up to the next evaluation.

    Core time is that of this process and its children since they began, without evaluations.
    """
    config = replace(_config(task), seed=task["seed"], eval_every=task["steps"], eval_episodes=task["episodes"])
    training = _assemble(config)

    def measure() -> dict[str, float]:
        evaluation = next(record.evaluation for record in training if record.evaluation is not None)
        return {
            "step": training.step,
            "core_seconds": sum(os.times()[:4]) - training.processor_seconds_evaluating,
            "mean_return": float(np.mean([episode.return_ for episode in evaluation])),
        }

    return measure


def _play(env: Env, actions: Iterable[npt.NDArray[np.float32]]) -> None:
    """Take these actions, in as many episodes as it takes."""
    for action in actions:
        if env.step(action).done:
            env.reset(0)


def _sizes(env_id: str) -> Sizes:
    """Of an environment, without its simulator if it is one of the paper's."""
    if env_id in PAPER_TASKS:
        return PAPER_TASKS[env_id]
    env = Env(env_id)
    env.close()
    return env.sizes


def _multiplier(config: Config, sizes: Sizes) -> tuple[Multiplier, int]:
    """The multiplications of one period of updates, after which the same are due again; and its length."""
    spec = config.spec
    actor_every, target_every = (spec.actor_every, spec.target_every) if isinstance(spec, Delayed) else (1, 1)
    count = math.lcm(4, actor_every, target_every, spec.updates_per_step)
    always, delayed = multiplications(config.build(sizes), sizes, spec.batch_size)
    return Multiplier(always * count + delayed * (count // actor_every)), count


def _warm_loop(task: Task, updates: int = 10) -> tuple[Loop, Iterator[object]]:
    """A training loop after so many steps with updates, and an iterator over its further steps."""
    training = _assemble(_config(task, f"warmup={WARMUP}"))
    steps = iter(training)
    for _ in range(WARMUP + updates):
        next(steps)
    return training, steps


def _assemble(config: Config) -> Loop:
    """In environments that stay open for as long as this process lives."""
    return assemble(config, make_envs(config.env), Env(config.env))


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


_MEASUREMENTS: dict[str, Callable[[Task], Measure]] = {
    "updates": updates,
    "loop": loop,
    "simulator": simulator,
    "evaluation": evaluation,
    "memory": memory,
    "first_step": first_step,
    "race": race,
}

if __name__ == "__main__":
    main()
