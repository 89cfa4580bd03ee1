"""What a person sees while a run goes on, or many, where there is no terminal."""

from types import SimpleNamespace

from rich.console import Console

from mepg.display import Display, JobsDisplay, preparing, table
from mepg.scheduler.jobs import Job, Progress
from mepg.scheduler.schedule import Failure
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.training.loop import Record

CONFIG = Config.make("me-sac", env="Pendulum-v1", steps=1000, envs=2)


def test_a_table_has_a_heading_for_each_group(capsys):
    row = {"train/q": 0.123456, "rollout/ep_rew_mean": -12345.6, "time/total_timesteps": 1_000_000, "train/loss": 2.0}
    Console(width=60).print(table(row))
    lines = [" ".join(line.strip("| \n").split()) for line in capsys.readouterr().out.splitlines()]
    words = [line.replace("| ", "").replace("|", "").strip() for line in lines if "+" not in line]
    assert words == [
        "rollout/", "ep_rew_mean -12,346", "time/", "total_timesteps 1,000,000", "train/", "loss 2", "q 0.1235",
    ]  # fmt: skip


def session(tmp_path, *notes):
    return SimpleNamespace(
        config=CONFIG,
        notes=notes,
        folder=SimpleNamespace(path=tmp_path),
        loop=SimpleNamespace(pace="2 environments at a time", step=0),
        started_at=0,
        latest={},
    )


def record(step, *totals):
    evaluation = [Episode(total, 10) for total in totals] or None
    return Record(step, [], [], evaluation=evaluation)


def test_something_to_look_at_while_a_run_is_prepared_on_a_terminal_only(monkeypatch, capsys):
    def said(*, quiet):
        with preparing(quiet=quiet):
            pass
        return capsys.readouterr().out

    assert said(quiet=False) == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    assert "preparing (compiling takes longer the first time)" in said(quiet=False)
    assert said(quiet=True) == ""


def test_a_line_for_each_evaluation(tmp_path, capsys):
    with Display(session(tmp_path, "resumed at step [4]"), quiet=False) as display:
        display.show(record(499))
        display.show(record(500, 1000.0, 3000.0))
    note, said, pace, line = capsys.readouterr().out.splitlines()
    assert note == "mepg: resumed at step [4]", "no markup"
    assert said == f"me-sac on Pendulum-v1, seed 0 -> {tmp_path}"
    assert pace == "2 environments at a time"
    assert line.startswith("step       500   return    2,000.0   ")


def test_quiet_it_says_only_what_must_not_get_lost_and_not_in_the_data(tmp_path, capsys):
    with Display(session(tmp_path, "resumed"), quiet=True) as display:
        display.show(record(500, 1.0))
    assert capsys.readouterr() == ("", "mepg: resumed\n")


def test_many_runs_a_line_when_one_has_ended(tmp_path, capsys):
    jobs = [Job(CONFIG, tmp_path / name) for name in "abc"]
    with JobsDisplay(jobs, 2, quiet=False) as board:
        board.show({jobs[0]: Progress(10, None), jobs[1]: Progress(0, None)}, 0, [])
        board.show({jobs[0]: Progress(900, 7.0), jobs[2]: Progress(5, None)}, 1, [])
        board.show({jobs[2]: Progress(5, None)}, 1, [Failure(jobs[0], "gone", None)])
        done = board._bars.tasks[0].completed
        board.show({jobs[2]: Progress(6, None)}, 1, [Failure(jobs[0], "gone", None)])  # nothing new
    assert capsys.readouterr().out.splitlines() == ["3/5 runs", "3/5 runs, 1 failed"]
    assert done == 1000 + 1000 + 5
    assert len(board._bars.tasks) == 2, "one that has ended has no bar of its own"
