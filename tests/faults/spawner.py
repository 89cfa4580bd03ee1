"""A pendulum in a process of its own, as a simulator's server is: --env tests.faults.spawner:spawn-v0."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv

SLOW = 200  # the step of each environment that takes half a second; then there is a file, $AT_WORK


class _Server:
    """Answers [method, argument] with what the pendulum returns, as plain numbers."""

    def __init__(self):
        self.pendulum, self.steps = gymnasium.wrappers.TimeLimit(PendulumEnv(), 60), 0

    def answer(self, method, argument):
        if method == "reset":
            return self.pendulum.reset(seed=argument)[0].tolist()
        self.steps += 1
        if self.steps == SLOW and "AT_WORK" in os.environ:
            Path(os.environ["AT_WORK"]).touch()
            time.sleep(0.5)
        obs, reward, terminated, truncated, _ = self.pendulum.step(argument)
        return obs.tolist(), float(reward), terminated, truncated


def serve(connection):
    server = _Server()
    while True:
        connection.send(server.answer(*connection.recv()))


def serve_lines():
    server = _Server()
    for line in sys.stdin:
        print(json.dumps(server.answer(*json.loads(line))), flush=True)


class Remote(gymnasium.Env):
    observation_space, action_space = PendulumEnv().observation_space, PendulumEnv().action_space

    def __init__(self, method):
        self.method = method
        if method == "program":
            command = [sys.executable, "-c", "from tests.faults.spawner import serve_lines; serve_lines()"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, text=True, **pipes)
            return
        context = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def _ask(self, method, argument):
        if self.method != "program":
            self.connection.send((method, argument))
            return self.connection.recv()
        self.process.stdin.write(json.dumps([method, argument]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.dtype.type(self._ask("reset", seed)), {}

    def step(self, action):
        obs, reward, terminated, truncated = self._ask("step", action.tolist())
        return self.observation_space.dtype.type(obs), reward, terminated, truncated, {}

    def close(self):
        self.process.kill()


METHODS = ("fork", "spawn", "forkserver", "program")
for name in METHODS:
    if f"{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{name}-v0", entry_point=Remote, kwargs={"method": name})
