"""Real training processes: killed, signalled, two at once, and with a clock that goes backwards."""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from tests.conftest import HOPPER
from tests.run.processes import (
    assert_same_run,
    begun_with,
    being_written,
    command,
    finish,
    holds_lock,
    newest,
    run,
    start,
    tensorboard,
    wait_for,
)

pytestmark = pytest.mark.faults

STEPS, REPLAY = 1000, 300
SETTINGS = [f"replay_size={REPLAY}", "warmup=100"]
OFTEN = ["--checkpoint-every", "40", "--eval-every", "500", "--eval-episodes", "1"]
ON_HOPPER = ("me-sac", "td3", "sunrise", "ace")
SEVERAL = {"me-ddpg": ["--envs", "4"], "sac": ["--envs", "2", "--normalize-obs"], "td3": ["--envs", "5"]}


def train(algorithm, out, *extra):
    discrete = "discrete" in algorithms()[algorithm].actions
    env = "CartPole-v1" if discrete else HOPPER if algorithm in ON_HOPPER else "Pendulum-v1"
    extra = [*OFTEN, *SEVERAL.get(algorithm, []), *extra]
    return command(algorithm, env, out, steps=STEPS, settings=SETTINGS, extra=extra)


HALTS = """
import os, signal
numbers, real = [int(number) for number in os.environ["HALTS"].split(",")], os.fsync

def fsync(file):
    path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else ""
    if path.endswith(".writing") and path.split("/")[-2] in ("checkpoints", "replay"):
        numbers[:] = [number - 1 for number in numbers]
        if 0 in numbers:
            os.kill(os.getpid(), signal.SIGSTOP)
    real(file)

os.fsync = fsync
"""


def halting(folder, *numbers):
    """Variables for a process that stops itself while it writes its n-th file of a checkpoint, which has three."""
    return {**begun_with(HALTS, folder), "HALTS": ",".join(map(str, numbers))}


def wait_until_halted(process):
    stat = Path(f"/proc/{process.pid}/stat")
    assert wait_for(lambda: stat.read_text().rpartition(") ")[2][0] == "T", process, pause=0.01), process.communicate()


def kill_9(argv, folder, kind, rng):
    """Start it, kill it at a moment of this kind, and give what kinds of moment it really was."""
    written_before, saved_before = being_written(folder), newest(folder)
    halts = halting(folder.parent / "halts", rng.randint(4, 15)) if kind == "writing_a_checkpoint" else {}
    process = start(argv, **halts)
    if kind == "any_moment":  # imports, compiling, the first steps
        time.sleep(rng.uniform(0, 3.5))
    elif kind == "writing_a_checkpoint":
        wait_until_halted(process)
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
    if HOPPER in argv:
        kinds.add("hopper")
    return kinds


@pytest.mark.parametrize("algorithm", algorithms())
def test_kill_9(algorithm, tmp_path, count):
    """At least four times each, at moments of every kind; a moment that was missed is tried for again."""
    check_kills(algorithm, tmp_path, count)


MIXED = ("--set", "precision=mixed", "--threads", "2")


@pytest.mark.parametrize(
    ("algorithm", "extra"),
    [*((name, ()) for name in ("me-dqn", "me-qr-dqn", "me-sac-discrete", "me-tqc", "me-crossq")), ("me-crossq", MIXED)],
)
def test_kill_9_in_native_code(algorithm, extra, tmp_path, count, native):
    """Algorithms that differ in what they compute; me-sac is in tests/run/test_resume.py."""
    check_kills(algorithm, tmp_path, count, *extra)
    assert Folder(tmp_path / "killed").config().backend == "native"


def check_kills(algorithm, tmp_path, count, *extra):
    rng = random.Random(algorithm)
    argv, folder = train(algorithm, tmp_path / "killed", *extra), tmp_path / "killed"
    moments = Counter()
    for kind in ("any_moment", "writing_a_checkpoint", "resuming", "wrapped_ring"):
        for _ in range(5):
            was = kill_9(argv, folder, kind, rng)
            moments.update(was)
            if kind in was or kind == "any_moment":
                break
    finish(argv)
    finish(train(algorithm, tmp_path / "whole", *extra))
    assert_same_run(tmp_path / "whole", folder)
    for kind in ("writing_a_checkpoint", "resuming", "wrapped_ring", "inside_an_episode"):
        assert moments[kind] >= 1, (kind, moments)
    assert moments["kills"] >= 4
    count(**moments)


# Signals


