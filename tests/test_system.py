"""Everything works where the operating system is another: parts of Linux are taken away, in real processes."""

import ast
import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mepg
from mepg import system
from mepg.native.processor import best_instructions
from mepg.system import DISABLED, FAULTS, _Stack, signals_off_the_heap

# Said by the interpreter itself when it starts, also in every worker process.
MACOS = """
import os, sys, sysconfig
sysconfig.get_config_vars()  # the names of Python's own files depend on the platform
del os.sched_getaffinity, os.sched_setaffinity
os.process_cpu_count = os.cpu_count  # as on a Mac; elsewhere it asks sched_getaffinity
sys.platform = "darwin"
"""
NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
TINY = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]


def can_unshare():
    return subprocess.run([*NO_PROC, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["macOS", "macOS without /proc"])
def elsewhere(request, tmp_path):
    """Runs `mepg` in a folder, as if the system were another one."""
    prefix = []
    if "without" in request.param:
        if not can_unshare():
            pytest.skip("hiding /proc needs root")
        prefix = NO_PROC
    (tmp_path / "sitecustomize.py").write_text(MACOS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*argv):
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "mepg", *argv],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


def test_a_training_elsewhere(elsewhere, tmp_path):
    train = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "40", "--eval-every", "40", "--out", "run"]
    assert "Finished: 40 steps" in elsewhere(*train, *TINY, "--backend", "xla")
    assert (tmp_path / "run" / "curve.png").exists()


def test_an_experiment_elsewhere(elsewhere, tmp_path):
    tune = [
        "tune",
        "me-sac",
        "--env",
        "Pendulum-v1",
        "--steps",
        "40",
        "--trials",
        "2",
        "--seeds",
        "1",
        "--out",
        "study",
    ]
    elsewhere(*tune, *TINY, "--eval-every", "20")
    assert len(list((tmp_path / "study").rglob("result.json"))) == 2


@pytest.mark.slow
def test_a_benchmark_elsewhere(elsewhere, tmp_path):
    assert "me-sac" in elsewhere("bench", "me-ddpg", "--rounds", "1", "--out", "bench")


def test_nobody_else_asks_which_system_it_is():
    """`bench/peer.py` runs where mepg is not installed; `__init__.py` says that Windows is not enough."""
    asks = {
        "sched_getaffinity",
        "sched_setaffinity",
        "cpu_count",
        "process_cpu_count",
        "ru_maxrss",
        "fsync",
        "platform",
    }
    allowed = {"system.py", "bench/peer.py", "__init__.py"}
    root = Path(mepg.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name in allowed:
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                from_python = ast.unparse(node.value) in ("os", "sys", "resource")
                assert not (node.attr in asks and from_python), f"{name}: {ast.unparse(node)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith("/proc"), f"{name}: {node.value}"


def test_cores_without_affinity(monkeypatch):
    assert system.cores() == sorted(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    assert system.cores() == list(range(os.cpu_count()))
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    assert system.cores() == [0, 1, 2]
    monkeypatch.setattr(os, "process_cpu_count", lambda: None)
    assert system.cores() == [0]


def test_pinning_is_for_all_threads_or_for_none(monkeypatch):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint(flush=True)",
        ],
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        one = system.cores()[:1]
        system.pin(one, process.pid)
        tasks = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(tasks) == 2
        assert all(os.sched_getaffinity(task) == set(one) for task in tasks)
        process.kill()
    monkeypatch.delattr(os, "sched_setaffinity")
    system.pin([0])  # nothing happens


def test_processor_time_of_another_process(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        for read in (lambda: None, lambda: monkeypatch.setattr(system, "Path", lambda _: Path("/nowhere"))):
            read()
            before, deadline = system.cpu_time(process.pid), time.monotonic() + 60
            while system.cpu_time(process.pid) == before:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        process.kill()


def test_the_processor_on_a_mac(monkeypatch):
    said = {
        "machdep.cpu.brand_string": "Some Mac",
        "machdep.cpu.features": "FMA AVX1.0",
        "machdep.cpu.leaf7_features": "AVX2",
    }
    monkeypatch.setattr(system, "Path", lambda _: Path("/nowhere"))
    monkeypatch.setattr(system, "_output_of", lambda *command: said.get(command[-1], ""))
    assert system.processor_extensions() == ""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.processor_name() == "Some Mac"
    assert {"fma", "avx2"} <= set(system.processor_extensions().split())
    assert best_instructions().name == "avx2"
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    said.clear()  # Apple's own processors have no such names
    assert best_instructions().name == "neon"


def test_memory_is_in_bytes_everywhere(monkeypatch):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(resource, "getrusage", lambda _: usage)
    assert system.peak_memory() == usage.ru_maxrss * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.peak_memory() == usage.ru_maxrss


FREED = """
from mepg.system import release_free_memory, resident_memory

blocks = [bytearray(b"x" * 60_000) for _ in range(2_000)]  # 120 MB
del blocks[:-1]  # the last one keeps the heap from shrinking
before = resident_memory()
release_free_memory()
print((before - resident_memory()) // 2**20)
"""


def test_freed_memory_is_returned(monkeypatch):
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("not glibc")
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 80
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # another C library
    system.release_free_memory()


def test_a_file_is_flushed_as_far_as_the_system_can(monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(os, "fsync", lambda _: said.append("fsync"))
    with (tmp_path / "file").open("w") as file:
        system.sync(file.fileno())
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", lambda _, command: said.append(command))
        system.sync(file.fileno())

        def refuse(*_):
            raise OSError

        monkeypatch.setattr(fcntl, "fcntl", refuse)
        system.sync(file.fileno())
    assert said == ["fsync", 51, "fsync"]


@pytest.mark.parametrize("late", ["0", "2"], ids=["with its parent", "when it has lost it"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_an_orphan_ends(platform, late, tmp_path):
    (tmp_path / "child.py").write_text(f"""
import os, sys, time
sys.platform = {platform!r}
from mepg import system
system.POLL = 0.1
time.sleep(float(sys.argv[2]))
system.end_with_parent(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(100)
""")
    parent = """
import os, subprocess, sys, time
print(subprocess.Popen([sys.executable, "child.py", str(os.getpid()), sys.argv[1]]).pid, flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", parent, late], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        child = int(process.stdout.readline())
        if late == "0":
            assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        with contextlib.suppress(ProcessLookupError):
            while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has these stacks")
def test_signals_have_a_stack_and_new_threads_hear_none():
    blocked, before = [], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    thread = threading.Thread(target=lambda: blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    with signals_off_the_heap():
        thread.start()
    thread.join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= blocked[0]
    assert not FAULTS & blocked[0], "a fault has to be seen where it happens"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    stack = _Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    assert not stack.flags & DISABLED
