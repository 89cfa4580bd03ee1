"""A run keeps its last policy, and that of its best evaluation."""

import json

import numpy as np
import pytest

import mepg
from mepg.cli import main
from mepg.errors import UsageError
from mepg.run import session as sessions
from mepg.run.session import mean_returns
from mepg.storage.folder import Folder

TRAIN = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "600", "--set", "warmup=100", "--set", "hidden=8,8"]
TRAIN += ["--set", "batch_size=8", "--eval-every", "100", "--eval-episodes", "1", "--log", "csv", "--json"]
OBS = np.array([1.0, 0.0, 0.5], np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("best") / "run"
    assert main([*TRAIN, "--out", str(folder)]) == 0
    return folder


def evaluate(run, capsys, *argv):
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "1", "--json", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_best_evaluation_is_kept(run, capsys):
    folder = Folder(run)
    evaluations = folder.evaluations(folder.config())
    means = dict(zip(evaluations, mean_returns(evaluations), strict=True))
    best = max(means, key=means.get)
    assert evaluate(run, capsys, "--best")["step"] == best
    assert evaluate(run, capsys)["step"] == 600
    assert main(["eval", str(run), "--episodes", "1", "--best"]) == 0
    assert f"its best evaluation so far, {means[best]:,.1f} at step {best}" in capsys.readouterr().out


def test_it_is_the_policy_that_was_evaluated(run, monkeypatch):
    """The same episode with the same policy gives the same return."""
    from mepg.envs.env import Env
    from mepg.storage.policy import load_policy
    from mepg.training.evaluate import play
    from mepg.training.keys import episode_seed

    env, folder = Env("Pendulum-v1"), Folder(run)
    policy = load_policy(folder, env.spaces, best=True)
    again = play(policy.act, env, episode_seed(0, "eval", policy.step, 0))
    assert again.return_ == pytest.approx(policy.best_return, abs=1e-4)


def test_it_is_the_same_after_a_kill(run, tmp_path, monkeypatch):
    keep = sessions.Session._write_record

    def stop_after(self, record):
        keep(self, record)
        if record.step == 350:
            self.stop(15)

    with monkeypatch.context() as patch:
        patch.setattr(sessions.Session, "_write_record", stop_after)
        assert main([*TRAIN, "--out", str(tmp_path / "run")]) == 143
    assert main([*TRAIN, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == (run / "best.safetensors").read_bytes()


def test_best_from_python_and_export(run, tmp_path, capsys):
    model, last = mepg.load(run, best=True), mepg.load(run)
    assert model.num_timesteps == evaluate(run, capsys, "--best")["step"]
    assert main(["export", str(run), "--best", "--numpy", str(tmp_path / "policy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == model.num_timesteps
    action, _ = model.predict(OBS, deterministic=True)
    if model.num_timesteps != last.num_timesteps:
        assert not np.array_equal(action, last.predict(OBS, deterministic=True)[0])
    model.set_env("Pendulum-v1")
    model.learn(150, reset_num_timesteps=False)  # its targets are there, and its Adam begins anew
    assert np.isfinite(model.predict(OBS)[0]).all()
    model.save(tmp_path / "model")
    with pytest.raises(UsageError, match="is not the folder of a run"):
        mepg.load(tmp_path / "model", best=True)


def test_a_run_without_one_says_so(run, tmp_path, capsys):
    import shutil

    path = shutil.copytree(run, tmp_path / "run")
    (path / "best.safetensors").write_bytes((path / "best.safetensors").read_bytes()[:-1] + b"?")
    assert main(["eval", str(path), "--best"]) == 2
    assert "holds a damaged policy" in capsys.readouterr().err
    (path / "best.safetensors").unlink()
    assert main(["eval", str(path), "--best"]) == 2
    assert "holds no best.safetensors" in capsys.readouterr().err
