"""How the texts of arguments are read, on the command line and from a file."""

import json
from argparse import ArgumentParser
from dataclasses import dataclass

import pytest

from mepg import flags
from mepg.cli import main
from mepg.commands import commands
from mepg.training.config import option
from tests.commands.runs import train
from tests.run import stubs  # noqa: F401


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("text", "number"), [("1000", 1000), ("1_000", 1000), ("1e6", 10**6), ("-3", -3), ("2.0", 2)])
def test_a_whole_number_in_any_of_its_forms(text, number):
    assert flags.count(text) == number


def test_a_flag_for_each_setting():
    @dataclass
    class Some:
        pace: int = option(3, "how fast", "N")
        names: tuple[str, ...] = option(("a", "b"), "whose", "NAME,...")
        aloud: bool = option(False, "with a voice")
        hidden: int = 7  # not for people

    parser = ArgumentParser()
    flags.add_options(parser, Some, leave_out=["names"], pace=5)
    assert flags.options_from(parser.parse_args([]), Some) == {"pace": 5, "aloud": False}
    assert flags.options_from(parser.parse_args(["--pace", "1e1", "--aloud"]), Some) == {"pace": 10, "aloud": True}
    assert "how fast (5)" in parser.format_help()
    parser = ArgumentParser()
    flags.add_options(parser, Some)
    assert parser.parse_args(["--names", "c,,d"]).names == ("c", "d")
    assert parser.parse_args(["--names", "d,c,d"]).names == ("d", "c"), "csv,csv is one log"
    assert "whose (a,b)" in parser.format_help()


def test_settings_from_a_file_and_flags_that_win(tmp_path, capsys):
    content = {"algorithm": "td3", "env": "StubPlain-v0", "steps": 30, "seed": 3, "eval_episodes": 1, "about": {"x": 1}}
    content["actor_obs"] = None  # as `mepg tune` writes it
    content["set"] = ["hidden=8", "batch_size=8", "warmup=20", "discount=0.9"]
    (tmp_path / "mine.json").write_text(json.dumps(content))
    assert train("--config", "mine.json", "--seed", "5", "--set", "discount=0.8", "--json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == "runs/td3_mine_StubPlain-v0_seed5"
    config = json.loads((tmp_path / "runs/td3_mine_StubPlain-v0_seed5/run.json").read_text())["config"]
    assert (config["seed"], config["steps"], config["spec"]["discount"], config["spec"]["hidden"]) == (5, 30, 0.8, [8])
    assert train("ddpg", "--config", "mine.json", "--set", "exploration.std=0.3", "--out", "other") == 0
    assert json.loads((tmp_path / "other/run.json").read_text())["config"]["algorithm"] == "ddpg"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a JSON object"),
        ('{"stepps": 3}', "unknown setting in mine.json 'stepps'; did you mean 'steps'?"),
        ('{"set": "hidden=8"}', "set must be a list"),
        (None, "No such file"),
    ],
)
def test_a_file_of_settings_that_is_none(content, says, tmp_path, capsys):
    if content is not None:
        (tmp_path / "mine.json").write_text(content)
    assert train("me-sac", "--env", "Pendulum-v1", "--config", "mine.json") == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_file_brings_in_nothing_that_the_command_line_refuses(tmp_path, capsys):
    (tmp_path / "mine.json").write_text('{"steps": "many"}')
    with pytest.raises(SystemExit):
        train("me-sac", "--env", "Pendulum-v1", "--config", "mine.json")
    assert "'many' is not a whole number" in capsys.readouterr().err


COUNTS = [
    (name, action.option_strings[0])
    for name, command in commands().items()
    for parser in [ArgumentParser()]
    if not command.add_arguments(parser)
    for action in parser._actions
    if action.type is flags.count
]
# What comes before the flag, so that the command would begin.
BEFORE = {"train": ["me-sac", "--env", "StubPlain-v0"], "reproduce": ["table1", "--dry-run"], "bench": ["me-sac"]}
BEFORE |= {"tune": BEFORE["train"]} | {name: ["."] for name in ("eval", "inspect", "verify")}


@pytest.mark.parametrize(("command", "flag"), [each for each in COUNTS if each[0] in BEFORE])
@pytest.mark.parametrize("number", [10**23, -1])
def test_every_count_is_bounded(command, flag, number, tmp_path, capsys):
    assert main([command, *BEFORE[command], flag, str(number)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mepg: {flag[2:]} must be in [")
    assert said.endswith(f"], not {number}\n") or "], the cores " in said
    assert not list(tmp_path.iterdir())


def test_counts_are_those_of_every_command():
    lacking = {command for command, _ in COUNTS} - BEFORE.keys()
    assert not lacking, f"these commands have a flag of type flags.count: add them to BEFORE, {sorted(lacking)}"
    assert {command for command, _ in COUNTS} == BEFORE.keys(), "a command in BEFORE has no flag of type flags.count"
