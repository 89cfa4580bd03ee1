"""Compiles an exported C policy and runs it, in a process of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mepg.core.types import Sizes
from mepg.envs.spaces import Observation
from mepg.errors import RunFailure
from mepg.native import build
from mepg.signals import cleaning_up

FLAGS = ("-std=c99", "-O2")
_COMPILERS = ("cc", "gcc", "clang")
_WAY_OUT = "; CC= writes the file without a trial"
_SECONDS = 300  # for the compiler, which takes long for a million weights

# Computes the action of each observation, and then measures the time. The pointer is volatile, so that no call is
# optimised away.
_TRIAL = """
#include <stdio.h>
#include <time.h>
#include "policy.h"

static float obs[{count}][POLICY_OBS];
static {kind} action[{count}][{width}];
{signature} = policy;

int main(void) {{
    clock_t began;
    double seconds;
    if (fread(obs, sizeof obs, 1, stdin) != 1) return 1;
    for (int i = 0; i < {count}; i++) {call};
    if (fwrite(action, sizeof action, 1, stdout) != 1) return 1;
    began = clock();
    for (int again = 0; again < {rounds}; again++)
        for (int i = 0; i < {count}; i++) {call};
    seconds = (double)(clock() - began) / CLOCKS_PER_SEC / {count} / {rounds};
    return fwrite(&seconds, sizeof seconds, 1, stdout) != 1;
}}
"""


def find_compiler() -> list[str] | None:
    """The command in the variable CC, or the first of cc, gcc and clang that is installed. CC= means none."""
    try:
        return build.find_compiler("CC", _COMPILERS)
    except build.CannotBuild as error:
        if "CC" not in os.environ or isinstance(error, build.CompilerDisabled):
            return None
        raise RunFailure(f"{error}{_WAY_OUT}") from None


def run_compiled(
    compiler: Sequence[str], header: str, sizes: Sizes, obs: Observation, rounds: int, flags: Sequence[str] = FLAGS
) -> tuple[Any, float]:
    """The header's actions, [B, A], and the mean time for one observation, in seconds."""
    discrete = sizes.action_kind == "discrete"
    text = _TRIAL.format(
        count=len(obs),
        rounds=rounds,
        kind="int" if discrete else "float",
        width=sizes.action_width,
        signature="int (*volatile act)(const float *)" if discrete else "void (*volatile act)(const float *, float *)",
        call="action[i][0] = act(obs[i])" if discrete else "act(obs[i], action[i])",
    )
    folder = Path(tempfile.mkdtemp(prefix="mepg-c-"))
    with cleaning_up(lambda: shutil.rmtree(folder, ignore_errors=True)):
        (folder / "policy.h").write_text(header)
        (folder / "trial.c").write_text(text)
        build_trial = [*compiler, *flags, "-o", "trial", "trial.c", "-lm"]
        try:
            build.run_command(build_trial, folder=folder, seconds=_SECONDS)
            stdin = obs.astype(np.float32).tobytes()
            output = build.run_command([str(folder / "trial")], stdin=stdin, seconds=_SECONDS)
        except build.CannotBuild as error:
            raise RunFailure(f"{error}{_WAY_OUT}") from None
    dtype = np.dtype(np.intc if discrete else np.float32)
    actions = np.frombuffer(output, dtype, len(obs) * sizes.action_width).reshape(len(obs), sizes.action_width)
    return actions, float(np.frombuffer(output[-8:], np.float64)[0])
