"""Where metrics go: each place for real, Weights & Biases offline."""

import csv
import time

import pytest

from mepg.cli import main
from mepg.errors import UsageError
from mepg.storage.logs import Csv, TensorBoard
from tests.run.processes import tensorboard

TINY = [
    "--set",
    "hidden=8",
    "--set",
    "batch_size=8",
    "--set",
    "warmup=20",
    "--eval-episodes",
    "1",
    "--eval-every",
    "500",
]


def train(folder, *argv):
    common = ["--env", "Pendulum-v1", "--steps", "1000", "--out", str(folder)]
    return main(["train", "me-ddpg", *common, *TINY, *argv])


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def test_weights_and_biases_and_csv_but_no_tensorboard(tmp_path):
    pytest.importorskip("wandb")
    run = tmp_path / "run"
    assert train(run, "--log", "csv,wandb") == 0
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["time/total_timesteps"] for row in rows] == ["1000"]
    assert float(rows[0]["train/critic_loss"]) > 0
    assert not list(run.glob("events.out.*"))
    (written,) = run.glob("wandb/offline-run-*/run-*.wandb")
    names = (b"train/critic_loss", b"eval/mean_reward", b"rollout/ep_rew_mean")
    for _ in range(600):  # a process of its own writes the file, in its own time
        if all(name in written.read_bytes() for name in names):
            break
        time.sleep(0.1)
    assert all(name in written.read_bytes() for name in names)


def test_none_but_tensorboard(tmp_path):
    assert train(tmp_path / "run", "--log", "tensorboard") == 0
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert list((tmp_path / "run").glob("events.out.*"))


def test_an_unknown_log_is_one_line(tmp_path, capsys):
    assert train(tmp_path / "run", "--log", "tensorbord") == 2
    assert (
        "unknown log 'tensorbord'; did you mean 'tensorboard'? (known: csv, tensorboard, wandb)"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_without_wandb_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    assert train(tmp_path / "run", "--log", "wandb") == 2
    assert "pip install 'mepg[wandb]'" in capsys.readouterr().err


def test_tensorboard_shows_one_curve_after_a_resume_with_the_clock_set_back(tmp_path, monkeypatch):
    """Files are read in the order of their names; in the same second there must be two of them as well."""
    for began, upto, steps in ((2e9, 0, (1, 2, 3)), (2e9, 2, (3, 4, 5)), (1e9, 4, (5, 6))):
        monkeypatch.setattr(time, "time", lambda began=began: began)
        log = TensorBoard(tmp_path, upto)
        for step in steps:
            log.add({"train/q": 0.5}, step)
        log.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert tensorboard(tmp_path) == {"train/q": [1, 2, 3, 4, 5, 6]}


def test_metrics_go_on_where_the_checkpoint_stood(tmp_path):
    path, columns = tmp_path / "metrics.csv", ["time/total_timesteps", "train/q"]
    log = Csv(tmp_path, columns, 0)
    for step in (1000, 2000, 3000):
        log.add({"train/q": step / 2}, step)
    log.close()
    path.write_text(path.read_text() + "40")  # killed in the middle of a row
    again = Csv(tmp_path, columns, 2000)
    again.add({}, 3000)
    again.close()
    assert path.read_text() == "time/total_timesteps,train/q\n1000,500.0\n2000,1000.0\n3000,\n"
    Csv(tmp_path, columns, 0).close()
    assert path.read_text() == "time/total_timesteps,train/q\n", "from the beginning, nothing is kept"


def test_metrics_that_another_version_began_are_kept(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("time/total_timesteps,train/gone,train/q\n1000,7,0.5\n2000,8,0.25\n")
    log = Csv(tmp_path, ["time/total_timesteps", "train/q", "time/new"], 1000)
    log.add({"train/q": 0.75, "time/new": 3}, 2000)
    log.close()
    assert path.read_text() == "time/total_timesteps,train/q,time/new\n1000,0.5,\n2000,0.75,3\n"


def test_metrics_that_cannot_be_read_are_one_line(tmp_path):
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(UsageError, match=r"cannot be continued: metrics\.csv is not a file; move it away"):
        Csv(tmp_path, ["time/total_timesteps"], 1000)


def test_evaluations_are_not_metrics_and_a_metric_without_a_column_is_an_error(tmp_path):
    log = Csv(tmp_path, ["time/total_timesteps", "train/q"], 0)
    log.add({"eval/mean_reward": 1.0}, 500)
    with pytest.raises(ValueError, match="train/new"):
        log.add({"train/q": 0.5, "train/new": 1.0}, 1000)
    log.close()
    assert (tmp_path / "metrics.csv").read_text() == "time/total_timesteps,train/q\n"
