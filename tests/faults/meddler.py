"""An environment that changes what belongs to its whole process, and means no harm by it: $MEDDLES says what.

It does so from its tenth step on, or already when it is made if $MEDDLES ends with " at once".
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from pathlib import Path

import gymnasium
import numpy as np

ID = "tests.faults.meddler:Meddler-v0"


def _set(name, stream):
    setattr(sys, name, stream() if callable(stream) else stream)


def _wrap_anew():
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), "ascii")


def _switch_jax():
    import jax

    for name in ("jax_enable_x64", "jax_debug_nans"):
        jax.config.update(name, not jax.config.values[name])


def _fork_a_pool():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]


class Broken(io.StringIO):
    def write(self, text):
        raise RuntimeError("not mine")

    flush = write


WAYS = {
    "sets stdout to none": lambda: _set("stdout", None),
    "sets stderr to none": lambda: _set("stderr", None),
    "sets both to none": lambda: (_set("stdout", None), _set("stderr", None)),
    "closes stdout": lambda: sys.stdout.close(),
    "closes stderr": lambda: sys.stderr.close(),
    "closes the streams below": lambda: (sys.stdout.buffer.raw.close(), sys.stderr.buffer.close()),
    "closes the original streams": lambda: (sys.__stdout__.close(), sys.__stderr__.close()),
    "replaces stdout": lambda: _set("stdout", io.StringIO),
    "replaces both by broken ones": lambda: (_set("stdout", Broken), _set("stderr", Broken)),
    "wraps stdout anew": _wrap_anew,
    "allows ascii only": lambda: sys.stdout.reconfigure(encoding="ascii", errors="strict"),
    "closes descriptor 1": lambda: os.close(1),
    "closes descriptor 2": lambda: os.close(2),
    "closes all descriptors": lambda: os.closerange(0, 3),
    "sets the umask": lambda: os.umask(0o777),
    "goes elsewhere": lambda: os.chdir(os.environ["ELSEWHERE"]),
    "switches JAX's settings": _switch_jax,
    "forks a pool": _fork_a_pool,
}


class Meddler(gymnasium.Env):
    """Observes how far its episode of ten steps has come, and checks that what it set is still there."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.way, at_once, _ = os.environ.get("MEDDLES", "").partition(" at once")
        self.steps, Meddler.set = 0, None
        if at_once:
            self.meddle()

    def meddle(self):
        assert Meddler.set in (None, _what_is_set()), "it was undone"
        with contextlib.suppress(OSError, ValueError, AttributeError):  # where it has been done before
            WAYS[self.way]()
        Meddler.set = _what_is_set()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps, self.at = self.steps + 1, self.at + 1
        if self.way and self.steps >= 10:
            self.meddle()
        return np.full(2, self.at / 10, np.float32), float(action[0]), False, self.at >= 10, {}


def _what_is_set():
    umask = os.umask(0o022)
    os.umask(umask)
    return sys.stdout, sys.stderr, umask, Path.cwd()


if "Meddler-v0" not in gymnasium.registry:
    gymnasium.register("Meddler-v0", entry_point=Meddler)
