"""Real training processes: killed, signalled, two at once, and with a clock that goes backwards."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.run.files import read_arrays
from tests.run.processes import assert_same_run, checkpoints, command, finish, newest, run, start, wait_for

pytestmark = pytest.mark.faults

STEPS, REPLAY = 1000, 300
SETTINGS = [f"replay_size={REPLAY}", "warmup=100"]
OFTEN = ["--checkpoint-every", "40", "--eval-every", "500", "--eval-episodes", "1"]
HOPPER = ("me-sac", "td3", "sunrise", "ace")
SEVERAL = {"me-ddpg": ["--envs", "4"], "sac": ["--envs", "2", "--normalize-obs"], "td3": ["--envs", "5"]}


def train(algorithm, out, *extra):
    env = "HopperBulletEnv-v0" if algorithm in HOPPER else "Pendulum-v1"
    extra = [*OFTEN, *SEVERAL.get(algorithm, []), *extra]
    return command(algorithm, env, out, steps=STEPS, settings=SETTINGS, extra=extra)


def being_written(folder):
    """The files of a checkpoint that are not whole yet, and when each was begun."""
    found = {}
    for path in [*folder.glob("checkpoints/.*.writing"), *folder.glob("replay/.*.writing")]:
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found


def holds_lock(process, folder):
    lock = str(folder / ".lock")
    try:
        return any(os.readlink(link) == lock for link in Path(f"/proc/{process.pid}/fd").iterdir())  # noqa: PTH115
    except OSError:
        return False


def halt_while_writing(process, folder, before):
    """Stop it with a file of a checkpoint half written; False if it ends before that is seen."""
    while wait_for(lambda: being_written(folder).items() - before.items(), process, pause=0.0002):
        process.send_signal(signal.SIGSTOP)
        while (state := Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]) not in "TtZ":
            pass
        if state != "Z" and being_written(folder).items() - before.items():
            return True
        process.send_signal(signal.SIGCONT)
    return False


def kill_9(argv, folder, kind, rng):
    """Start it, kill it at a moment of this kind, and give what kinds of moment it really was."""
    written_before, saved_before = being_written(folder), newest(folder)
    process = start(argv)
    if kind == "any_moment":  # imports, compiling, the first steps
        time.sleep(rng.uniform(0, 3.5))
    elif kind == "writing_a_checkpoint":
        several = rng.randint(1, 4) * 40
        wait_for(lambda: newest(folder) >= saved_before + several, process)
        halt_while_writing(process, folder, written_before)
    elif kind == "resuming":
        wait_for(lambda: holds_lock(process, folder), process, pause=0.0005)
        time.sleep(rng.uniform(0, 0.01))
    elif kind == "wrapped_ring":
        wait_for(lambda: newest(folder) > max(REPLAY, saved_before), process)
        time.sleep(rng.uniform(0, 0.15))
    locked = holds_lock(process, folder)
    process.kill()
    out, err = process.communicate(timeout=60)
    if process.returncode == 0:
        return set()
    assert process.returncode == -signal.SIGKILL, err
    kinds = {"kills"}
    if being_written(folder).items() - written_before.items():
        kinds.add("writing_a_checkpoint")
    if locked and saved_before and "resumed at" not in out and newest(folder) == saved_before:
        kinds.add("resuming")
    if newest(folder) > REPLAY:
        kinds.add("wrapped_ring")
    if newest(folder) and len(read_arrays(folder / "checkpoints" / f"{newest(folder):09d}.safetensors")["actions.0"]):
        kinds.add("inside_an_episode")
    if not newest(folder):
        kinds.add("before_the_first_checkpoint")
    if "--envs" in argv:
        kinds.add("several_environments")
    if "HopperBulletEnv-v0" in argv:
        kinds.add("hopper")
    return kinds


@pytest.mark.parametrize("algorithm", algorithms())
def test_kill_9(algorithm, tmp_path, count):
    """At least four times each, at moments of every kind; a moment that was missed is tried for again."""
    rng = random.Random(algorithm)
    argv, folder = train(algorithm, tmp_path / "killed"), tmp_path / "killed"
    moments = Counter()
    for kind in ("any_moment", "writing_a_checkpoint", "resuming", "wrapped_ring"):
        for _ in range(5):
            was = kill_9(argv, folder, kind, rng)
            moments.update(was)
            if kind in was or kind == "any_moment":
                break
    finish(argv)
    finish(train(algorithm, tmp_path / "whole"))
    assert_same_run(tmp_path / "whole", folder)
    for kind in ("writing_a_checkpoint", "resuming", "wrapped_ring", "inside_an_episode"):
        assert moments[kind] >= 1, (kind, moments)
    assert moments["kills"] >= 4
    count(**moments)
