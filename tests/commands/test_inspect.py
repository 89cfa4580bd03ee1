"""mepg inspect."""

import json
import pathlib

import pytest

from mepg.cli import main
from tests.commands.runs import TINY, train


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Short runs whose returns can be known: the discount is low enough for episodes of 50 steps."""
    folder = tmp_path_factory.mktemp("inspected")
    for name in ("me-ddpg", "td3"):
        argv = [name, "--env", "StubScaled-v0", "--steps", "60", "--out", str(folder / name), "--set", "discount=0.9"]
        assert train(*argv, *TINY) == 0
    return folder


def test_inspect(two_runs, capsys):
    assert main(["inspect", str(two_runs / "me-ddpg"), "--episodes", "2"]) == 0
    text = capsys.readouterr().out
    assert "12 steps of 2 episodes, 88 left out as too near to a cut" in text
    assert (two_runs / "me-ddpg" / "inspect.png").read_bytes().startswith(b"\x89PNG")
    runs = [str(two_runs / "me-ddpg"), str(two_runs / "td3")]
    assert main(["inspect", *runs, "--episodes", "2", "--json", "--out", "both/of.png"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [run["algorithm"] for run in data["runs"]] == ["me-ddpg", "td3"]
    assert data["pictures"][-1] == "both/of.png"
    assert main(["report", str(two_runs), "--out", "page.html", "--json"]) == 0
    page = pathlib.Path("page.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "Looking inside" in page
    assert "page-files/inside-2.png" in json.loads(capsys.readouterr().out)["files"]


def test_inspect_of_what_cannot_be(finished, tmp_path, capsys):
    """A folder that is no run, a run before its first checkpoint, a damaged policy: one line each, nothing written."""
    early, damaged = tmp_path / "early", tmp_path / "damaged"
    for folder in (early, damaged):
        folder.mkdir()
        (folder / "run.json").write_bytes((finished / "run.json").read_bytes())
    (damaged / "policy.safetensors").write_bytes((finished / "policy.safetensors").read_bytes()[:-100])
    for argv, says in (
        (["nowhere"], "nowhere does not exist"),
        ([str(finished), "nowhere"], "nowhere does not exist"),
        ([str(early)], "has not reached a checkpoint"),
        ([str(damaged)], "damaged policy"),
        ([str(finished)], "is never known at discount 0.99"),
        ([str(finished), "--episodes", "0"], "episodes must be in [1, 10^9]"),
        ([str(finished), "--seed", "-1"], "seed must be in [0, 4294967295]"),
        ([str(finished), "--out", "picture.jpg"], "--out must be a .png file"),
        ([str(finished)] * 7, "at most 6 runs"),
    ):
        assert main(["inspect", *argv]) == 2
        captured = capsys.readouterr()
        assert says in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    assert not list(tmp_path.rglob("inspect.*"))
