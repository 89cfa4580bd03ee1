"""A session of a run, in this process; test_resume.py kills real ones."""

import csv
import json
import signal
from dataclasses import replace

import gymnasium
import jax
import pytest

from mepg.errors import RunFailure, UsageError
from mepg.run import session as module
from mepg.run.session import Session, summary
from mepg.storage.checkpoint import TimeSpent
from mepg.training.config import Config, SessionOptions
from mepg.training.evaluate import Episode
from tests.envs.own import Box
from tests.run import stubs  # noqa: F401
from tests.run.processes import assert_same_run, checkpoints

SETTINGS = ["hidden=8", "batch_size=8", "warmup=20"]
CONFIG = Config.make("ddpg", SETTINGS, env="StubPlain-v0", steps=1000, eval_every=500, eval_episodes=2)
SITTING = SessionOptions(checkpoint_every=400, log=("csv",))


def sit(path, upto=None, config=CONFIG):
    with Session(config, path, SITTING) as session:
        for record in session:
            if record.step == upto:
                session.stop(signal.SIGTERM)
    return session


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session") / "whole"
    return folder, sit(folder)


def test_stopped_it_saves_and_the_next_goes_on_to_the_same_bits(whole, tmp_path):
    first = sit(tmp_path / "a", upto=437)
    assert (first.stopped_by, first.result) == ("SIGTERM", None)
    assert checkpoints(tmp_path / "a") == {"000000400.json", "000000437.json"}
    second = sit(tmp_path / "a")
    assert second.started_at == 437
    assert any("resumed at step 437" in note for note in second.notes)
    assert_same_run(whole[0], tmp_path / "a")


def test_a_finished_run_has_nothing_left_to_do(whole):
    folder, session = whole
    assert session.result["steps"] == 1000
    assert session.latest["time/total_timesteps"] == 1000
    assert not (folder / "replay").exists()
    with pytest.raises(UsageError, match="holds this run, finished: there is nothing left to do"):
        Session(CONFIG, folder)


class Clock:
    """Processor time that passes when the test says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.process_time", lambda: self.now)


def processor_seconds(folder):
    lines = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    return [line["time/processor_seconds"] for line in lines]


def test_processor_time_adds_up_over_sittings_and_kills(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    config = replace(CONFIG, steps=2000, eval_every=2000)

    def sit_for(seconds, upto, **how):
        with Session(config, tmp_path / "a", SITTING) as session:
            for record in session:
                clock.now += seconds
                if record.step == upto:
                    if how.get("killed"):
                        return
                    session.stop(signal.SIGTERM)

    clock.now = 1e6  # before the run
    sit_for(0.5, 1000)
    assert processor_seconds(tmp_path / "a") == ["499.5"]  # the row is written before the clock moves on
    clock.now = 5.0  # another process
    sit_for(0.25, 1300, killed=True)  # at 1,200 there is a checkpoint: what came after it is done again
    clock.now = 7.0
    sit_for(0.25, None)
    assert processor_seconds(tmp_path / "a") == ["499.5", "749.75"]
    assert json.loads((tmp_path / "a" / "result.json").read_text())["processor_seconds"] == 750.0


def test_evaluations_are_no_part_of_processor_time(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)

    def play(*_):
        clock.now += 100.0
        return Episode(1.0, 1)

    monkeypatch.setattr("mepg.training.loop.play", play)
    session = sit(tmp_path / "a")
    assert session.result["processor_seconds"] == 0.0


def test_versions_that_have_changed_are_said(tmp_path, monkeypatch):
    sit(tmp_path / "a", upto=5)
    monkeypatch.setattr(module, "versions", lambda _: {"jax": "99.0"})
    session = sit(tmp_path / "a", upto=6)
    (note,) = [note for note in session.notes if "versions" in note]
    assert "-> 99.0): bits may differ" in note


def test_what_the_machine_lacks_is_said_with_the_step(tmp_path, monkeypatch):
    with Session(CONFIG, tmp_path / "a", SITTING) as session:
        records = iter(session)
        for _ in range(7):
            next(records)
        full = OSError(28, "No space left on device")
        monkeypatch.setattr(session.checkpoints, "save", lambda *_: (_ for _ in ()).throw(full))
        session.stop(signal.SIGTERM)
        with pytest.raises(RunFailure, match=r"step 7: .* cannot be written: No space left on device; what was saved"):
            next(records)

    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 TB\nmore")

    monkeypatch.setattr(module, "open_loop", exhausted)
    with pytest.raises(UsageError, match=r"^this run does not fit .* 9 TB; a smaller replay buffer needs less: \S"):
        Session(CONFIG, tmp_path / "b", SITTING)
    assert not (tmp_path / "b").exists()


def test_what_a_run_came_to_by_hand():
    means = [5.0, 1.0, 2.0, 9.0, 3.0, 4.0, 7.0]
    evaluations = {100 * i: [Episode(mean - 1, 5), Episode(mean + 1, 5)] for i, mean in enumerate(means, 1)}
    assert summary(evaluations, TimeSpent(12.34, 5.67, 8.91)) == {
        "steps": 700,
        "final_return": 7.0,
        "final_return_std": 1.0,
        "best_return": 9.0,
        "mean_of_five_best": (9 + 7 + 5 + 4 + 3) / 5,
        "evaluations": 7,
        "seconds": 12.3,
        "eval_seconds": 5.7,
        "processor_seconds": 8.9,
    }


def test_statistics_that_are_not_saved_are_noted(tmp_path):
    wrapper = gymnasium.wrappers.NormalizeReward.wrapper_spec()
    gymnasium.register("StubScaled-v1", entry_point=Box, additional_wrappers=(wrapper,))
    session = sit(tmp_path / "run", upto=1, config=replace(CONFIG, env="StubScaled-v1"))
    (note,) = [note for note in session.notes if "wrapped" in note]
    assert "StubScaled-v1 is wrapped in NormalizeReward: evaluations have statistics of their own" in note
