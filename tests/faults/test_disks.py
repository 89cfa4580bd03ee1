"""No room, no permission, no file handles, no memory: the cause in one line, and nothing that was saved is lost."""

import os
import resource
import subprocess

import pytest

from mepg.cli import main
from tests.conftest import HOPPER
from tests.run.processes import assert_same_run, command, finish, newest, run, start, wait_for

pytestmark = pytest.mark.faults

SETTINGS = ["replay_size=300", "warmup=100"]
EXTRA = ["--checkpoint-every", "100", "--eval-every", "250", "--eval-episodes", "1"]


def train(out):
    return command("me-sac", HOPPER, out, steps=1000, settings=SETTINGS, extra=EXTRA)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    finish(train(folder / "run"))
    return folder / "run"


@pytest.fixture
def disk(tmp_path):
    """A file system of 4 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system of its own cannot be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


def fill(disk, leave):
    """Take all of a disk's room but `leave` bytes."""
    left = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        file.write(bytes(max(0, left.f_bavail * left.f_bsize - leave)))


def assert_one_line(status, err, says):
    assert status in (1, 2)
    assert says in err
    assert err.startswith("mepg: ")
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("leave", [0, 8_192, 90_000])
def test_disk_full(leave, disk, whole):
    """With more or less room left, another file is the first that does not fit."""
    argv, folder = train(disk / "run"), disk / "run"
    process = start(argv)
    wait_for(lambda: newest(folder) >= 200, process)
    fill(disk, leave)
    _, err = process.communicate(timeout=120)
    assert_one_line(process.returncode, err, "cannot be written: No space left on device")
    assert "the same command continues from there" in err
    saved = newest(folder)
    again = run(argv)
    assert_one_line(again.returncode, again.stderr, "No space left on device")
    assert newest(folder) >= saved, "it lost what it had"
    (disk / "filler").unlink()
    assert f"resumed at step {newest(folder)}" in finish(argv)
    assert_same_run(whole, folder)


def limit(process, kind, soft):
    resource.prlimit(process.pid, kind, (soft, resource.prlimit(process.pid, kind)[1]))


def handles(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@pytest.mark.parametrize(
    ("kind", "says"),
    [(resource.RLIMIT_FSIZE, "File too large"), (resource.RLIMIT_NOFILE, "Too many open files")],
    ids=["quota", "handles"],
)
def test_limits_of_the_system(kind, says, whole, tmp_path):
    """A quota stops it like a full disk does; so do file handles that have run out."""
    argv, folder = train(tmp_path / "run"), tmp_path / "run"
    process = start(argv)
    wait_for(lambda: newest(folder) >= 200, process)
    saved = newest(folder)
    limit(process, kind, 2_000 if kind == resource.RLIMIT_FSIZE else handles(process) - 1)
    _, err = process.communicate(timeout=120)
    assert_one_line(process.returncode, err, f"cannot be written: {says}")
    assert newest(folder) >= saved
    assert f"resumed at step {newest(folder)}" in finish(argv)
    assert_same_run(whole, folder)


def test_an_environment_that_eats_all_memory(tmp_path):
    argv = command("ddpg", "tests.faults.stubs:LimitedMemory-v0", tmp_path / "run", steps=1000, extra=EXTRA)
    failed = run(argv)
    assert_one_line(failed.returncode, failed.stderr, "LimitedMemory-v0's step raised MemoryError")
    assert newest(tmp_path / "run") == 200


@pytest.mark.parametrize("setting", ["replay_size=1000000000", "hidden=9000,9000"])
def test_too_little_memory_to_begin_with(setting, tmp_path):
    argv = command("ddpg", "Pendulum-v1", tmp_path / "run", steps=1000, settings=[setting])
    limited = ["bash", "-c", 'ulimit -v 3500000; exec "$@"', "bash", *argv]
    failed = run(limited)
    assert_one_line(failed.returncode, failed.stderr, "this run does not fit into memory")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_became_read_only(disk, whole):
    argv, folder = train(disk / "run"), disk / "run"
    process = start(argv)
    wait_for(lambda: newest(folder) >= 200, process)
    process.kill()
    process.communicate()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    refused = run(argv)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert_one_line(refused.returncode, refused.stderr, f"{folder} cannot be written: Read-only file system")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    finish(argv)
    assert_same_run(whole, folder)


ONE = ["--plan", "smoke", "--only", "me-ddpg", "--envs", "HopperBulletEnv-v0", "--seeds", "0"]
OUTPUTS = {
    "plot": ["plot", "{run}", "--out", "{disk}/curves.png"],
    "report": ["report", "{run}", "--out", "{disk}/report.html"],
    "numpy": ["export", "{run}", "--numpy", "{disk}/numpy"],
    "onnx": ["export", "{run}", "--onnx", "{disk}/policy.onnx"],
    "c": ["export", "{run}", "--c", "{disk}/policy.h"],
    "card": ["export", "{run}", "--card", "{disk}/README.md"],
    "film": ["eval", "{run}", "--episodes", "1", "--video", "{disk}/film.gif"],
    "picture": ["inspect", "{run}", "{run}", "--episodes", "1", "--out", "{disk}/inspect.png"],
    "reproduce": ["reproduce", "table1", *ONE, "--results", "{disk}/results"],
    "tune": ["tune", "ddpg", "--env", "Pendulum-v1", "--steps", "200", "--set", "warmup=100", "--out", "{disk}/study"],
}


@pytest.mark.parametrize(
    ("what", "full"), [*((what, True) for what in OUTPUTS), ("report", False), ("reproduce", False), ("tune", False)]
)
def test_outputs_that_cannot_be_written(what, full, disk, whole, capfd):
    """One line about it, whatever is being written, and no half of a file under its name."""
    fill(disk, 0)
    if not full:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    status = main([part.format(run=whole, disk=disk) for part in OUTPUTS[what]])
    out, err = capfd.readouterr()
    says = "No space left on device" if full else "Read-only file system"
    if (what, full) == ("reproduce", True):  # a run that failed is part of the answer
        assert (status, err) == (1, "")
        assert any("failed:" in line and says in line for line in out.splitlines())
    else:
        assert_one_line(status, err, says)
    visible = [path for path in disk.rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert [path for path in visible if path.stat().st_size] == [disk / "filler"]


def test_a_dry_run_needs_no_room(disk, capsys):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert main(["reproduce", "table1", *ONE, "--results", f"{disk}/results", "--dry-run"]) == 0
    assert "1 run, 0 of them finished; the rest takes about" in capsys.readouterr().out
