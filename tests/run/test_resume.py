"""Killed at any moment and started again, a run ends with the bits of one that was never interrupted.

A sample: make test-faults kills every algorithm, at moments of every kind.
"""

import os
import random
import signal
import time

import numpy as np
import pytest

from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from mepg.training.data import digest_arrays
from tests.conftest import HOPPER, PENDULUM
from tests.run.processes import (
    assert_same_run,
    begun_with,
    checkpoints,
    command,
    hears,
    kill_after_progress,
    run,
    start,
    wait_for,
)
from tests.training.recordings import record


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "extra"),
    [
        pytest.param("me-sac", HOPPER, [], [], marks=pytest.mark.faults),
        pytest.param(
            "td3",
            "Walker2DBulletEnv-v0",
            ["replay_size=400", "dropout.p=0.1"],  # the ring wraps at step 400
            [],
            marks=pytest.mark.faults,
        ),
        pytest.param("me-sac+lcb", HOPPER, ["policy_average.use=both"], ["--tuned"], marks=pytest.mark.faults),
        ("me-sac", HOPPER, ["replay_size=400", "n_step=3"], ["--envs", "4", "--normalize-obs"]),
        (
            "me-sac",
            "tests.envs.own:Reach-v0",
            ["replay_size=400"],
            ["--envs", "2", "--normalize-obs", "--actor-obs", "observation,desired_goal"],
        ),
        ("me-dqn", "tests.envs.games:LegalNoughts-v0", ["replay_size=400", "n_step=2"], ["--envs", "2"]),
        pytest.param("me-sac-discrete", "Taxi-v4", ["replay_size=400"], ["--normalize-obs"], marks=pytest.mark.faults),
    ],
)
def test_kill_9_at_random_moments(algorithm, env, settings, extra, tmp_path):
    check_kills(algorithm, env, settings, extra, tmp_path)


@pytest.mark.parametrize(
    ("share", "env", "settings"),
    [(None, "Pendulum-v1", ["n_step=3"]), ("0.5", "tests.envs.own:Reach-v0", [])],
)
def test_kill_9_of_a_run_that_began_with_data(share, env, settings, tmp_path):
    """Also before its first checkpoint, and after the ring has forgotten some of the data."""
    np.savez(tmp_path / "data.npz", **record(env, episodes=1))
    extra = ["--data", str(tmp_path / "data.npz"), *(["--data-share", share] if share else [])]
    argv = command("me-sac", env, tmp_path / "killed", steps=1100, settings=["replay_size=400", *settings], extra=extra)
    process = start(argv)
    wait_for(lambda: (tmp_path / "killed" / "run.json").exists(), process)
    process.kill()
    process.communicate()
    assert not checkpoints(tmp_path / "killed")
    check_kills("me-sac", env, ["replay_size=400", *settings], extra, tmp_path)
    assert Folder(tmp_path / "killed").config().data_sha256 == digest_arrays(record(env, episodes=1))


@pytest.mark.faults
def test_kill_9_in_native_code(tmp_path, native):
    check_kills("me-sac", HOPPER, ["replay_size=400"], [], tmp_path)
    assert Folder(tmp_path / "killed").config().backend == "native"


def check_kills(algorithm, env, settings, extra, tmp_path):
    argv = command(algorithm, env, tmp_path / "killed", steps=1100, settings=settings, extra=extra)
    rng = random.Random(f"{algorithm}{env}")
    kills = 0
    for _ in range(3):
        status, _, err = kill_after_progress(argv, tmp_path / "killed", delay=rng.uniform(0, 0.25))
        kills += status == -signal.SIGKILL
        assert status in (0, -signal.SIGKILL), err
    last = run(argv)
    assert last.returncode == 0, last.stderr
    assert kills >= 2, "the runs were too short to be killed"
    whole = run(command(algorithm, env, tmp_path / "whole", steps=1100, settings=settings, extra=extra))
    assert whole.returncode == 0, whole.stderr
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    assert not (tmp_path / "killed" / "replay").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.faults)])
def test_signals_save_and_leave_with_a_word(number, tmp_path):
    """Stopped in the middle of an episode, at a step that is no checkpoint's."""
    argv = command("me-ddpg", HOPPER, tmp_path / "stopped", steps=1200)
    status, out, err = kill_after_progress(argv, tmp_path / "stopped", delay=0.1, number=number)
    assert status == 128 + number, err
    assert f"{number.name}: saved at step" in out
    assert "the same command continues from there" in out
    assert "Traceback" not in err
    saved = max(int(name.removesuffix(".json")) for name in checkpoints(tmp_path / "stopped"))
    again = run(argv)
    assert again.returncode == 0, again.stderr
    assert f"resumed at step {saved:,}" in again.stdout
    assert run(command("me-ddpg", HOPPER, tmp_path / "whole", steps=1200)).returncode == 0
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_second_signal_ends_an_evaluation_that_never_does(tmp_path):
    early = ["--checkpoint-every", "50", "--eval-every", "100"]  # both within the warm-up, so nothing compiles long
    argv = command("me-ddpg", "tests.run.stubs:StubEndless-v0", tmp_path / "a", steps=1200, extra=early)
    process = start(argv)
    while process.poll() is None and not checkpoints(tmp_path / "a"):
        time.sleep(0.01)
    time.sleep(2)  # it is in the evaluation of step 100 by now
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "what was saved is safe" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.faults)])
def test_a_signal_while_a_simulator_is_silenced_has_its_word_too(number, tmp_path):
    """PyBullet's first words are kept off stderr; ours are not."""
    code = f"""
import os
real = os.dup2

def dup2(source, target):
    real(source, target)
    if target == 2:
        os.kill(os.getpid(), {number:d})

os.dup2 = dup2
"""
    argv = command("ddpg", "HopperBulletEnv-v0", tmp_path / "run", steps=300)
    ended = run(argv, **begun_with(code, tmp_path / "code"))
    assert ended.returncode == 128 + number, ended.stdout
    assert ended.stderr == "mepg: interrupted; what was saved is safe\n"


