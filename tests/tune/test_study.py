"""A study: what is proposed, what is kept, and what a kill cannot take away."""

import json

import pytest

from mepg.algos import algorithms
from mepg.errors import UsageError
from mepg.storage.folder import Folder
from mepg.tune import study
from mepg.tune.space import Choice, parse_space
from tests.conftest import SPACES
from tests.tune.studies import ME_SAC, Quick, objective, rising_to, tune


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(study, "REPORT_EVERY", -1.0)
    monkeypatch.setattr("mepg.scheduler.schedule.POLL_INTERVAL", 0.0)


def test_a_study_finds_the_better_end_and_prunes_the_worse(tmp_path, at_once):
    pytest.importorskip("optuna")
    engine = Quick(rising_to)
    found, trials = tune(tmp_path / "a", engine, 25)
    counts = found.counts()
    assert counts["complete"] + counts["given_up"] == 25
    assert counts["given_up"] >= 3
    best = found.best()
    (p,) = [float(setting.partition("=")[2]) for setting in best.settings]
    assert p < 0.05
    # The mean over seeds 0 and 1 of the last five of eight evaluations.
    assert best.score == pytest.approx(100 * (1 - p) * (4 + 5 + 6 + 7 + 8) / 40 + 1)
    pruned = [trial for trial in trials if trial.state == "PRUNED"]
    assert all(float(trial.settings[0].partition("=")[2]) > p for trial in pruned)
    content = json.loads((tmp_path / "a" / "best.json").read_text())
    assert content["set"] == ["warmup=10", *best.settings]
    assert content["about"]["score"] == best.score
    launched = len(engine.launched)
    again, _ = tune(tmp_path / "a", engine, 25)  # the same objective: nothing is left to do
    assert len(engine.launched) == launched
    more, _ = tune(tmp_path / "a", engine, 27)
    assert len(engine.launched) == launched + 4
    assert (again.best().number, sum(more.counts().values())) == (best.number, 27)


def test_a_trial_whose_run_fails_is_no_result_and_stops_no_other(tmp_path, at_once):
    pytest.importorskip("optuna")
    engine = Quick(rising_to, fail=lambda config: config.spec.dropout.p > 0.25)
    (tmp_path / "a" / "logs").mkdir(parents=True)
    found, trials = tune(tmp_path / "a", engine, 8)
    failed = [trial for trial in trials if trial.score is None]
    assert failed
    assert all(trial.reason == "it ended with status 1" for trial in failed)
    assert found.counts()["failed"] == len(failed)
    assert found.best().score is not None


def test_settings_that_do_not_go_together_fail_by_themselves(tmp_path, at_once):
    pytest.importorskip("optuna")
    spaces = parse_space(algorithms()["redq"].spec, ["critics=2:10", "subset=2:10"])
    found, trials = tune(tmp_path / "a", Quick(lambda config, step: 1.0), 8, algorithm="redq", space=spaces)
    assert any("subset must be in" in trial.reason for trial in trials)
    assert found.best() is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 3}, "holds another study (seeds: 2 there, 3 here); choose another --out"),
        ({"env": "Other-v0"}, "env: Pendulum-v1 there, Other-v0 here"),
        ({"space": {"discount": Choice(("0.9", "0.99"))}}, "holds another study (space"),
    ],
)
def test_a_journal_of_another_study_is_refused(tmp_path, at_once, changes, says):
    pytest.importorskip("optuna")
    tune(tmp_path / "a", Quick(rising_to), 1)
    before = (tmp_path / "a" / "journal.log").read_bytes()
    with pytest.raises(UsageError) as error:
        tune(tmp_path / "a", Quick(rising_to), 2, **changes)
    assert says in str(error.value)
    assert (tmp_path / "a" / "journal.log").read_bytes() == before


