"""One contender, in a process of its own: prepares, says so, and then works whenever it is told to.

`python -m mepg.bench.worker TASK`, a task in JSON. Answers are lines of JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mepg.system import peak_memory

if TYPE_CHECKING:
    from mepg.training.program import Program

WARMUP = 300  # steps
Work = Callable[[], dict[str, float]]


def main() -> None:
    """Work whenever told to, until standard input is closed."""
    task: dict[str, Any] = json.loads(sys.argv[1])
    from mepg.storage.compilation_cache import configure_jax

    configure_jax(task["threads"])
    work = _TASKS[task["what"]](task)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        answer = work()
        memory = peak_memory() / 2**20
        print(json.dumps({**answer, "megabytes": memory}), flush=True)


def _config(task: dict[str, Any], *settings: str) -> Any:
    from mepg.algos import import_named
    from mepg.training.config import Config

    import_named(task["algorithm"])  # the user named it
    settings = (*settings, *task.get("set", ()))
    more = {"backend": task.get("backend", "auto"), "threads": task["threads"], "eval_every": 10**9, "steps": 10**8}
    return Config.make(task["algorithm"], list(settings), env=task["env"], **more)


def updates(task: dict[str, Any]) -> Work:
    """An agent that learns from one batch, over and over, by XLA and in native code; and its multiplications alone."""
    from mepg.training.assembly import make_program
    from mepg.training.replay import row_width

    config, sizes = _config(task), _sizes(task["env"])
    spec, agent = config.spec, config.build(sizes)
    choices = {"seconds": replace(config, backend="xla"), "native": config}
    if config.threads > 1:
        choices["native_alone"] = replace(config, threads=1)
    programs = {name: make_program(each, agent, sizes)[0] for name, each in choices.items()}
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (spec.updates_per_step * spec.batch_size, row_width(sizes))).astype(np.float32)
    if sizes.action_kind == "discrete":
        rows[:, sizes.obs] = rng.integers(sizes.action, size=len(rows))
    numbers, obs = np.arange(len(rows), dtype=np.uint32), rows[:1, : sizes.obs].copy()
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

    def work() -> dict[str, float]:
        answer = {"mflop": mflop}
        for name, learn in learners.items():
            learn()  # the others have filled the cache with their own
            answer[name] = timed(learn) / count
        answer["multiplications"] = timed(multiply) / count
        time.sleep(0.1)  # BLAS's threads go on spinning for a while, in the next one's way
        return answer

    mflop = sum(2 * m * k * n for m, k, n in multiply.shapes) / count / 1e6
    work()
    return work


def loop(task: dict[str, Any]) -> Work:
    """Training as it is, without evaluations; and what it cannot avoid, the multiplications and the environment."""
    training = _make_loop(task)
    steps, env, spec = iter(training), training.eval_env, training.config.spec
    for _ in range(WARMUP + 10):
        next(steps)
    multiply, count = _multiplier(training.config, env.sizes)
    rng = np.random.default_rng(0)
    actions = np.array([env.spaces.actions.random(rng) for _ in range(task["steps"])], np.float32)

    def simulate() -> None:
        for action in actions:
            if env.step(action).over:
                env.reset(0)

    env.reset(0)

    def work() -> dict[str, float]:
        used = time.process_time()
        seconds = timed(lambda: [next(steps) for _ in range(task["steps"])]) / task["steps"]
        answer = {
            "seconds": seconds,
            "processor": (time.process_time() - used) / task["steps"],
            "environment": timed(simulate) / task["steps"],
            "multiplications": timed(multiply) / count * spec.updates_per_step,
        }
        time.sleep(0.1)  # BLAS's threads go on spinning for a while, in the next one's way
        return answer

    return work


def simulator(task: dict[str, Any]) -> Work:
    """An environment's steps as it comes, and through this package: `Env`, and PyBullet in fewer calls."""
    import os

    import gymnasium

    from mepg.envs.env import Env
    from mepg.envs.simulators import make

    ours = Env(task["env"])
    os.environ["MEPG_BULLET"] = "plain"
    bare = make(task["env"])
    bare.reset(seed=0)
    rng = np.random.default_rng(0)
    steps = 10 * task["steps"]  # of a few microseconds each
    actions = np.array([ours.spaces.actions.random(rng) for _ in range(steps)], np.float32)
    scaled = [ours.spaces.scale(action) for action in actions]

    def through_ours() -> None:
        for action in actions:
            if ours.step(action).over:
                ours.reset(0)

    def as_it_comes(env: gymnasium.Env[Any, Any]) -> None:
        for action in scaled:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset(seed=0)

    def work() -> dict[str, float]:
        ours.reset(0)
        bare.reset(seed=0)
        through_ours()  # not timed: the first to run after another process finds the processor's caches cold
        as_it_comes(bare)
        return {
            "seconds": timed(through_ours) / steps,
            "environment": timed(lambda: as_it_comes(bare)) / steps,
        }

    return work


def evaluation(task: dict[str, Any]) -> Work:
    """Training, and an evaluation of ten episodes beside it."""
    loop = _make_loop(task)
    steps = iter(loop)
    for _ in range(WARMUP + 10):
        next(steps)
    loop.evaluate()

    def work() -> dict[str, float]:
        step = timed(lambda: [next(steps) for _ in range(task["steps"])]) / task["steps"]
        evaluating = timed(loop.evaluate)
        length = sum(episode.length for episode in loop.evaluations[loop.step])
        return {"seconds": step, "evaluation": evaluating, "evaluation_steps": length}

    return work


def first_step(task: dict[str, Any]) -> Work:
    """Ready as soon as one step with an update has been taken."""
    steps = iter(_make_loop(task))
    for _ in range(WARMUP + 1):
        next(steps)
    return lambda: {}


def _sizes(env_id: str) -> Any:
    """Those of a task, without its simulator if it is one of the paper's."""
    from mepg.envs.env import Env
    from mepg.paper.tasks import PAPER_TASKS

    if env_id in PAPER_TASKS:
        return PAPER_TASKS[env_id]
    env = Env(env_id)
    env.close()
    return env.sizes


def _multiplier(config: Any, sizes: Any) -> tuple[Any, int]:
    """The multiplications of as many updates as it takes until the same is due again, and how many that is."""
    from mepg.bench.multiplications import Multiplier, multiplications

    spec = config.spec
    actor_every, target_every = getattr(spec, "actor_every", 1), getattr(spec, "target_every", 1)
    count = math.lcm(4, actor_every, target_every, spec.updates_per_step)
    always, now_and_then = multiplications(config.build(sizes), sizes, spec.batch_size)
    return Multiplier(always * count + now_and_then * (count // actor_every)), count


def _make_loop(task: dict[str, Any]) -> Any:
    from mepg.envs.env import Env
    from mepg.envs.vector import make_envs
    from mepg.training.assembly import assemble

    config = _config(task, f"warmup={WARMUP}")
    return assemble(config, make_envs(config.env), Env(config.env))


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


_TASKS: dict[str, Callable[[dict[str, Any]], Work]] = {
    "updates": updates,
    "loop": loop,
    "simulator": simulator,
    "evaluation": evaluation,
    "first_step": first_step,
}

if __name__ == "__main__":
    main()
