"""An environment that prints wherever it can: in Python, past Python, and from the C library's own buffer."""

import contextlib
import ctypes
import os
import sys

import gymnasium
import numpy as np

print("noise: imported")


class Noisy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.say("reset")
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        self.steps += 1
        self.say("step")
        return np.full(2, self.steps / 10, np.float32), 1.0, self.steps >= 10, False, {}

    def say(self, what):
        print(f"noise: {what}")
        print(f"noise: {what}", file=sys.__stdout__)
        with contextlib.suppress(OSError):  # as in C, where nobody looks
            os.write(1, f"noise: {what}\n".encode())
        ctypes.CDLL(None).printf(f"noise: {what}\n".encode())


for version in (0, 1, 12):
    gymnasium.register(f"Noisy-v{version}", entry_point=Noisy)
