"""The C form compiled and tried, in a process of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mepg.core.types import Sizes
from mepg.envs.spaces import Row
from mepg.errors import RunFailure
from mepg.native import build
from mepg.signals import cleaning_up

FLAGS = ("-std=c99", "-O2")
_COMPILERS = ("cc", "gcc", "clang")
_WAY_OUT = "; CC= writes the file without a trial"
_SECONDS = 300  # for a compiler: a policy of a million weights takes some

# Acts on each observation, and then again against the clock. The pointer is volatile, so no call is optimised away.
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
    """What CC says, or the first of cc, gcc and clang that is there. CC= means none."""
    try:
        return build.find_compiler("CC", _COMPILERS)
    except build.CannotBuild as error:
        if "CC" not in os.environ or isinstance(error, build.CompilerDisabled):
            return None
        raise RunFailure(f"{error}{_WAY_OUT}") from None


def act_compiled(
    compiler: Sequence[str], header: str, sizes: Sizes, obs: Row, rounds: int, flags: Sequence[str] = FLAGS
) -> tuple[Any, float]:
    """The header's actions, a row for each observation, and the seconds for one: the mean of many."""
    discrete = sizes.action_kind == "discrete"
    text = _TRIAL.format(
        count=len(obs),
        rounds=rounds,
        kind="int" if discrete else "float",
        width=sizes.action_width,
        signature="int (*volatile act)(const float *)" if discrete else "void (*volatile act)(const float *, float *)",
        call="action[i][0] = act(obs[i])" if discrete else "act(obs[i], action[i])",
    )
    place = Path(tempfile.mkdtemp(prefix="mepg-c-"))
    with cleaning_up(lambda: shutil.rmtree(place, ignore_errors=True)):
        (place / "policy.h").write_text(header)
        (place / "trial.c").write_text(text)
        _run([*compiler, *flags, "-o", "trial", "trial.c", "-lm"], place)
        said = _run([str(place / "trial")], place, obs.astype(np.float32).tobytes())
    kind = np.dtype(np.intc if discrete else np.float32)
    actions = np.frombuffer(said, kind, len(obs) * sizes.action_width).reshape(len(obs), sizes.action_width)
    return actions, float(np.frombuffer(said[-8:], np.float64)[0])


def _run(command: list[str], folder: Path, stdin: bytes = b"") -> bytes:
    try:
        return build.run(command, _SECONDS, folder, stdin)
    except build.CannotBuild as error:
        raise RunFailure(f"{error}{_WAY_OUT}") from None
