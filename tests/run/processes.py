"""Real training processes on real environments."""

from __future__ import annotations

import csv
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog

from mepg.storage.files import read_arrays

ROOT = Path(__file__).parent.parent.parent
# Where a process finds mepg as we do, and the stub environments under the name tests.run.stubs:...
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
SMALL = ["hidden=16,16", "batch_size=16", "warmup=150"]


def command(algorithm, env, out, *, steps, settings=(), extra=()):
    sets = [part for setting in [*SMALL, *settings] for part in ("--set", setting)]
    fixed = ["--steps", str(steps), "--eval-every", "400", "--eval-episodes", "2", "--checkpoint-every", "150"]
    return [sys.executable, "-m", "mepg", "train", algorithm, "--env", env, "--out", str(out), *fixed, *sets, *extra]


def start(argv, *, group=False, **variables) -> subprocess.Popen:
    """Start it with these environment variables.

    :param group: as the leader of a process group, so that a signal can be sent to all of it
    """
    env = {**os.environ, "PYTHONPATH": PATH, **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(argv, env=env, start_new_session=group, **pipes)


def begun_with(code: str, folder: Path) -> dict[str, str]:
    """Variables for a process that runs this code before anything else."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{PATH}"}


def run(argv, **variables) -> subprocess.CompletedProcess:
    process = start(argv, **variables)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def finish(argv, **variables) -> str:
    """Run it to its end, which has to be a good one; gives what it printed."""
    done = run(argv, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def checkpoints(folder) -> set[str]:
    return {path.name for path in (folder / "checkpoints").glob("*.json")}


def newest(folder) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return max((int(name.removesuffix(".json")) for name in checkpoints(folder)), default=0)


def being_written(folder):
    """The files of a checkpoint that are not whole yet, and when each was begun."""
    found = {}
    for path in [*folder.glob("checkpoints/.*.writing"), *folder.glob("replay/.*.writing")]:
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found


def holds_lock(process, folder):
    lock = str(folder / ".lock")
    try:
        return any(os.readlink(link) == lock for link in Path(f"/proc/{process.pid}/fd").iterdir())  # noqa: PTH115
    except OSError:
        return False


def hears(process: subprocess.Popen, number: int = signal.SIGTERM) -> bool:
    """Whether it has a handler for this signal."""
    try:
        caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    except (OSError, IndexError):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)


def wait_for(condition, process: subprocess.Popen, pause: float = 0.002) -> bool:
    """Until it holds, or the process has ended; gives whether it holds."""
    while not (holds := bool(condition())) and process.poll() is None:
        time.sleep(pause)
    return holds


def assert_gone(pids):
    """Of processes that have been killed, and are gone within seconds."""
    left = set(pids)
    for _ in range(3_000):
        left = {pid for pid in left if _runs(pid)}
        if not left:
            return
        time.sleep(0.01)
    raise AssertionError(f"{left} still run")


def _runs(pid) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # nobody may wait for it
    except OSError:
        return False


def kill_after_progress(argv, folder, delay, number=signal.SIGKILL):
    """Start it, wait for a checkpoint that was not there before and `delay` seconds more, and kill it.

    Gives what it printed and its exit status; it may have finished before that.
    """
    before = checkpoints(folder)
    process = start(argv)
    wait_for(lambda: not checkpoints(folder) <= before, process)
    time.sleep(delay)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def metrics(folder):
    """metrics.csv without what depends on the clock."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    clock = ("time/fps", "time/processor_seconds")
    return [{name: value for name, value in row.items() if name not in clock} for row in rows]


def tensorboard(folder) -> dict[str, list[int]]:
    """The steps of each tag, as TensorBoard shows them: files in the order of their names, purged at each new start.

    A record is a length, its checksum, an event and its checksum.
    """
    steps: dict[str, list[int]] = {}
    for path in sorted(folder.glob("events.out.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            at += 12 + length + 4
            if event.session_log.status == SessionLog.START:
                steps = {tag: [step for step in seen if step < event.step] for tag, seen in steps.items()}
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def assert_same_run(a: Path, b: Path):
    """Parameters, optimiser, evaluations and metrics, to the bit."""
    last = sorted(path.name for path in (a / "checkpoints").glob("*.safetensors"))[-1]
    assert (a / "policy.safetensors").stat().st_size > 1000
    for name in ("policy.safetensors", f"checkpoints/{last}"):
        ours, theirs = read_arrays(a / name), read_arrays(b / name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    with np.load(a / "evaluations.npz") as ours, np.load(b / "evaluations.npz") as theirs:
        for key in ("timesteps", "results", "ep_lengths"):
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    assert metrics(a) == metrics(b)
    assert len(metrics(a)) >= 1


def run_mepg(*argv, cwd, hide=(), then=()):
    """A process of its own, in which some packages cannot be imported; other commands come after the first."""
    code = f"import sys; [sys.modules.__setitem__(name, None) for name in {list(hide)!r}]; sys.argv[0] = 'mepg'"
    code += f"; from mepg.cli import main; later = {[*map(list, then)]!r}"
    code += "; sys.exit(main(sys.argv[1:] if later else None) or any([main(each) for each in later]))"
    return subprocess.run([sys.executable, "-c", code, *argv], cwd=cwd, capture_output=True, text=True)
