"""Files that are whole or not there, and that are believed only if they are what was written."""

import io
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.storage import files
from mepg.storage.files import Checksum, Damaged

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(7)}


def test_a_file_is_whole_or_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_atomic(path, b"before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as raised:
        files.write_atomic(path, b"after, and longer")
    assert raised.value.filename == str(path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.json", b"before")]


def test_what_a_process_died_over_is_not_written_through(tmp_path):
    (tmp_path / "dear").write_text("to me")
    (tmp_path / ".a.writing").symlink_to(tmp_path / "dear")
    files.write_atomic(tmp_path / "a", b"new")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "dear").read_text()) == (b"new", "to me")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="exists and is not a file"):
        files.write_atomic(tmp_path / "folder", b"new")


def test_whatever_a_process_died_over_is_replaced(tmp_path):
    aside = tmp_path / ".a.writing"
    (tmp_path / "dear").write_text("dear")
    ways = [aside.touch, lambda: os.mkfifo(aside), lambda: aside.hardlink_to(tmp_path / "dear")]
    for leave_behind in [*ways, lambda: aside.symlink_to("nowhere")]:
        leave_behind()
        files.write_atomic(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"new"
        assert not os.path.lexists(aside)
    assert (tmp_path / "dear").read_text() == "dear"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "😀" * 63, os.fsdecode(b"\xff" * 255)])
def test_a_name_may_be_as_long_as_the_system_allows(name, tmp_path):
    for path in (tmp_path / name, tmp_path / name[:-1]):  # of which the beginning is the same
        files.write_atomic(path, path.name.encode(errors="surrogateescape"))
    assert {path.name: os.fsdecode(path.read_bytes()) for path in tmp_path.iterdir()} == {
        name: name,
        name[:-1]: name[:-1],
    }


WRITES = """
import sys
from pathlib import Path
from mepg.storage.files import write_atomic
path, letter = Path(sys.argv[1]), sys.argv[2].encode()
for _ in range(200):
    write_atomic(path, letter * 100_000)
    content = path.read_bytes()
    assert len(content) == 100_000 and len(set(content)) == 1, "half a file"
"""


def test_processes_that_write_one_file_at_the_same_time(tmp_path):
    argv = [sys.executable, "-c", WRITES, str(tmp_path / "a")]
    writers = [subprocess.Popen([*argv, letter], stderr=subprocess.PIPE, text=True) for letter in "abc"]
    said = [writer.communicate(timeout=120)[1] for writer in writers]
    assert said == ["", "", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_one_that_is_killed_does_not_hold_up_the_next(tmp_path):
    code = "import sys, time; from pathlib import Path; from mepg.system import new_file\n"
    code += "file = new_file(Path(sys.argv[1])); print(flush=True); time.sleep(60)"
    first = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".a.writing")], stdout=subprocess.PIPE)
    first.stdout.readline()
    with ThreadPoolExecutor() as threads:
        second = threads.submit(files.write_atomic, tmp_path / "a", b"second")
        with pytest.raises(TimeoutError):
            second.result(0.3)  # it waits
        first.kill()
        first.communicate()
        second.result(60)
    assert (tmp_path / "a").read_bytes() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_not_a_file_or_too_large_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # which would never end
    for path, says in (
        (tmp_path / "pipe", "pipe is not a file"),
        (Path("/dev/zero"), "zero is not a file"),
        (tmp_path, "is not a file"),
        (tmp_path / "nowhere", "No such file"),
    ):
        with pytest.raises(Damaged, match=says):
            files.read_whole(path)
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(Damaged, match="101 bytes, more than the 100"):
        files.read_whole(tmp_path / "large", most=100)


def test_json_has_a_list_of_numbers_on_one_line(tmp_path):
    data = {"some": [1, -2.5e-07], "none": [], "nested": [[0], [True, 1], "[\n1,\n2\n]"]}
    files.write_json(tmp_path / "a.json", data)
    assert files.read_json(tmp_path / "a.json") == data
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert lines[1:5] == ['  "some": [1, -2.5e-07],', '  "none": [],', '  "nested": [', "    [0],"]


