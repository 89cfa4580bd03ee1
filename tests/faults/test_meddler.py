"""An environment may change the streams, the umask and the current folder of its process: the run is not affected."""

import json
import os
import stat
import subprocess
import sys

import pytest

from tests.faults import meddler
from tests.run.processes import PATH

# Nothing is learned, so nothing has to be compiled.
RUN = ["train", "me-sac", "--env", meddler.ID, "--steps", "40", "--eval-every", "20", "--eval-episodes", "1"]
RUN += ["--set", "warmup=1000", "--set", "hidden=8", "--set", "batch_size=8", "--checkpoint-every", "10"]

# Each way of meddling in one process, one after the other: what one of them spoils, the next one would find spoilt.
EACH = f"""
import json, os, sys
from mepg.cli import main
found = {{}}
for way in json.loads(sys.argv[1]):
    os.environ["MEDDLES"] = way
    found[way] = main([*{RUN}, "--out", f"é {{way}}", *sys.argv[2:]])
open("found.json", "w").write(json.dumps(found))
"""


def run(argv, folder, **variables):
    env = {**os.environ, "PYTHONPATH": PATH, "ELSEWHERE": str(folder / "elsewhere"), **variables}
    (folder / "elsewhere").mkdir()
    argv = [sys.executable, *argv]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


SOME = [
    "sets both to none",
    "closes the original streams",
    "closes all descriptors",
    "sets the umask",
    "goes elsewhere",
]
ALL = [way + when for way in meddler.WAYS if way != "forks a pool" for when in ("", " at once")]


@pytest.mark.parametrize(
    ("ways", "form"), [(SOME, []), *(pytest.param(ALL, form, marks=pytest.mark.faults) for form in ([], ["--json"]))]
)
def test_a_run_ends_as_if_nothing_had_been_changed(ways, form, tmp_path):
    done = run(["-c", EACH, json.dumps(ways), *form], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "found.json").read_text()) == dict.fromkeys(ways, 0)
    assert done.stdout.count('"finished": true' if form else "Finished: 40 steps") == len(ways)
    assert form or done.stdout.count("step        20   return") == len(ways)
    assert not list((tmp_path / "elsewhere").iterdir())
    for way in ways:
        made = [tmp_path / f"é {way}", *(tmp_path / f"é {way}").rglob("*")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o755}
        assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o644}
        assert {"result.json", "curve.png", "metrics.csv"} <= {path.name for path in made}


@pytest.mark.parametrize(
    "way", ["sets both to none", pytest.param("closes all descriptors at once", marks=pytest.mark.faults)]
)
def test_a_process_ends_with_0_and_its_answer(way, tmp_path):
    done = run(["-m", "mepg", *RUN, "--out", "run"], tmp_path, MEDDLES=way)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Finished: 40 steps" in done.stdout


@pytest.mark.faults
@pytest.mark.parametrize("backend", ["xla", "native"])
@pytest.mark.parametrize("way", ["switches JAX's settings", "forks a pool"])
def test_what_is_done_at_every_step_changes_no_bits(way, backend, native, tmp_path):
    """The pool's processes begin as forks of one that computes with JAX, which warns of that."""
    ways = ["", way, f"{way} at once"]
    done = run(["-W", "ignore", "-c", EACH, json.dumps(ways), "--set", "warmup=20", "--backend", backend], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "found.json").read_text()) == dict.fromkeys(ways, 0)
    for name in ("policy.safetensors", "evaluations.npz"):
        assert len({(tmp_path / f"é {way}" / name).read_bytes() for way in ways}) == 1


@pytest.mark.faults
@pytest.mark.parametrize("way", ["closes all descriptors", "sets the umask", "goes elsewhere at once"])
def test_a_worker_too(way, tmp_path):
    """`tune` makes the environment itself, and has every run in a process of its own."""
    argv = [
        "tune",
        *RUN[1:-2],
        "--set",
        "warmup=20",
        "--out",
        "study",
        "--trials",
        "1",
        "--seeds",
        "1",
        "--space",
        "critic_lr=1e-4,1e-3",
    ]
    done = run(["-m", "mepg", *argv], tmp_path, MEDDLES=way)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 trial complete" in done.stdout
    assert not list((tmp_path / "elsewhere").iterdir())
    assert min(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")) == 0o644
