"""mepg tune, from the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mepg.cli import main
from mepg.storage.folder import Folder
from mepg.training.data import digest_arrays
from tests.run.processes import run_mepg
from tests.training.recordings import record

SMALL = [
    "--set",
    "hidden=8",
    "--set",
    "batch_size=8",
    "--set",
    "warmup=20",
    "--eval-episodes",
    "1",
    "--eval-every",
    "100",
]


def test_bad_input_is_one_line(capsys, tmp_path):
    pytest.importorskip("optuna")
    for argv, says in (
        (["me-sac", "--env", "Pendulum-v1", "--space", "droput.p=0:1"], "did you mean 'dropout.p'?"),
        (["me-sacc", "--env", "Pendulum-v1"], "did you mean 'me-sac'?"),
        (["me-sac", "--env", "Nowhere-v0"], "unknown environment"),
        (["me-sac", "--env", "Pendulum-v1", "--steps", "1000"], "the warm-up is 25,000; --set warmup=1000"),
        (["me-sac", "--env", "Pendulum-v1", "--steps", "1000", "--tuned"], "the warm-up is 10,000; --set warmup=1000"),
        (["ace", "--env", "Pendulum-v1", "--tuned"], "ace has no tuned settings"),
        (["me-sac", "--env", "Pendulum-v1", "--trials", "0"], "trials must be in [1, 10^9]"),
        (["me-sac", "--env", "Pendulum-v1", "--seeds", "0"], "seeds must be in [1, 10000]"),
        (["me-sac", "--env", "Pendulum-v1", "--workers", "1000"], "workers must be in"),
    ):
        assert main(["tune", *argv]) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_without_the_extra_it_says_what_to_install(tmp_path):
    done = run_mepg("tune", "me-sac", "--env", "Pendulum-v1", cwd=tmp_path, hide=["optuna"])
    assert done.returncode == 2
    assert done.stderr == "mepg: mepg tune needs Optuna, which is not installed: pip install 'mepg[tune]'\n"


def test_what_is_found_with_tuned_settings_holds_them(tmp_path, capsys):
    pytest.importorskip("optuna")
    argv = ["td3", "--env", "Pendulum-v1", "--trials", "1", "--seeds", "1", "--steps", "100", "--workers", "1"]
    assert main(["tune", *argv, "--space", "discount=0.9,0.95", "--tuned", *SMALL]) == 0
    assert (
        "tuned: actor_lr=0.00073, critic_lr=0.00073, target_rate=0.02, warmup=20 (by --set" in capsys.readouterr().out
    )
    file = tmp_path / "tune" / "td3_tuned_Pendulum-v1" / "best.json"
    best = json.loads(file.read_text())
    assert best["set"][:4] == ["actor_lr=0.00073", "critic_lr=0.00073", "target_rate=0.02", "warmup=10000"]
    assert best["set"][-1].startswith("discount=")
    assert main(["train", "--config", str(file), "--steps", "10", "--eval-every", "10", "--out", "found"]) == 0


@pytest.mark.faults
def test_killed_in_the_middle_the_same_command_goes_on(tmp_path):
    """A real process, killed without warning while its second trial's run is under way."""
    pytest.importorskip("optuna")
    argv = [sys.executable, "-m", "mepg", "tune", "me-ddpg", "--env", "Pendulum-v1", "--trials", "3", "--seeds", "1"]
    argv += ["--steps", "600", "--workers", "1", "--space", "dropout.p=0.01:0.3", "--out", "study", *SMALL, "--json"]
    trials = tmp_path / "study" / "trials"
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list((trials / "0001-seed0" / "checkpoints").glob("*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    second = subprocess.run(argv, capture_output=True, text=True)
    assert second.returncode == 2
    assert "in use" in second.stderr
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    proposed = {path.name: json.loads((path / "run.json").read_text())["config"] for path in trials.iterdir()}
    results = {path: path.stat().st_mtime_ns for path in trials.rglob("result.json")}
    assert 1 <= len(results) <= 2  # the second run may have finished while the second command was refused
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["complete"], data["failed"]) == (3, 0)
    assert {path: path.stat().st_mtime_ns for path in results} == results, "what was finished is not run again"
    assert {name: json.loads((trials / name / "run.json").read_text())["config"] for name in proposed} == proposed
    assert sorted(path.name for path in trials.iterdir()) == [f"000{i}-seed0" for i in range(3)]
    # And what it found is what train takes.
    assert main(["train", "--config", data["best"]["file"], "--seed", "9", "--out", "found", "--steps", "200"]) == 0
    config = json.loads((tmp_path / "found" / "run.json").read_text())["config"]
    (setting,) = data["best"]["set"]
    assert config["spec"]["dropout"]["p"] == float(setting.partition("=")[2])


def test_every_trial_begins_with_the_data(tmp_path, capsys):
    pytest.importorskip("optuna")
    np.savez("data.npz", **record("Pendulum-v1", episodes=1))
    argv = ["tune", "td3", "--env", "Pendulum-v1", "--trials", "1", "--seeds", "1", "--steps", "100", "--workers", "1"]
    argv += ["--space", "discount=0.9,0.95", "--data-share", "0.5", "--out", "study", *SMALL]
    assert main([*argv, "--data", "data.npz"]) == 0
    config = Folder(tmp_path / "study" / "trials" / "0000-seed0").config()
    assert (config.data, config.data_share) == ("data.npz", 0.5)
    assert config.data_sha256 == digest_arrays(record("Pendulum-v1", episodes=1))
    assert main(["train", "--config", "study/best.json", "--out", "found"]) == 0
    assert Folder(tmp_path / "found").config().data_sha256 == config.data_sha256
    np.savez("data.npz", **record("Pendulum-v1", episodes=1, seed=1))
    assert main([*argv, "--data", "data.npz"]) == 2
    np.savez("data.npz", **record("CartPole-v1", episodes=1))
    capsys.readouterr()
    assert main([*argv, "--data", "data.npz"]) == 2
    assert "data.npz does not fit Pendulum-v1" in capsys.readouterr().err