def test_a_seal_is_of_everything(tmp_path):
    path = tmp_path / "run.json"
    files.write_sealed(path, {"steps": 3, "nested": {"a": [1, None]}})
    assert files.read_sealed(path) == {"steps": 3, "nested": {"a": [1, None]}}
    path.write_text(json.dumps(json.loads(path.read_text())))  # laid out otherwise: the same data
    assert files.read_sealed(path)["steps"] == 3
    whole = path.read_text()
    for text in (whole.replace("3", "4"), "[]", "", "{}", "[" * 100_000, whole[:-5]):
        path.write_text(text)
        with pytest.raises(Damaged):
            files.read_sealed(path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_sealed(path, {"loss": float("nan")})


def test_what_a_file_held_when_it_was_sealed(tmp_path):
    path = tmp_path / "metrics.csv"
    assert files.checksum(path) is None
    path.write_text("step\n1000\n")
    sealed = files.checksum(path)
    path.write_text("step\n1000\n2000\n")
    assert files.read_prefix(path, sealed) == b"step\n1000\n", "more may follow"
    for text in ("step\n1001\n2000\n", "step\n"):
        path.write_text(text)
        with pytest.raises(Damaged, match="does not match its checksum"):
            files.read_prefix(path, sealed)
    assert isinstance(sealed, Checksum)


@pytest.mark.parametrize("value", [True, 1.0, -1, 2**53, "3", None])
def test_numbers_of_things_in_json(value):
    assert files.parse_count(3) == 3
    with pytest.raises(ValueError, match="is not a count"):
        files.parse_count(value)


def test_arrays_come_back_and_nothing_else_does(tmp_path):
    path = tmp_path / "a.npz"
    files.write_npz(path, ARRAYS)
    for name, array in files.read_npz(path).items():
        np.testing.assert_array_equal(array, ARRAYS[name])
    with pytest.raises(Damaged, match="does not match its checksum"):
        files.read_npz(path, "0" * 64)
    compressed, objects, lying = (io.BytesIO() for _ in range(3))
    np.savez_compressed(compressed, **ARRAYS)
    np.savez(objects, a=np.array([print], object), allow_pickle=True)
    with zipfile.ZipFile(lying, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"shape": (10**12,), "fortran_order": False, "descr": "<f4"})
        archive.writestr("a.npy", header.getvalue())
    for content, says in ((compressed, "is compressed"), (objects, "is not a file of arrays"), (lying, "in 0 bytes")):
        with pytest.raises(Damaged, match=says):
            files.from_npz(content.getvalue(), "a.npz")


def test_sealed_arrays_say_what_they_are(tmp_path):
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    files.write_sealed_arrays(one, ARRAYS, {"algorithm": "me-sac", "seed": 3})
    files.write_sealed_arrays(other, ARRAYS, {"seed": 3, "algorithm": "me-sac"})
    arrays, about = files.read_sealed_arrays(one)
    assert about == files.read_sealed_arrays(other)[1] == {"algorithm": "me-sac", "seed": 3}
    np.testing.assert_array_equal(arrays["w"], ARRAYS["w"])
    one.write_bytes(one.read_bytes().replace(b"me-sac", b"me-td3"))
    with pytest.raises(Damaged, match="does not match its checksum"):
        files.read_sealed_arrays(one)
    files.write_arrays(one, ARRAYS)
    with pytest.raises(Damaged, match="does not say what it is"):
        files.read_sealed_arrays(one)


def test_an_environments_module_is_not_trusted_for_being_named(tmp_path):
    file = tmp_path / "run.json"
    assert files.require_trusted_env("Pendulum-v1", None, file) == "Pendulum-v1"
    assert files.require_trusted_env("tests.run.stubs:StubPlain-v0", "tests.run.stubs:StubPlain-v0", file)
    with pytest.raises(UsageError, match="if you trust it, add --env nobody_knows:X-v0"):
        files.require_trusted_env("nobody_knows:X-v0", None, file)
    with pytest.raises(UsageError, match="names the environment Pendulum-v1, not Hopper-v5"):
        files.require_trusted_env("Pendulum-v1", "Hopper-v5", file)
