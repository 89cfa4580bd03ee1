"""Runs that were made before stay readable: published results depend on it.

tests/data/format-2 holds a finished run and an unfinished one, as the version before the rooms wrote them.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import mepg
from mepg.cli import main

DATA = Path(__file__).parent.parent / "data" / "format-2"


@pytest.fixture
def finished(tmp_path):
    return shutil.copytree(DATA / "finished", tmp_path / "finished")


def answer(argv, capsys):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_finished_run_is_read_by_every_command(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(finished)
    (listed,) = answer(["list", run], capsys)["runs"]
    assert (listed["algorithm"], listed["step"], listed["state"]) == ("me-sac", 400, "finished")
    assert listed["return"] == json.loads((finished / "result.json").read_text())["final_return"]
    assert answer(["plot", run], capsys)["curves"] == 1
    assert answer(["report", run], capsys)["problems"] == []
    assert answer(["eval", run, "--episodes", "1"], capsys)["step"] == 400
    assert len(answer(["inspect", run, "--episodes", "1"], capsys)["runs"]) == 1
    assert answer(["export", run, "--onnx", "p.onnx", "--numpy", "p"], capsys)
    assert np.isfinite(mepg.load(finished).predict(np.zeros(3, np.float32))[0]).all()


def test_an_unfinished_run_goes_on(tmp_path, capsys):
    folder = shutil.copytree(DATA / "unfinished", tmp_path / "unfinished")
    settings = ["warmup=100", "hidden=8,8", "batch_size=8", "replay_size=1000"]
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "400", "--seed", "5", "--log", "csv", "--json"]
    argv += ["--eval-every", "200", "--eval-episodes", "1", *(word for each in settings for word in ("--set", each))]
    assert main([*argv, "--out", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "resumed at step 250" in err
    assert json.loads(out)["finished"]
    # Another processor may round otherwise; what was measured before the run went on is the same everywhere.
    before, after = (np.load(path / "evaluations.npz")["results"] for path in (DATA / "unfinished", folder))
    np.testing.assert_array_equal(after[: len(before)], before)