@pytest.mark.faults
@pytest.mark.parametrize("threads", [1, 2])
def test_a_rain_of_signals_does_not_damage_the_heap(threads, tmp_path):
    """While large matrices are multiplied, the stack pointer is in the heap: a signal must not be written there."""
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip("there is one core")
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
    code = f"import signal; [signal.signal(number, lambda *_: None) for number in {tuple(map(int, numbers))}]"
    large = ["hidden=400,300", "batch_size=256", "warmup=100"]
    extra = ["--threads", str(threads), "--eval-every", "600", "--eval-episodes", "1"]
    argv = command("ddpg", "Pendulum-v1", tmp_path / "run", steps=600, settings=large, extra=extra)
    process = start(argv, **begun_with(code, tmp_path / "code"))
    wait_for(lambda: hears(process, signal.SIGALRM), process)
    while process.poll() is None:
        for number in numbers:  # several at once, or the first thread would take them all
            process.send_signal(number)
        time.sleep(0.001)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_nothing_can_go_wrong_once_a_run_is_safe(tmp_path):
    """JAX and the interpreter take most of a second to clean up: a Ctrl-C in there would be a traceback."""
    code = "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    argv = command("ddpg", "Pendulum-v1", tmp_path / "run", steps=300, extra=["--eval-every", "300"])
    for said in ("Finished", "Already finished"):
        ended = run(argv, **begun_with(code, tmp_path / "code"), PYTHONUNBUFFERED="")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert f"\n{said}: 300 steps" in f"\n{ended.stdout}"
    wrong = run([*argv, "--seed", "1"], **begun_with(code, tmp_path / "code"))
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


@pytest.mark.faults  # in one process: tests/faults/test_damage.py
def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    argv = command("ddpg", PENDULUM, tmp_path / "a", steps=1200)
    while len(checkpoints(tmp_path / "a")) < 2:
        status, _, err = kill_after_progress(argv, tmp_path / "a", delay=0.05)
        assert status == -signal.SIGKILL, err
    newest = max(checkpoints(tmp_path / "a")).removesuffix(".json")
    state = tmp_path / "a" / "checkpoints" / f"{newest}.safetensors"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    again = run(argv)
    assert again.returncode == 0, again.stderr
    assert f"the checkpoint of step {int(newest):,} is damaged" in again.stdout
    assert "resumed at step" in again.stdout
    assert run(command("ddpg", PENDULUM, tmp_path / "whole", steps=1200)).returncode == 0
    assert_same_run(tmp_path / "whole", tmp_path / "a")


def test_loss_that_is_no_longer_finite(tmp_path):
    """Rewards of 1e30 make the squared error overflow: named, with the step, and never checkpointed."""
    argv = command("me-ddpg", "tests.run.stubs:StubHugeReward-v0", tmp_path / "a", steps=1000)
    failed = run(argv)
    assert failed.returncode == 1
    assert "critic_loss became inf in the update of step" in failed.stderr
    assert "Traceback" not in failed.stderr
    newest = max(checkpoints(tmp_path / "a")).removesuffix(".json")
    assert int(newest) == 150  # the last before the first update
    assert read_arrays(tmp_path / "a" / "checkpoints" / f"{newest}.safetensors")


def test_environment_that_returns_nan_ends_the_run_with_the_step(tmp_path):
    failed = run(command("me-ddpg", "tests.run.stubs:StubNanObs-v0", tmp_path / "a", steps=1000))
    assert failed.returncode == 1
    assert failed.stderr.strip().endswith(
        "step 30: tests.run.stubs:StubNanObs-v0 returned an observation with nan at index 1"
    )
    assert "Traceback" not in failed.stderr