def watched(out):
    extra = ["--checkpoint-every", "100", "--eval-every", "450", "--eval-episodes", "2"]
    return command("ddpg", "tests.faults.stubs:Watched-v0", out, steps=STEPS, settings=SETTINGS, extra=extra)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(watched(folder / "run"))
    return folder / "run"


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("starting", signal.SIGTERM),
        ("starting", signal.SIGINT),
        ("compiling", signal.SIGTERM),
        ("evaluating", signal.SIGTERM),
        ("evaluating", signal.SIGINT),
        ("writing", signal.SIGTERM),
    ],
)
def test_a_signal(moment, number, undisturbed, tmp_path, count):
    """Saved after the step under way, or left at once if there is nothing to save yet; either with a word."""
    argv, folder = watched(tmp_path / "run"), tmp_path / "run"
    halts = halting(tmp_path / "halts", 5) if moment == "writing" else {}
    process = start(argv, EVALUATING=str(tmp_path / "evaluating"), **halts)
    if moment == "starting":  # JAX is being loaded
        wait_for(lambda: "jaxlib" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    elif moment == "compiling":  # the update, after the warm-up
        wait_for(lambda: newest(folder) == 100, process)
        time.sleep(0.1)
    elif moment == "evaluating":
        wait_for((tmp_path / "evaluating").exists, process)
    else:
        wait_until_halted(process)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    if moment == "starting":
        assert err == "mepg: interrupted; what was saved is safe\n"
    else:
        assert err == ""
        assert f"{number.name}: saved at step {newest(folder)} of 1,000; the same command continues from there" in out
        assert moment != "evaluating" or newest(folder) == 450
    finish(argv)
    assert_same_run(undisturbed, folder)
    count(signals=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["evaluating", "saving"])
def test_two_signals(moment, number, undisturbed, tmp_path, count):
    """The second is not waited for, and what was saved before the first is whole."""
    argv, folder = watched(tmp_path / "run"), tmp_path / "run"
    halts = {} if moment == "evaluating" else halting(tmp_path / "halts", 5, 6)
    process = start(argv, EVALUATING=str(tmp_path / "evaluating"), **halts)
    if moment == "evaluating":
        wait_for((tmp_path / "evaluating").exists, process)
        process.send_signal(number)
        time.sleep(0.1)
    else:
        wait_until_halted(process)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: any(path.name.endswith(".json.writing") for path in being_written(folder)), process)
        wait_until_halted(process)
    saved = newest(folder)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, (out, err)
    assert err == "mepg: interrupted; what was saved is safe\n"
    assert "saved at" not in out
    assert f"resumed at step {saved}" in finish(argv)
    assert_same_run(undisturbed, folder)
    count(signals=2)


def test_two_processes_on_one_folder(undisturbed, tmp_path):
    """The second is refused, even if someone has deleted the lock, and does the first no harm."""
    argv, folder = watched(tmp_path / "run"), tmp_path / "run"
    first = start(argv)
    wait_for(lambda: newest(folder), first)
    first.send_signal(signal.SIGSTOP)  # or it might be finished before the others have begun
    for _ in range(2):
        second = run(argv)
        assert second.returncode == 2
        assert second.stderr == f"mepg: {folder} is in use: another process is training there\n"
        (folder / ".lock").unlink()
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=300)
    assert first.returncode == 0, err
    assert_same_run(undisturbed, folder)


BACKWARDS = """
import sys
import time
time.time = lambda since=time.time(), real=time.time: 1e9 - (real() - since)
"""


@pytest.fixture
def clock_goes_backwards(tmp_path):
    """Variables for a process that believes in 2001, and that every second was before the last."""
    return begun_with(BACKWARDS, tmp_path / "clock")


def test_clock_set_back(undisturbed, tmp_path, clock_goes_backwards):
    """Resumed with a clock that goes backwards, on files that were written in the future."""
    argv, folder = watched(tmp_path / "run"), tmp_path / "run"
    process = start(argv)
    wait_for(lambda: newest(folder) >= 400, process)
    process.kill()
    process.communicate()
    later = time.time() + 365 * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (later, later))
    assert "resumed at step" in finish(argv, **clock_goes_backwards)
    assert_same_run(undisturbed, folder)
    assert tensorboard(folder) == tensorboard(undisturbed)


def test_tuning_with_the_clock_set_back(tmp_path, clock_goes_backwards):
    argv = [sys.executable, "-m", "mepg", "tune", "ddpg", "--env", "Pendulum-v1", "--seeds", "1", "--steps", "400"]
    argv += ["--set", "hidden=8", "--set", "batch_size=8", "--set", "warmup=100", "--space", "actor_lr=1e-4:1e-3"]
    argv += ["--eval-every", "200", "--eval-episodes", "1", "--out", str(tmp_path / "study"), "--json"]
    pytest.importorskip("optuna")
    first = json.loads(finish([*argv, "--trials", "1"]))
    assert first["complete"] == 1
    second = json.loads(finish([*argv, "--trials", "2"], **clock_goes_backwards))
    assert (second["complete"], second["failed"], second["unfinished"]) == (2, 0, 0)
