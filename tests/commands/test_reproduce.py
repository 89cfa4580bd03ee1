"""mepg reproduce, from the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mepg.cli import main

ONE = ["table1", "--plan", "smoke", "--only", "me-ddpg", "--envs", "HopperBulletEnv-v0", "--seeds", "0"]


def reproduce(capsys, *argv):
    status = main(["reproduce", *argv, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_from_nothing_to_finished(capsys, tmp_path):
    status, plan = reproduce(capsys, *ONE, "--dry-run")
    assert status == 0
    assert (plan["runs"], plan["finished"], plan["missing"]) == (1, 0, 1)
    assert plan["seconds"] > 0
    assert not list(tmp_path.iterdir()), "a dry run writes nothing"
    status, done = reproduce(capsys, *ONE)
    assert (status, done["runs"], done["finished"], done["failed"]) == (0, 1, 1, [])
    result = tmp_path / "results" / "smoke" / "me-ddpg_HopperBulletEnv-v0_seed0" / "result.json"
    before = result.stat().st_mtime_ns
    status, again = reproduce(capsys, *ONE)
    assert (status, again["finished"]) == (0, 1)
    assert result.stat().st_mtime_ns == before
    whole = result.read_bytes()
    result.write_text("{")  # damaged: named, and the rest is carried out
    two = [*ONE[:4], "me-ddpg,ddpg", *ONE[5:]]
    status, rest = reproduce(capsys, *two)
    assert (status, rest["runs"], rest["finished"]) == (1, 2, 1)
    assert "result is damaged" in rest["failed"][0]["reason"]
    page = (tmp_path / "results" / "smoke.html").read_text()
    assert "result is damaged" in page
    result.write_bytes(whole)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    _, plan = reproduce(capsys, "table11", *ONE[1:], "--dry-run")  # p = 0.1 among twelve is the same run
    assert (plan["runs"], plan["finished"]) == (12, 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.slow
def test_on_a_backend(capsys, tmp_path, native):
    status, _ = reproduce(capsys, *ONE, "--backend", "native")
    about = json.loads((tmp_path / "results" / "smoke" / "me-ddpg_HopperBulletEnv-v0_seed0" / "run.json").read_text())
    assert (status, about["config"]["backend"]) == (0, "native")
    status, again = reproduce(capsys, *ONE)  # whatever computed it
    assert (status, again["finished"]) == (0, 1)
    assert main(["reproduce", *ONE, "--backend", "numpy"]) == 2
    assert "auto, native or xla" in capsys.readouterr().err


def test_parameters_need_no_runs(capsys):
    status, done = reproduce(capsys, "table10")
    assert (status, done["runs"]) == (0, 0)


def test_interrupted_it_saves_and_says_how_to_go_on(tmp_path):
    argv = [sys.executable, "-m", "mepg", "reproduce", *ONE, "--steps", "50000"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = tmp_path / "results" / "smoke-50000" / "me-ddpg_HopperBulletEnv-v0_seed0"
    while not list((run / "checkpoints").glob("*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    second = subprocess.run(argv, capture_output=True, text=True)
    assert second.returncode == 2
    assert "in use" in second.stderr
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues" in out
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["tabel1"], "did you mean 'table1'?"),
        (["table1", "--plan", "dessk"], "did you mean 'desk'?"),
        (["table1", "--only", "me-sacc"], "did you mean 'me-sac'?"),
        (["table1", "--envs", "HopperBulletEnv-v1"], "did you mean 'HopperBulletEnv-v0'?"),
        (["table1", "--tuned"], "ace has no tuned settings"),
        (["table1", "--workers", "1000"], "workers must be in"),
        (["table1", "--address", "auto"], "--address is a Ray cluster's: add --engine ray"),
        (["table1", "--engine", "ray", "--workers", "2"], "--workers is for this machine"),
    ],
)
def test_bad_input_is_one_line(argv, says, capsys):
    assert main(["reproduce", *argv]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
