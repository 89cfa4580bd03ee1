"""An environment in which a KeyboardInterrupt gets lost, as in many a library: $SWALLOWS says how."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time
import weakref
from pathlib import Path

import gymnasium
import numpy as np

ID = "tests.faults.swallower:Swallower-v0"


def _wait(*_):
    """Nearly all of a step's time is spent here: in Python, where a signal's handler can run."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass


class _Dies:
    def __del__(self):
        _wait()


def _suppress():
    with contextlib.suppress(BaseException):
        _wait()


def _weakref():
    dead = _Plain()
    watched = weakref.ref(dead, _wait)
    del dead
    return watched


class _Plain:
    pass


def _collect():
    gc.callbacks.append(_wait)
    gc.collect(0)
    gc.callbacks.remove(_wait)


def _call_back():
    ctypes.CFUNCTYPE(None)(_wait)()


def _join():
    """In a thread, where no handler runs, while the main thread waits for it and hides what happens."""
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    while thread.is_alive():
        with contextlib.suppress(BaseException):
            thread.join()


WAYS = {
    "suppresses everything": _suppress,
    "__del__": lambda: _Dies() and None,
    "a weak reference": _weakref,
    "a collector's callback": _collect,
    "a callback of ctypes": _call_back,
    "a thread that is joined": _join,
}


class Swallower(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.at += 1
        if way := os.environ.get("SWALLOWS"):
            Path(os.environ["AT_WORK"]).touch()
            WAYS[way]()
        return np.zeros(2, np.float32), 0.0, False, self.at >= 20, {}


if "Swallower-v0" not in gymnasium.registry:
    gymnasium.register("Swallower-v0", entry_point=Swallower)
