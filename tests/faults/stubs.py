"""Environments with a purpose: --env tests.faults.stubs:Watched-v0."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv


class Watched(PendulumEnv):
    """A pendulum whose evaluations take a second and can be seen: then there is a file, $EVALUATING."""

    made = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        Watched.made += 1
        self.number, self.resets = Watched.made, 0

    def evaluates(self):
        return self.number == 2 and self.resets > 1  # the first reset is no episode

    def reset(self, **kwargs):
        self.resets += 1
        if self.evaluates() and "EVALUATING" in os.environ:
            Path(os.environ["EVALUATING"]).touch()
        return super().reset(**kwargs)

    def step(self, action):
        if self.evaluates():
            time.sleep(0.005)
        return super().step(action)


class AtStep200(PendulumEnv):
    """A pendulum whose process meets a fault in its 200th step."""

    def __init__(self, fault, **kwargs):
        super().__init__(**kwargs)
        self.fault, self.steps, self.eaten = fault, 0, []

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            if self.fault == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.fault == "limited memory":
                size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + 2**28, resource.RLIM_INFINITY))
            elif self.fault == "limited group":
                Path(os.environ["MEMORY_GROUP"], "cgroup.procs").write_text(str(os.getpid()))
        if self.steps >= 200 and self.fault.startswith("limited"):
            self.eaten.append(np.ones(2**22))  # 32 MB
        return super().step(action)


for name, entry, kwargs in [
    ("Watched", Watched, {}),
    ("Stopped", AtStep200, {"fault": "stopped"}),
    ("Killed", AtStep200, {"fault": "killed"}),
    ("LimitedMemory", AtStep200, {"fault": "limited memory"}),
    ("LimitedGroup", AtStep200, {"fault": "limited group"}),
]:
    if f"{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{name}-v0", entry_point=entry, max_episode_steps=100, kwargs=kwargs)
