"""An environment that does what $HOSTILE says: "fault@train 70" in step 70 of a copy that is trained in,
"fault@evaluation" in an evaluation, "fault@first reset", "fault@later reset". Without it, nothing is wrong with it.

It belongs to a run like any other, so it can be mended between two sessions: by unsetting the variable.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import gymnasium
import numpy as np

ID = "tests.faults.hostile:Hostile-v0"
LENGTH = 50


class Panic(BaseException):
    """As a library that is no Python raises."""


class NoWords(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def _raise(error):
    raise error


def _hang_as_a_sleeper():
    time.sleep(3600)


def _hang_in_python():
    while True:
        pass


def _hang_without_giving_the_interpreter_back():
    sum(range(10**14))  # one call into C, which lets no other thread and no signal handler in


def _hang_deaf():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


HANGS = {
    "sleeps": _hang_as_a_sleeper,
    "spins": _hang_in_python,
    "keeps the interpreter": _hang_without_giving_the_interpreter_back,
    "is deaf": _hang_deaf,
}

# What is returned in place of the three numbers of an observation.
OBSERVATIONS = {
    "nan observation": lambda obs: obs * [1, np.nan, 1],
    "infinite observation": lambda obs: np.full(3, [0, -np.inf, 0]),
    "observation too large": lambda obs: np.full(3, [0, 1e300, 0]),
    "short observation": lambda obs: obs[:2],
    "deep observation": lambda obs: obs[None],
    "single number": lambda obs: 1.0,
    "text observation": lambda obs: ["1", "2", "3"],
    "no observation": lambda obs: None,
    "objects": lambda obs: np.array([1.0, None, 2.0], object),
    "complex observation": lambda obs: obs + 1j,
    "ragged observation": lambda obs: [[1.0], [1.0, 2.0]],
    "dict observation": lambda obs: {"obs": obs},
}
# In place of a whole step: observation, reward, terminated, truncated, info.
STEPS = {
    "nan reward": lambda o, r, e, t, i: (o, float("nan"), e, t, i),
    "infinite reward": lambda o, r, e, t, i: (o, np.float32(-np.inf), e, t, i),
    "reward too large": lambda o, r, e, t, i: (o, 1e300, e, t, i),
    "text reward": lambda o, r, e, t, i: (o, "1.5", e, t, i),
    "no reward": lambda o, r, e, t, i: (o, None, e, t, i),
    "rewards": lambda o, r, e, t, i: (o, np.array([r]), e, t, i),
    "complex reward": lambda o, r, e, t, i: (o, 1 + 1j, e, t, i),
    "four values": lambda o, r, e, t, i: (o, r, e, i),
    "a list": lambda o, r, e, t, i: [o, r, e, t, i],
    "nothing": lambda o, r, e, t, i: None,
    "terminated none": lambda o, r, e, t, i: (o, r, None, t, i),
    "terminated array": lambda o, r, e, t, i: (o, r, np.array([False, True]), t, i),
    "truncated text": lambda o, r, e, t, i: (o, r, e, "no", i),
    "terminated 2": lambda o, r, e, t, i: (o, r, 2, t, i),
    "no info": lambda o, r, e, t, i: (o, r, e, t, None),
}
# In place of coming back at all.
RAISES = {
    "exception": lambda: _raise(RuntimeError("the simulator\n is \x1b[31mgone")),
    "exit": lambda: sys.exit(0),
    "panic": lambda: _raise(Panic("at the disco")),
    "wordless": lambda: _raise(NoWords()),
    **HANGS,
}


class Hostile(gymnasium.Env):
    """Pushes a point about: observes where it is, and is rewarded for being near 0."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)  # which it often leaves, as many do
    action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self):
        self.trained = 0  # steps in training episodes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.evaluated, self.at = seed % 2 == 1, 0
        self.place = self.np_random.standard_normal(3)
        obs, fault = self.place.astype(np.float32), _fault("first reset" if seed == 0 else "later reset")
        if fault in RAISES:
            RAISES[fault]()
        if fault in STEPS:
            return STEPS[fault](obs, 0.0, False, False, {})
        return OBSERVATIONS.get(fault, np.array)(obs), {}

    def step(self, action):
        self.at += 1
        self.trained += not self.evaluated
        self.place = 0.9 * self.place + 0.1 * np.resize(action, 3) + 0.01 * self.np_random.standard_normal(3)
        obs, reward = self.place.astype(np.float32), -float(self.place @ self.place)
        fault = _fault("evaluation" if self.evaluated else f"train {self.trained}")
        if fault in RAISES:
            RAISES[fault]()
        if fault in OBSERVATIONS:
            return OBSERVATIONS[fault](obs), reward, False, False, {}
        over = self.at >= LENGTH and fault != "no end"
        return STEPS[fault](obs, reward, False, over, {}) if fault in STEPS else (obs, reward, False, over, {})


def _fault(when):
    fault, _, chosen = os.environ.get("HOSTILE", "").partition("@")
    return fault if chosen == when else ""


if "Hostile-v0" not in gymnasium.registry:
    gymnasium.register("Hostile-v0", entry_point=Hostile)
