"""A published run is true, or it is not."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mepg.cli import main
from mepg.storage.files import read_sealed, read_sealed_arrays, write_sealed, write_sealed_arrays
from mepg.storage.folder import Folder
from tests.training.recordings import record

TRAIN = ["--env", "Pendulum-v1", "--set", "hidden=8,8", "--set", "batch_size=8", "--log", "csv", "--json"]
TRAIN += ["--eval-every", "1500", "--eval-episodes", "2", "--set", "warmup=500"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    for seed in (0, 1):
        argv = ["train", "me-ddpg", *TRAIN, "--steps", "3000", "--seed", str(seed), "--out", str(folder / f"{seed}")]
        assert main(argv) == 0
    return folder


@pytest.fixture
def run(published, tmp_path):
    return shutil.copytree(published / "0", tmp_path / "run")


def verify(capsys, *argv):
    status = main(["verify", *map(str, argv), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out)["runs"] if out else err


def reseal(path, **changes):
    """As a forger would."""
    about = Folder(path)
    data = read_sealed(about.config_file)
    write_sealed(about.config_file, {**data, **changes})
    config = about.config()
    found = dict(np.load(about.evaluations_file))
    found["config"] = np.frombuffer(bytes.fromhex(config.fingerprint), np.uint8)
    np.savez(about.evaluations_file, **found)
    summary = {name: value for name, value in read_sealed(about.result_file).items() if name not in ("config", "files")}
    about.finish(config, summary)


def multiply(path, step, factor):
    """The critic's loss in that row of metrics.csv."""
    lines = [line.split(",") for line in (path / "metrics.csv").read_text().splitlines()]
    column = lines[0].index("train/critic_loss")
    for row in lines:
        if row[0] == str(step):
            row[column] = repr(float(row[column]) * factor)
    (path / "metrics.csv").write_text("\n".join(",".join(row) for row in lines) + "\n")


def elsewhere(path):
    return {"versions": {**read_sealed(path / "run.json")["versions"], "processor": "another"}}


