"""An algorithm from outside the package: `module:name`, through every command, and only if the user names it."""

import json
import signal
import subprocess
import sys
from dataclasses import make_dataclass

import pytest

import mepg
from mepg import algos
from mepg.cli import main
from mepg.errors import UsageError
from tests.run.processes import ROOT, assert_same_run, kill_after_progress, start

NAME = "tests.algos.outside:imitate"
TRAIN = [NAME, "--env", "Pendulum-v1", "--steps", "1200", "--eval-every", "400", "--eval-episodes", "2"]


def command(out):
    return [sys.executable, "-m", "mepg", "train", *TRAIN, "--checkpoint-every", "150", "--out", str(out)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained in a process of its own, killed and resumed."""
    folder = tmp_path_factory.mktemp("own") / "run"
    status, _, err = kill_after_progress(command(folder), folder, 0.2)
    assert status in (-signal.SIGKILL, 0), err
    process = start(command(folder))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return folder


def mepg_command(*argv):
    """In a process that has imported nothing of it."""
    return subprocess.run(
        [sys.executable, "-m", "mepg", *map(str, argv)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_killed_and_resumed_it_ends_with_the_same_bits(run, tmp_path):
    process = start(command(tmp_path / "undisturbed"))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same_run(run, tmp_path / "undisturbed")


@pytest.mark.parametrize("argv", [["eval", "--episodes", "1"], ["list"], ["report"]])
def test_a_file_that_names_it_does_not_import_it(run, tmp_path, argv):
    out = ["--out", tmp_path / "page.html"] if argv[0] == "report" else []
    refused = mepg_command(argv[0], run, *argv[1:], *out)
    assert refused.returncode == 2
    assert f"add --algorithm {NAME}" in refused.stderr
    said = mepg_command(argv[0], run, *argv[1:], *out, "--algorithm", NAME)
    assert said.returncode == 0, said.stderr


def test_one_that_looks_ahead_says_how_far():
    from tests.algos.discrete import Dqn, dqn

    assert algos._check("own", dqn) is None, "without the field, one step"
    for value in (0, 1.5, "far"):
        spec = make_dataclass("Far", [("n_step", object, value)], bases=(Dqn,), frozen=True, kw_only=True)()
        with pytest.raises(UsageError, match="n_step has to be a whole number, at least 1"):
            algos._check("own", dqn._replace(spec=spec))


def test_it_is_exported_drawn_tuned_and_measured(run, tmp_path, capsys):
    named = ["--algorithm", NAME]
    assert main(["export", str(run), "--numpy", str(tmp_path / "policy"), "--card", *named]) == 0
    assert NAME in (run / "README.md").read_text()
    assert main(["plot", str(run), "--out", str(tmp_path / "curves.png"), *named]) == 0
    assert main(["show", NAME]) == 0
    tune = ["--trials", "1", "--seeds", "1", "--steps", "200", "--eval-every", "100", "--eval-episodes", "1"]
    assert (
        main(["tune", NAME, "--env", "Pendulum-v1", "--space", "lr=1e-3:1e-1:log", *tune, "--out", str(tmp_path / "t")])
        == 0
    )
    capsys.readouterr()
    assert main(["bench", NAME, "--rounds", "1", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured[NAME]["milliseconds"] > 0
    assert measured[NAME]["mflop"] > 0


def test_from_python(run):
    kind = mepg.algorithm(NAME)
    model = kind("MlpPolicy", "Pendulum-v1", seed=0, learning_starts=50)
    model.learn(100)
    assert isinstance(mepg.load(run), kind)  # its module is imported by now


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:imitate", "neither in this folder nor installed"),
        ("tests.algos.outside:nothing", "no such name"),
        ("tests.algos.outside:me_sac_again", "a str, not a mepg.algos.Algorithm"),
        ("tests.algos.outside:without_warmup", "a frozen dataclass"),
        ("tests.algos.outside:incomplete", "the field warmup, a whole number"),
        ("tests.run.broken:imitate", "cannot be imported"),
    ],
)
def test_what_breaks_the_protocol_is_said(name, said):
    with pytest.raises(UsageError, match=said):
        mepg.algorithm(name)
    assert main(["train", name, "--env", "Pendulum-v1", "--steps", "10"]) == 2


def test_a_name_is_not_trusted_by_looking_for_it():
    with pytest.raises(UsageError, match="if you trust it"):
        algos.find("json.tool:imitate")
    assert "json.tool" not in sys.modules
