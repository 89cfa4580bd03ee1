"""A run that is made longer has the bits of one that was asked for at once."""

import random
import shutil
import signal
from dataclasses import replace

import pytest

from mepg.cli import main
from mepg.errors import UsageError
from mepg.run import session as module
from mepg.run.session import Session
from mepg.storage.folder import Folder
from mepg.training.config import Config, SessionOptions
from mepg.training.evaluate import Episode
from mepg.training.loop import Loop
from tests.conftest import HOPPER
from tests.run import stubs  # noqa: F401
from tests.run.processes import assert_same_run, command, finish, kill_after_progress, run

SETTINGS = ["hidden=8", "batch_size=8", "warmup=20"]
# It ends between two evaluations: at its last step there is one that a longer run does not have.
SHORT = Config.make("ddpg", SETTINGS, env="StubPlain-v0", steps=1130, eval_every=500, eval_episodes=2)
LONG = replace(SHORT, steps=2200)
KEEP = SessionOptions(checkpoint_every=400, log=("csv",), keep_replay=True)


def sit(config, path, options=KEEP):
    with Session(config, path, options) as session:
        for _ in session:
            pass
    return session


def assert_same(a, b):
    assert_same_run(a, b)
    for name in ("policy.safetensors", "best.safetensors", "evaluations.npz"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert Folder(a).config() == Folder(b).config()


@pytest.fixture
def best_at_the_old_end(monkeypatch):
    """No evaluation is as good as the one at the short run's last step."""

    def evaluate(loop):
        loop.evaluations[loop.step] = [Episode(9.0 if loop.step == SHORT.steps else loop.step / 1e3, 1)] * 2
        return loop.evaluations[loop.step]

    monkeypatch.setattr(Loop, "evaluate", evaluate)


def test_the_same_bits_as_at_once(tmp_path, best_at_the_old_end):
    path = tmp_path / "longer"
    assert sit(SHORT, path).result["best_return"] == 9
    assert module.best_step(Folder(path)) == SHORT.steps
    for file in ("inspect.json", "curve.png"):
        (path / file).write_text("of the shorter run")
    longer = sit(LONG, path, replace(KEEP, keep_replay=False))
    assert longer.started_at == SHORT.steps
    assert_same(tmp_path / "longer", sit(LONG, tmp_path / "once").folder.path)
    assert not any((path / name).exists() for name in ("replay", "inspect.json", "curve.png"))


def test_twice_longer_and_before_the_first_evaluation(tmp_path, best_at_the_old_end):
    for steps in (90, 1130, 2200):
        sit(replace(SHORT, steps=steps), tmp_path / "longer")
    assert_same(tmp_path / "longer", sit(LONG, tmp_path / "once").folder.path)


@pytest.mark.faults
def test_a_process_may_die_at_any_point_of_it(tmp_path, best_at_the_old_end, monkeypatch):
    sit(SHORT, tmp_path / "short")
    once = sit(LONG, tmp_path / "once").folder.path
    points = [(Folder, "write_evaluations"), (Folder, "set_steps"), (module, "best_step"), (module, "open_logs")]
    for where, name in points:
        for again in (SHORT, LONG):
            path = shutil.copytree(tmp_path / "short", tmp_path / f"{name}-{again.steps}")
            with monkeypatch.context() as patch:
                patch.setattr(where, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    sit(LONG, path)
            if Folder(path).config().steps == LONG.steps and again is SHORT:
                with pytest.raises(UsageError, match="a run cannot be made shorter"):
                    sit(again, path)
            else:
                sit(again, path)
                assert_same(path, once if again is LONG else tmp_path / "short")


def test_an_unfinished_run_too_and_others_see_that_it_is_in_use(tmp_path):
    path = tmp_path / "longer"
    with Session(SHORT, path, KEEP) as session:
        for record in session:
            if record.step == 700:
                session.stop(signal.SIGTERM)
    with Session(LONG, path, KEEP) as session:
        assert session.started_at == 700
        assert Folder(path).in_use()
        (path / ".lock").unlink()
        with pytest.raises(UsageError, match="another process is training there"):
            Session(LONG, path, KEEP)
        for _ in session:
            pass
    assert_same(path, sit(LONG, tmp_path / "once").folder.path)


def test_without_its_replay_memory_it_is_one_line_and_nothing_changes(tmp_path, capsys):
    path = tmp_path / "run"
    argv = ["train", "ddpg", "--env", "StubPlain-v0", "--out", str(path), "--eval-every", "50", "--log", "csv"]
    argv += [word for each in SETTINGS for word in ("--set", each)]
    assert main([*argv, "--steps", "100"]) == 0
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert main([*argv, "--steps", "200"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "finished after 100 steps without --keep-replay: it cannot be made longer" in line
    assert main([*argv, "--steps", "50"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds this run with 100 steps, and a run cannot be made shorter: --steps 100 or more" in line
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_what_is_kept_is_said_and_damage_to_it_leaves_the_finished_run_as_it_was(tmp_path, capsys):
    path = tmp_path / "run"
    argv = ["train", "ddpg", "--env", "StubPlain-v0", "--out", str(path), "--eval-every", "50", "--log", "csv"]
    argv += [word for each in SETTINGS for word in ("--set", each)]
    assert main([*argv, "--steps", "100", "--keep-replay"]) == 0
    assert "replay, 0.0 MB: the same command with more --steps makes this run longer" in capsys.readouterr().out
    for piece in (path / "replay").glob("*.safetensors"):
        piece.write_bytes(b"damaged")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert main([*argv, "--steps", "200"]) == 2
    assert "cannot be made longer: its checkpoints are damaged" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert main([*argv, "--steps", "100"]) == 0


@pytest.mark.faults
def test_kill_9_in_the_longer_part(tmp_path):
    def argv(out, steps):
        return command("me-sac", HOPPER, out, steps=steps, settings=["replay_size=400"], extra=["--keep-replay"])

    rng = random.Random(20)
    finish(argv(tmp_path / "killed", 700))
    kills = 0
    for _ in range(3):
        status, _, err = kill_after_progress(argv(tmp_path / "killed", 1700), tmp_path / "killed", rng.uniform(0, 0.25))
        kills += status == -signal.SIGKILL
        assert status in (0, -signal.SIGKILL), err
    assert kills >= 2, "the runs were too short to be killed"
    assert run(argv(tmp_path / "killed", 1700)).returncode == 0
    finish(argv(tmp_path / "once", 1700))
    assert_same(tmp_path / "once", tmp_path / "killed")
