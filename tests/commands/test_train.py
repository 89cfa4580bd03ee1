"""mepg train, mostly when something is wrong."""

import json
import os
import pathlib
from dataclasses import replace

import numpy as np
import pytest

from mepg.cli import main
from mepg.run.session import Session
from mepg.training.config import Config, SessionOptions
from tests.commands.runs import TINY, train
from tests.run.processes import assert_same_run, tensorboard
from tests.training.recordings import record


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["me-sacc", "--env", "Pendulum-v1"], "unknown algorithm 'me-sacc'; did you mean 'me-sac'?"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "droput.p=0.3"], "did you mean 'dropout.p'?"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "dropout.p=1"], "dropout.p must be in [0, 1), not 1.0"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "pessimism.beta=-1"], "pessimism.beta must be in [0, 10], not -1"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "pessimism.beta=11"], "pessimism.beta must be in [0, 10], not 11"),
        (["sac", "--env", "Pendulum-v1", "--set", "pessimism.beta=0.2"], "set dropout.p, or pessimism=none"),
        (["ace", "--env", "Pendulum-v1", "--tuned"], "ace has no tuned settings: its spec has no actor_lr"),
        (["--env", "StubDiscrete-v0", "--tuned"], "me-dqn has no tuned settings: they are for a Box of actions"),
        (["--env", "Nowhere-v0"], "unknown environment 'Nowhere-v0'"),
        (["me-sac", "--env", "Pendulum-v1", "--steps", "0"], "steps must be in [1, 10^9], not 0"),
        (["me-sac", "--env", "Pendulum-v1", "--seed", "-1"], "seed must be in [0, 4294967295]"),
        (["me-sac", "--env", "Pendulum-v1", "--eval-every", "0"], "eval-every must be in [1, 10^9]"),
        (["me-sac", "--env", "Pendulum-v1", "--checkpoint-every", "0"], "checkpoint-every must be in [1, 10^9]"),
        (["me-sac", "--env", "Pendulum-v1", "--threads", "0"], "threads must be in [1, "),
        (["me-sac", "--env", "Pendulum-v1", "--threads", "1000"], "threads must be in [1, "),
        (
            ["me-sac", "--env", "Pendulum-v1", "--set", "hidden=99999999999"],
            "hidden must be one to a hundred widths in",
        ),
        (["me-sac", "--env", "Pendulum-v1", "--set", "replay_size=10000000000000"], "replay_size must be in"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "actor_every=99999999999"], "actor_every must be in"),
        (["me-sac", "--env", "Pendulum-v1", "--set", "temperature.initial=1e300"], "temperature.initial must be in"),
        (["me-sac", "--env", "Pendulum-v1", "--envs", "0"], "envs must be in [1, 1000], not 0"),
        (["me-sac", "--env", "Pendulum-v1", "--envs", "3"], "steps must be a multiple of envs=3, which are stepped"),
        (["me-sac", "--env", "Pendulum-v1", "--envs", "2500"], "envs must be in [1, 1000]"),
        (["me-sac", "--env", "Pendulum-v1", "--log", "csv,paper"], "unknown log 'paper'"),
        (["me-sac", "--env", ":"], "cannot be made"),
        (
            ["me-sac", "--env", "StubDiscrete-v0"],
            "me-sac needs a Box of actions; StubDiscrete-v0 has Discrete(3): use dqn",
        ),
        (["me-sac", "--env", "StubTextObs-v0"], "observation is a Text"),
        (["me-sac", "--env", "StubUnbounded-v0"], "infinite action bounds"),
        (["me-sac", "--env", "Nowhere-v0"], "unknown environment 'Nowhere-v0'"),
        (["me-sac", "--env", "nowhere_at_all:X-v0"], "neither in this folder nor installed"),
        (["me-sac", "--env", "Pendulum-v1", "--out", "/proc/nothing/here"], "cannot be written"),
        (["me-sac", "--env", "Pendulum-v1", "--out", "file/run"], "cannot be written"),
        (["me-sac", "--env", "Pendulum-v1", "--out", "full"], "holds other files"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(argv, says, capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine too")
    assert train(*argv) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("mepg: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert sorted(os.listdir()) == ["file", "full"]
    assert os.listdir("full") == ["thesis.txt"]


def test_a_finished_run_whose_result_is_gone_is_not_overwritten(finished, tmp_path, capsys):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    before = (folder / "policy.safetensors").read_bytes()
    assert train("me-ddpg", "--env", "StubScaled-v0", "--steps", "60", "--out", str(folder), *TINY) == 2
    assert "its result.json is gone" in capsys.readouterr().err
    assert (folder / "policy.safetensors").read_bytes() == before


def test_a_finished_run_says_so_and_stays_as_it_is(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert train("me-ddpg", "--env", "StubScaled-v0", "--steps", "60", "--out", str(finished), *TINY) == 0
    assert "Already finished: 60 steps" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.parametrize("other", [["--seed", "1"], ["--eval-every", "7"], ["--set", "dropout.p=0.5"]])
def test_a_folder_with_another_run_is_refused(finished, other, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    argv = ["me-ddpg", "--env", "StubScaled-v0", "--steps", "60", "--out", str(finished), *TINY, *other]
    assert train(*argv) == 2
    assert "holds another run" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_what_a_run_leaves(finished):
    assert {path.name.partition(".out")[0] for path in finished.iterdir()} == {
        ".lock",
        "checkpoints",
        "curve.png",
        "evaluations.npz",
        "events",
        "best.safetensors",
        "metrics.csv",
        "policy.safetensors",
        "result.json",
        "run.json",
    }
    run = json.loads((finished / "run.json").read_text())
    assert run["config"]["spec"]["dropout"]["p"] == 0.1
    assert run["versions"]["jax"]


def test_without_out_the_folder_says_what_it_is(capsys):
    assert train("td3", "--env", "StubPlain-v0", "--steps", "30", "--seed", "7", *TINY, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["run"] == "runs/td3_hidden=8_batch_size=8_warmup=20_StubPlain-v0_seed7"
    assert data["finished"] is True
    assert os.path.exists(data["run"] + "/policy.safetensors")  # noqa: PTH110


@pytest.mark.parametrize(
    ("env", "named", "folder"),
    [
        (
            "StubPlain-v0",
            ["me-sac+lcb", "--tuned", "--normalize-obs"],
            "me-sac+lcb_tuned_hidden=8_batch_size=8_warmup=20_StubPlain-v0_seed0",
        ),
        ("StubDiscrete-v0", ["me-dqn"], "me-dqn_hidden=8_batch_size=8_warmup=20_StubDiscrete-v0_seed0"),
    ],
)
def test_without_an_algorithm_it_is_as_if_the_recommended_one_had_been_named(env, named, folder, capsys):
    argv = ["--env", env, "--steps", "30", *TINY]
    assert train(*argv) == 0
    assert "Finished: 30 steps" in capsys.readouterr().out
    assert train(*named, *argv) == 0
    assert "Already finished: 30 steps" in (out := capsys.readouterr().out)
    assert os.listdir("runs") == [folder]
    assert ("warmup=20 (by --set; tuned: 10000)" in out) == ("--tuned" in named)
    config = json.loads(pathlib.Path("runs", folder, "run.json").read_text())["config"]
    assert config["normalize_obs"] == ("--normalize-obs" in named)
    spec = config["spec"]
    assert (spec["critic_lr"], spec["warmup"]) == (7.3e-4 if "--tuned" in named else 2.5e-4, 20)


def test_an_environment_is_needed(capsys):
    with pytest.raises(SystemExit):
        train("--steps", "10")
    assert "the following arguments are required: --env" in capsys.readouterr().err


def test_two_processes_on_one_folder(tmp_path, capsys):
    import fcntl

    folder = tmp_path / "run"
    argv = ["ddpg", "--env", "StubPlain-v0", "--steps", "30", "--out", str(folder), *TINY]
    folder.mkdir()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert train(*argv) == 2
    assert "another process is training there" in capsys.readouterr().err


def test_metrics_and_tensorboard_have_the_names_that_sb3_users_know(tmp_path):
    import csv

    folder = tmp_path / "run"
    assert train("me-sac", "--env", "StubPlain-v0", "--steps", "1000", "--out", str(folder), *TINY) == 0
    train_names = {"actor_loss", "critic_loss", "ent_coef", "ent_coef_loss", "entropy", "q", "n_updates"}
    train_names |= {"noise_one_mask", "noise_two_masks"}
    names = {"rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "time/processor_seconds"}
    names |= {f"train/{name}" for name in train_names}
    assert tensorboard(folder).keys() == names | {"eval/mean_reward", "eval/mean_ep_length"}
    (row,) = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    assert row.keys() == names | {"time/total_timesteps"}
    assert all(float(value) == float(value) for value in row.values())
    assert (row["time/total_timesteps"], row["train/n_updates"]) == ("1000", "980")


def test_several_environments_and_normalised_observations(tmp_path, capsys):
    argv = ["me-sac", "--env", "StubScaled-v0", "--steps", "120", "--eval-every", "60", *TINY]
    assert train(*argv, "--envs", "4", "--normalize-obs", "--out", "run") == 0
    assert "4 environments at a time, 1 gradient step for each step in an environment" in capsys.readouterr().out
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["envs"], config["normalize_obs"]) == (4, True)
    assert main(["eval", "run", "--episodes", "1"]) == 0
    assert train(*argv, "--envs", "2", "--normalize-obs", "--out", "run") == 2
    assert "envs=4 there, 2 here" in capsys.readouterr().err


def test_data_that_cannot_be_used_is_one_line_and_loses_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = record("StubPlain-v0", episodes=1)
    np.savez("good.npz", **columns)
    np.savez("nan.npz", **{**columns, "rewards": columns["rewards"] * np.nan})
    np.savez("other.npz", **record("Pendulum-v1", episodes=1))
    argv = ["ddpg", "--env", "StubPlain-v0", "--steps", "60", *TINY, "--out", "run"]
    for data, says in (
        (["none.npz"], "neither a file or folder none.npz nor a Minari dataset"),
        (["nan.npz"], "nan.npz: rewards holds nan in transition 0"),
        (["other.npz"], "other.npz does not fit StubPlain-v0: its actions have shape (200, 1), not (200, 2)"),
        (["good.npz", "--set", "replay_size=49"], "more than fit into the replay buffer: --set replay_size=50 or more"),
        (["good.npz", "--data-share", "2"], "data-share must be above 0 and below 1, not 2.0"),
    ):
        assert train(*argv, "--data", *data) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1
        assert not pathlib.Path("run").exists()
    assert train(*argv, "--data", "good.npz") == 0
    finished = {path: path.read_bytes() for path in pathlib.Path("run").rglob("*") if path.is_file()}
    assert train(*argv, "--data", "./good.npz") == 0, "the same data, wherever it is"
    assert "Already finished" in capsys.readouterr().out
    assert train(*argv) == 2
    assert train(*argv, "--data", "good.npz", "--data-share", "0.5") == 2
    err = capsys.readouterr().err
    assert "run holds another run (data_sha256=" in err
    assert "data_share=None there, 0.5 here" in err
    assert finished == {path: path.read_bytes() for path in pathlib.Path("run").rglob("*") if path.is_file()}


def test_a_run_that_began_with_data_and_has_no_intact_checkpoint_begins_with_it_again(tmp_path, capsys):
    np.savez(tmp_path / "data.npz", **record("StubPlain-v0", episodes=1))
    config = Config.make("ddpg", [*TINY[1:6:2]], env="StubPlain-v0", steps=1010, eval_episodes=1)
    config = replace(config, data=str(tmp_path / "data.npz"))
    options = SessionOptions(checkpoint_every=500, log=("csv",))
    for name, until in (("run", 700), ("run", None), ("whole", None)):
        if name == "run" and until is None:
            for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
                path.write_bytes(b"")
        with Session(config, tmp_path / name, options) as session:
            for step in session:
                if step.step == until:
                    session.stop(15)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