def test_a_study_from_before_a_setting_goes_on(tmp_path, at_once):
    """What its objective does not say has its default; what we do not know is refused by name."""
    pytest.importorskip("optuna")
    tune(tmp_path / "a", Quick(rising_to), 1)
    journal = tmp_path / "a" / "journal.log"
    now = journal.read_text()
    assert now.count('"envs":1,') == 1
    journal.write_text(now.replace('"envs":1,', '"naps":3,'))
    with pytest.raises(UsageError, match="naps: 3 there, None here"):
        tune(tmp_path / "a", Quick(rising_to), 2)
    journal.write_text(now.replace('"envs":1,', ""))
    assert tune(tmp_path / "a", Quick(rising_to), 2)[0].counts()["complete"] == 2


def test_a_journal_that_someone_else_wrote(tmp_path):
    optuna = pytest.importorskip("optuna")
    (tmp_path / "a").mkdir()
    journal = tmp_path / "a" / "journal.log"
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    optuna.create_study(study_name="thesis", storage=optuna.storages.JournalStorage(backend))
    with pytest.raises(UsageError, match="holds another study, 'thesis'"):
        tune(tmp_path / "a", Quick(rising_to), 1)
    journal.write_text("my diary\nmy dear diary\n")
    with pytest.raises(UsageError, match="is not a journal of Optuna, or it is damaged"):
        tune(tmp_path / "a", Quick(rising_to), 1)


def test_a_journal_that_was_altered_is_noticed_by_what_its_runs_say(tmp_path, at_once):
    pytest.importorskip("optuna")
    found, _ = tune(tmp_path / "a", Quick(rising_to), 2)
    journal, best = tmp_path / "a" / "journal.log", found.best()
    assert str(best.score) in journal.read_text()
    journal.write_text(journal.read_text().replace(str(best.score), str(10 * best.score)))
    with pytest.raises(UsageError, match=f"trial {best.number} scored"):
        tune(tmp_path / "a", Quick(rising_to), 2)[0].best()


def test_a_journal_that_was_cut_or_added_to_is_refused(tmp_path, at_once):
    pytest.importorskip("optuna")
    tune(tmp_path / "a", Quick(rising_to), 3)
    journal = tmp_path / "a" / "journal.log"
    whole = journal.read_bytes()
    journal.write_bytes(b"\n".join(whole.split(b"\n")[:5]) + b"\n")
    with pytest.raises(UsageError, match="does not know of trial 2"):
        tune(tmp_path / "a", Quick(rising_to), 3)
    journal.write_bytes(whole + b"garbage\n")
    with pytest.raises(UsageError, match=r"it is damaged: see line \d+"):
        tune(tmp_path / "a", Quick(rising_to), 4)
    journal.write_bytes(whole)
    assert tune(tmp_path / "a", Quick(rising_to), 4)[0].counts()["complete"] == 4


def test_settings_that_never_learn_are_no_result(tmp_path, at_once):
    pytest.importorskip("optuna")
    space = parse_space(ME_SAC, ["warmup=700:2000"])
    _, trials = tune(tmp_path / "a", Quick(lambda config, step: 1.0), 8, space=space, settings=())
    never = [trial for trial in trials if trial.score is None]
    assert never
    assert all("nothing is learned in 800 steps" in trial.reason for trial in never)


def test_a_study_is_not_put_into_a_run(tmp_path, at_once):
    pytest.importorskip("optuna")
    Folder(tmp_path / "a").claim(objective().config((), 0), SPACES).close()
    with pytest.raises(UsageError, match="holds a run; choose another --out"):
        tune(tmp_path / "a", Quick(rising_to), 1)


def test_half_a_line_at_the_end_of_a_journal_costs_nothing(tmp_path, at_once):
    pytest.importorskip("optuna")
    tune(tmp_path / "a", Quick(rising_to), 2)
    with (tmp_path / "a" / "journal.log").open("ab") as journal:
        journal.write(b'{"op_code": 4, "worker')
    found, _ = tune(tmp_path / "a", Quick(rising_to), 3)
    found, _ = tune(tmp_path / "a", Quick(rising_to), 4)
    assert found.counts()["complete"] == 4
