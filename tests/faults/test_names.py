"""Folders and files whose names nobody expects."""

import os
import shutil
from pathlib import Path

import pytest

from mepg.cli import main
from mepg.errors import UsageError
from mepg.process import exit_status
from tests.run import stubs  # noqa: F401

TINY = ["--set", "hidden=8", "--set", "batch_size=8", "--set", "warmup=1000", "--eval-episodes", "1", "--log", "csv"]
TRAIN = ["train", "me-ddpg", "--env", "StubPlain-v0", "--steps", "60", *TINY, "--out"]
NAMES = [
    "with space",
    "end\nof line",
    "-dash",
    "é😀",
    "x" * 246,
    "😀" * 61,
    os.fsdecode(b"not utf-8 \xff"),
    "a'b\"c",
    "$(x)",
    "*",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([*TRAIN, str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_any_name_will_do(name, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    shutil.copytree(run, Path(name, name))
    assert main(["list", "--json", "--", name]) == 0
    assert main(["plot", f"--out={name}.png", "--", name]) == 0
    assert main(["report", f"--out={name}/{name}.html", "--", name]) == 0
    assert main([*TRAIN[:-1], f"--out={name}/{name}"]) == 0
    assert {f"{name}.png", f"{name}/{name}.html"} <= {str(path) for path in Path().rglob("*")}
    assert main(["eval", "--", f"{name}/nothing"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mepg: ")
    assert err.count("\n") == 1


def test_an_error_is_one_line_whatever_it_names(capsys):
    def fail(error):
        raise error

    lines = {
        UsageError("a\nb holds no run"): "mepg: a\\nb holds no run\n",
        MemoryError(): "mepg: there is not enough memory\n",
        MemoryError("8 GB for an array"): "mepg: there is not enough memory: 8 GB for an array\n",
        ImportError("libx.so: failed to map segment from shared object"): (
            "mepg: there is not enough memory to load a library: libx.so: failed to map segment from shared object\n"
        ),
    }
    for error, line in lines.items():
        assert exit_status(lambda: fail(error)) in (1, 2)  # noqa: B023
        assert capsys.readouterr().err == line
    with pytest.raises(ImportError, match="no module"):
        exit_status(lambda: fail(ImportError("no module named x")))
