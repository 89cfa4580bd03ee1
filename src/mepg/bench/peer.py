"""The training loop of another library, for its own Python: run by path, and imports nothing of this package.

`python peer.py TASK`, as `mepg.bench.worker` is called.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium

Task = dict[str, Any]
WARMUP = 300
CLASSES = {"crossq": "CrossQ"}  # other classes have names in capitals
# This package's settings of each algorithm, beside those that all share. DQN acts greedily at nearly every step.
ARGUMENTS = {
    "td3": {"policy_delay": 2},
    "crossq": {"learning_rate": 1e-3, "policy_delay": 3},
    "dqn": {
        "learning_rate": 2.5e-4,
        "buffer_size": 100_000,
        "batch_size": 128,
        "tau": 0.02,
        "target_update_interval": 1,
        "exploration_initial_eps": 0.05,
        "exploration_final_eps": 0.05,
    },
}


def main() -> None:
    """Learn until standard input is closed."""
    task = json.loads(sys.argv[1])
    if task["library"] == "rltools":
        learn_in_rltools(task)
    elif task["measurement"] == "race":
        race(task)
    else:
        learn_as_sb3(task)


class Turns:
    """Times a stretch of steps for each line on standard input, and waits for the next line in between."""

    def __init__(self, task: Task) -> None:
        self.steps = task["steps"]
        self.start = self.processor_start = 0.0

    def next_step(self, step: int) -> bool:
        """Whether to take another step; waits for the next turn, if one has ended."""
        done = step - WARMUP - 10
        if done < 0 or done % self.steps:
            return True
        answer: dict[str, float] = {"ready": True}
        if done > 0:
            answer = {
                "seconds": (time.perf_counter() - self.start) / self.steps,
                "processor": (time.process_time() - self.processor_start) / self.steps,
                "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        print(json.dumps(answer), flush=True)
        if not sys.stdin.readline():
            return False
        self.start, self.processor_start = time.perf_counter(), time.process_time()
        return True


def learn_in_rltools(task: Task) -> None:
    """Its SAC as it comes, on Gymnasium's environment: C++ that is compiled for this task."""
    from gymnasium.wrappers import RescaleAction
    from rltools import SAC

    def make() -> gymnasium.Env[Any, Any]:
        env = RescaleAction(gymnasium.make(task["env"]), -1, 1)
        env.reset(seed=0)
        return env

    options = {
        "enable_evaluation": False,
        "STEP_LIMIT": 10**8,
        "REPLAY_BUFFER_CAP": 1_000_000,
        "N_WARMUP_STEPS": WARMUP,
    }
    state, turns, step = SAC(make, **options).State(0), Turns(task), 0
    while turns.next_step(step):
        state.step()
        step += 1


def learn_as_sb3(task: Task) -> None:
    """Stable-Baselines3 or SBX, with this package's settings."""
    from stable_baselines3.common.callbacks import BaseCallback

    turns = Turns(task)

    class AfterEachStep(BaseCallback):
        def _on_step(self) -> bool:
            return turns.next_step(self.num_timesteps)

    name = task["algorithm"]
    arguments = {"learning_rate": 3e-4, "buffer_size": 1_000_000, "batch_size": 256, **ARGUMENTS.get(name, {})}
    model = algorithm_class(task)(
        "MlpPolicy",
        gymnasium.make(task["env"]),
        learning_starts=WARMUP,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
        seed=0,
        **arguments,
    )
    if task["measurement"] == "memory":
        model.learn(WARMUP + 10)
        answer_resident_memory(model)
    else:
        model.learn(10**8, callback=AfterEachStep())


def answer_resident_memory(model: Any) -> None:
    """With a replay buffer that is full; it is an array for each field."""
    for array in vars(model.replay_buffer).values():
        if hasattr(array, "fill"):
            array.fill(1)
    print(json.dumps({"ready": True}), flush=True)
    if sys.stdin.readline():
        statm = Path("/proc/self/statm")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on a Mac, which has no statm
        resident = int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else peak
        print(json.dumps({"resident": resident / 2**20}), flush=True)


def race(task: Task) -> None:
    """Stable-Baselines3 or SBX with its own settings, or the task's; an evaluation every so many steps.

    Core time is that of this process and its children since they began, without evaluations.
    """
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    def answer(**values: float) -> bool:
        """Whether there is another turn."""
        print(json.dumps(values), flush=True)
        return bool(sys.stdin.readline())

    evaluating = 0.0

    class AfterEachStep(BaseCallback):
        def _on_step(self) -> bool:
            nonlocal evaluating
            if self.num_timesteps % task["steps"]:
                return True
            began = core_seconds()
            used = began - evaluating
            mean, _ = evaluate_policy(model, eval_env, task["episodes"], warn=False)
            evaluating += core_seconds() - began
            return answer(step=self.num_timesteps, core_seconds=used, mean_return=float(mean))

    cls, arguments = algorithm_class(task), dict(task["arguments"])
    env, eval_env = gymnasium.make(task["env"]), make_vec_env(task["env"], seed=10_000 + task["seed"])
    steps = arguments.pop("n_timesteps", 10**8)
    if isinstance(rate := arguments.get("learning_rate"), str):  # as the zoo writes a rate that falls linearly to 0
        first = float(rate.removeprefix("lin_"))
        arguments["learning_rate"] = lambda remaining: remaining * first
    if noise := arguments.pop("noise_std", None):
        actions = env.action_space.shape
        arguments["action_noise"] = NormalActionNoise(np.zeros(actions), np.full(actions, noise))
    model = cls("MlpPolicy", env, device="cpu", seed=task["seed"], **arguments)
    if answer(ready=True):
        model.learn(steps, callback=AfterEachStep())
        answer(ended=True)


def core_seconds() -> float:
    """Processor time of this process and of the children that have ended."""
    return sum(os.times()[:4])


def algorithm_class(task: Task) -> Any:
    """The class of Stable-Baselines3 or SBX; from here on, torch has as many threads as the task."""
    import pybullet_envs_gymnasium  # noqa: F401
    import stable_baselines3
    import torch

    torch.set_num_threads(task["threads"])
    library, name = stable_baselines3, task["algorithm"]
    if task["library"] == "sbx":
        import sbx

        library = sbx
    return getattr(library, CLASSES.get(name, name.upper()))


main()