def contents(path):
    return {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_what_is_true_is_true_bit_for_bit(published, capsys):
    before = contents(published)
    status, runs = verify(capsys, published / "0", published / "1", "--steps", "2500")
    assert status == 0
    for found in runs:
        assert found["exact"]
        assert found["until"] == 2000
        assert found["numbers"] > 10
        assert found["differences"] == []
    assert contents(published) == before  # nothing is written
    assert main(["verify", str(published / "0"), "--steps", "1000"]) == 0
    out = capsys.readouterr().out
    assert "agrees bit for bit" in out
    assert "nothing is learned" not in out


def test_a_lower_bound_and_an_averaged_policy_are_verified_too(tmp_path, capsys):
    argv = ["train", "me-sac+lcb", "--tuned", "--set", "policy_average.use=both", *TRAIN, "--steps", "1500"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    status, (found,) = verify(capsys, tmp_path / "run")
    assert (status, found["exact"], found["until"]) == (0, True, 1500)


def test_a_digit_that_was_altered(run, capsys):
    multiply(run, 2000, 1 + 1e-9)
    status, err = verify(capsys, run)  # not even sealed
    assert status == 2
    assert "metrics.csv does not match its checksum" in err
    reseal(run)
    status, (found,) = verify(capsys, run)
    assert status == 1
    assert not found["agrees"]
    (difference,) = found["differences"]
    assert (difference["step"], difference["name"]) == (2000, "train/critic_loss")
    assert main(["verify", str(run)]) == 1
    out = capsys.readouterr().out
    assert "does NOT agree" in out
    assert "step 2,000, train/critic_loss: " in out


def test_an_evaluation_that_was_altered(run, capsys):
    found = dict(np.load(run / "evaluations.npz"))
    found["results"][1, 0] += 1e-6
    np.savez(run / "evaluations.npz", **found)
    reseal(run)
    status, (verdict,) = verify(capsys, run)
    assert status == 1
    assert [one["name"] for one in verdict["differences"]] == ["eval/0/return"]


def test_another_seed_under_a_false_name(published, tmp_path, capsys):
    path = shutil.copytree(published / "1", tmp_path / "claimed")
    config = read_sealed(path / "run.json")["config"]
    reseal(path, config={**config, "seed": 0})
    status, (found,) = verify(capsys, path)
    assert status == 1
    assert found["until"] == 1000


def test_computed_elsewhere(run, capsys):
    """Bits differ there: compared within a tolerance, until roundings have grown."""
    true = (run / "metrics.csv").read_text()
    multiply(run, 1000, 1 + 1e-6)
    reseal(run, **elsewhere(run))
    status, (found,) = verify(capsys, run)
    assert (status, found["exact"], found["agrees"], found["until"]) == (0, False, True, 3000)
    assert any("processor: another then" in line for line in found["elsewhere"])
    assert main(["verify", str(run)]) == 0
    out = capsys.readouterr().out
    assert "all but 1 bit for bit" in out
    assert "step 1,000, train/critic_loss: " in out  # which
    multiply(run, 2000, 1.5)
    reseal(run)
    status, (found,) = verify(capsys, run)
    assert (status, found["agrees"], found["until"]) == (0, True, 2000)
    assert main(["verify", str(run)]) == 0
    assert "agrees to 0.1%, computed elsewhere, until step 2,000" in capsys.readouterr().out
    (run / "metrics.csv").write_text(true)
    multiply(run, 2000, 1.5)  # now all agree bit for bit up to there: rounding would have begun before
    reseal(run)
    status, (found,) = verify(capsys, run)
    assert (status, found["agrees"], found["until"]) == (1, False, 2000)
    multiply(run, 1000, 1.5)  # of the first thousand steps, of which half learned: no machine rounds like that
    reseal(run)
    status, (found,) = verify(capsys, run)
    assert (status, found["agrees"], found["until"]) == (1, False, 1000)


def test_what_cannot_be_verified(run, tmp_path, capsys):
    for argv, says in (
        ([run, "--steps", "999"], "has no published numbers before step 1,000"),
        ([run, "--steps", "0"], "steps must be in [1, 10^9]"),
        ([tmp_path], "holds no run"),
    ):
        status, err = verify(capsys, *argv)
        assert status == 2
        assert says in err
    (run / "result.json").unlink()
    status, err = verify(capsys, run)
    assert status == 2
    assert "holds an unfinished run" in err


POLICIES = ["policy.safetensors", "best.safetensors"]


def test_the_policies_are_compared_at_their_steps_and_played_before(published, capsys):
    for steps, compared in (
        ("3000", r"[\d,]+ numbers of step 3,000"),
        ("1000", "2 episodes, played on the seeds of step 3,000"),
    ):
        status, (found,) = verify(capsys, published / "0", "--steps", steps)
        assert status == 0
        assert sorted(one["file"] for one in found["policies"]) == sorted(POLICIES)
        assert all(one["agrees"] and one["exact"] for one in found["policies"])
        (last,) = [one["found"] for one in found["policies"] if one["file"] == "policy.safetensors"]
        assert re.fullmatch(f"agrees bit for bit: {compared}", last)


def test_no_policy_is_published(run, capsys):
    for name in POLICIES:
        (run / name).unlink()
    assert main(["verify", str(run), "--steps", "1000"]) == 0
    out = capsys.readouterr().out
    assert "agrees bit for bit" in out
    assert "policy.safetensors is not published with this run" in out


def forge(file, arrays, **about):
    """Put these arrays into a file that says it is still this run's."""
    write_sealed_arrays(file, arrays, {**read_sealed_arrays(file)[1], **about})


@pytest.mark.parametrize(
    ("steps", "found"), [("1000", " when it is played: step 3,000, eval/"), ("3000", ": step 3,000, agent.")]
)
def test_the_policies_of_another_seed(published, run, capsys, steps, found):
    for name in POLICIES:
        forge(run / name, read_sealed_arrays(published / "1" / name)[0])
    assert main(["verify", str(run), "--steps", steps]) == 1
    out = capsys.readouterr().out
    assert "does NOT agree: policy.safetensors and best.safetensors" in out
    assert f"  policy.safetensors does NOT agree{found}" in out
    assert "  best.safetensors does NOT agree" in out


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_says_it_is_anothers(published, run, capsys, name):
    shutil.copy(published / "1" / name, run / name)
    status, (found,) = verify(capsys, run, "--steps", "1000")
    assert status == 1
    assert [one["found"] for one in found["policies"] if not one["agrees"]] == [
        f"does NOT agree: {name} is another run's"
    ]
    assert found["differences"] == []


def test_what_a_policy_says_about_itself(run, capsys):
    for name, about in (("policy.safetensors", {"step": 2000}), ("best.safetensors", {"return": 0.0})):
        forge(run / name, read_sealed_arrays(run / name)[0], **about)
    status, (found,) = verify(capsys, run, "--steps", "1000")
    assert status == 1
    step, claim = (one["found"] for one in found["policies"])
    assert step == "does NOT agree: it is of step 2,000, not 3,000"
    assert claim.startswith("does NOT agree: it claims a return of 0.0, and its evaluation has -")


def test_a_policy_computed_elsewhere(run, capsys):
    file = run / "policy.safetensors"
    arrays = read_sealed_arrays(file)[0]
    forge(file, {name: (array * (1 + 1e-6)).astype(array.dtype) for name, array in arrays.items()})
    reseal(run, **elsewhere(run))
    for steps, evaluated in (("1000", False), ("1500", True), ("3000", True)):
        status, (found,) = verify(capsys, run, "--steps", steps)
        # That all else is the same bit for bit says something about rounding once there were evaluations.
        assert (status, found["differences"]) == (1 if evaluated else 0, [])
    multiply(run, 1000, 1 + 1e-6)
    reseal(run)
    for steps, says in (("1000", "computed elsewhere: 2 episodes"), ("3000", "agrees to 0.1%, computed elsewhere: ")):
        status, (found,) = verify(capsys, run, "--steps", steps)
        assert (status, found["exact"], found["agrees"]) == (0, False, True)
        (last,) = [one for one in found["policies"] if one["file"] == file.name]
        assert (last["exact"], last["agrees"]) == (False, True)
        assert says in last["found"]


@pytest.mark.parametrize("share", [[], ["--data-share", "0.5"]])
def test_a_run_that_began_with_data(share, tmp_path, capsys):
    """It is asked for where it is not found, and where it is another."""
    columns, run, here = record("Pendulum-v1", episodes=1), tmp_path / "run", tmp_path / "here.npz"
    np.savez(here, **columns)
    steps = ["--steps", "1500", "--out", str(run)]
    assert main(["train", "me-ddpg", *TRAIN, *steps, "--data", str(here), *share]) == 0
    capsys.readouterr()
    status, (found,) = verify(capsys, run)
    assert (status, found["exact"]) == (0, True)
    here.rename(tmp_path / "there.npz")
    status, err = verify(capsys, run)
    assert status == 2
    assert f"{run} began with data: data: there is neither a file or folder {here}" in err
    assert err.endswith("; --data PATH says where it is now\n")
    assert err.count("\n") == 1
    status, (found,) = verify(capsys, run, "--data", tmp_path / "there.npz")
    assert (status, found["exact"]) == (0, True)
    columns["rewards"] = columns["rewards"] + 1
    np.savez(here, **columns)
    status, err = verify(capsys, run)
    assert status == 2
    assert "here.npz is not the data that this run began with" in err


def test_a_run_that_began_without_data(run, capsys):
    status, err = verify(capsys, run, "--data", "here.npz")
    assert (status, err) == (2, f"mepg: {run} began without data: leave out --data\n")


def test_in_a_process_of_its_own_weights_have_the_bits_of_training(tmp_path):
    """OpenBLAS, which factorises orthogonal weights of this size, rounds by its number of threads: one in both."""
    mepg = [sys.executable, "-m", "mepg"]
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "1000", "--eval-every", "1000", "--out", "run"]
    subprocess.run([*mepg, *argv], cwd=tmp_path, env=env, check=True, capture_output=True)
    done = subprocess.run([*mepg, "verify", "run"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "agrees bit for bit" in done.stdout, done.stdout
