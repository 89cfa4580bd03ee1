"""mepg export, mostly when something is wrong."""

import os
import shutil
import signal

import pytest

from mepg.cli import main
from mepg.run.session import Session
from mepg.training.config import Config


def test_an_unfinished_run_exports_its_newest_checkpoint_and_says_so(tmp_path, capsys):
    run = tmp_path / "unfinished"
    settings = ["hidden=8,8", "batch_size=8", "warmup=20"]
    config = Config.make("me-sac", settings, env="StubScaled-v0", steps=6000, eval_every=50, eval_episodes=1)
    with Session(config, run) as session:
        for record in session:
            if record.step == 60:
                session.stop(signal.SIGTERM)
    assert main(["export", str(run), "--numpy", "plain", "--card"]) == 0
    assert "the run is unfinished, this is its policy at step 60" in capsys.readouterr().out
    assert "unfinished: of 6,000" in (run / "README.md").read_text()
    shutil.rmtree(run / "checkpoints")
    assert main(["export", str(run), "--numpy", "other"]) == 2
    assert "has not reached a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["policy.safetensors", "run.json", "evaluations.npz"])
def test_a_damaged_run_is_refused_by_name(finished, name, tmp_path, capsys):
    run = tmp_path / "damaged"
    shutil.copytree(finished, run)
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: len(content) // 2])
    assert main(["export", str(run), "--card", "card.md"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "damaged" in err
    assert not (tmp_path / "card.md").exists()


def test_nothing_is_put_in_the_place_of_something_else(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    before = (run / "run.json").read_bytes()
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "folder.h").mkdir()
    os.mkfifo(tmp_path / "pipe.onnx")
    for argv, says in (
        (["--onnx", str(run / "run.json")], "ends in .onnx"),
        (["--card", str(run / "run.json")], "ends in .md"),
        (["--c", str(run / "run.json")], "ends in .h"),
        (["--c", "folder.h"], "folder.h exists and is not a file"),
        (["--onnx", "folder.onnx"], "folder.onnx exists and is not a file"),
        (["--onnx", "pipe.onnx"], "pipe.onnx exists and is not a file"),
        (["--numpy", str(run / "run.json")], "cannot be written"),
        (["--env", "Other-v0", "--numpy", "x"], "names the environment StubScaled-v0, not Other-v0"),
    ):
        assert main(["export", str(run), *argv]) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1
    assert (run / "run.json").read_bytes() == before
    assert not list(tmp_path.rglob(".*.writing"))


def test_bad_input(finished, capsys):
    assert main(["export", str(finished)]) == 2
    assert "nothing to write: give --onnx FILE" in capsys.readouterr().err
    assert main(["export", "nowhere", "--numpy", "x"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
