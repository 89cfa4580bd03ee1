"""A file that may not be read is not damaged: one line says so, and nothing is changed or takes its place."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest

import mepg
from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.report.runs import collect, read_run
from mepg.run.inspection import inspect_run, read_inspection, write_inspection
from mepg.run.verify import verify
from mepg.storage.files import Unreadable
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.tune.study import Study
from tests.conftest import all_but_slow
from tests.faults.test_damage import ENV, files_of, train
from tests.run.processes import assert_same_run, command, finish, run
from tests.tune.studies import objective

ERRORS = [errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE]
EACH = pytest.mark.parametrize("number", all_but_slow(ERRORS, [errno.EACCES, errno.EIO, errno.EMFILE]))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(folder / "finished", 0)
    train(folder / "stopped", 0, upto=1100)
    finished = Folder(folder / "finished")
    write_inspection(finished, inspect_run(finished, 1, 0))
    return folder


@contextlib.contextmanager
def forbidden(target, number):
    """Let the system answer with this error when the file, or the folder and what is in it, is to be read."""

    def guarded(real, *, itself=True):
        def call(path, *rest, **more):
            if (itself and Path(path) == target) or target in Path(path).parents:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *rest, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for where, name in ((Path, "open"), (os, "listdir"), (os, "scandir")):
            patch.setattr(where, name, guarded(getattr(where, name)))
        patch.setattr(Path, "stat", guarded(Path.stat, itself=False))
        yield


def content_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"}


def assert_says_so(said, path, number):
    assert f"{path}" in said
    assert f"cannot be read: {os.strerror(number)}" in said
    assert "damaged" not in said
    assert "\n" not in said


@EACH
def test_a_run_does_not_go_on_from_something_else(number, runs, tmp_path):
    read = ("run.json", "metrics.csv", "best.safetensors", "checkpoints/000001100", "replay/")
    names = ["", "checkpoints", "replay", *(name for name in files_of(runs / "stopped") if name.startswith(read))]
    assert len(names) > 10
    path = tmp_path / "run"
    shutil.copytree(runs / "stopped", path)
    before = content_of(path)
    for name in names:
        with forbidden(path / name, number), pytest.raises(Unreadable) as refused:
            train(path, 0)
        assert_says_so(str(refused.value), path / name, number)
        assert content_of(path) == before, name
    train(path, 0)
    assert_same_run(runs / "finished", path)


READERS = {
    "report": read_run,
    "policy": lambda path: load_policy(Folder(path), Env(ENV).spaces),
    "best": lambda path: load_policy(Folder(path), Env(ENV).spaces, best=True),
    "inspection": lambda path: read_inspection(Folder(path)),
    "load": mepg.load,
    "load best": lambda path: mepg.load(path, best=True),
    "verify": lambda path: verify(Folder(path), 10),
    "train": lambda path: train(path, 0),
}


def answer_of(read, path):
    """What it refuses with; nothing if it does not."""
    try:
        read(path)
    except UsageError as error:
        return str(error)
    return ""


@EACH
@pytest.mark.parametrize("name", READERS)
def test_whatever_is_read_it_says_so(name, number, runs, tmp_path):
    """Of a finished run and of one that was stopped: the same answer as ever, or one line about that file."""
    refused = []
    for kind in ("finished", "stopped"):
        for file in ["", "checkpoints", *files_of(runs / kind)]:
            path = runs / kind
            with forbidden(path / file, number):
                if name == "train" and kind == "stopped":
                    continue  # see above
                said = answer_of(READERS[name], path)
                if "cannot be read" in said:
                    assert_says_so(said, path / file, number)
                    refused.append(file)
                assert "damaged" not in said
    assert {"", "run.json"} <= set(refused)


@EACH
def test_a_report_names_what_it_leaves_out(number, runs, tmp_path):
    for name in ("a", "b", "c"):
        shutil.copytree(runs / "finished", tmp_path / name / "run")
    (tmp_path / "link").symlink_to(tmp_path / "b" / "run")
    for place in ("a", "b/run/evaluations.npz"):
        with forbidden(tmp_path / place, number):
            found, problems = collect([tmp_path])
        assert len(found) == 1
        assert any(os.strerror(number) in problem.reason for problem in problems)
        assert not any("damaged" in problem.reason for problem in problems)


@EACH
def test_a_study_neither_forgets_its_trials_nor_calls_them_failed(number, tmp_path):
    Study(objective(), tmp_path, 1, print)
    for place in ("journal.log", "trials"):
        (tmp_path / "trials").mkdir(exist_ok=True)
        before = content_of(tmp_path)
        with forbidden(tmp_path / place, number), pytest.raises(Unreadable) as refused:
            Study(objective(), tmp_path, 1, print)
        assert_says_so(str(refused.value), tmp_path / place, number)
        assert content_of(tmp_path) == before
    study = Study(objective(), tmp_path, 1, print)
    with forbidden(tmp_path / "trials", number), pytest.raises(Unreadable):
        list(study.jobs())
    assert study.counts()["failed"] == 0


def test_a_file_that_does_not_fit_into_memory_is_not_damaged(runs, monkeypatch):
    class Huge:
        def __enter__(self):
            raise MemoryError

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(Path, "open", lambda *_: Huge())
    with pytest.raises(Unreadable, match=r"run.json cannot be read: Cannot allocate memory$"):
        Folder(runs / "finished").config()


# Root reads whatever there is, unless it gives two capabilities up: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
OBEY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def train_pendulum(folder):
    return command("me-sac", "Pendulum-v1", folder, steps=1050, settings=["hidden=8"])


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pendulum") / "run"
    finish([*train_pendulum(folder), "--keep-replay"])
    return folder


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("checkpoints/000000900.json", 0),
        ("replay/000000000-000000150.safetensors", 0),
        ("checkpoints", 0o300),
        ("metrics.csv", 0),
        ("best.safetensors", 0),
        ("run.json", 0),
        ("", 0),
    ],
)
def test_real_permissions(name, mode, pendulum, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(pendulum, folder)
    for ending in ("result.json", "policy.safetensors", "checkpoints/000001050.json"):
        (folder / ending).unlink()
    before, usual, argv = content_of(folder), (folder / name).stat().st_mode, train_pendulum(folder)
    (folder / name).chmod(mode)
    refused = run([*OBEY, *argv] if os.geteuid() == 0 else argv)
    (folder / name).chmod(usual)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"mepg: {folder / name} cannot be read: Permission denied; allow this user to read it (chown or chmod)\n"
    )
    assert content_of(folder) == before
    finish(argv)
    assert_same_run(pendulum, folder)
