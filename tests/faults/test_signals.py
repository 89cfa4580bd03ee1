"""A thousand signals, each at a random moment of a real run on PyBullet: `make test-signals SIGNALS=1000`.

Each ends with the run saved, with the one line if there is nothing to save yet, or with the run finished; and the run
that was interrupted so often ends with the bits of one that never was.
"""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from functools import cache

import pytest

from mepg.storage.files import read_arrays, read_sealed
from tests.run.processes import (
    assert_same_run,
    begun_with,
    being_written,
    command,
    finish,
    hears,
    holds_lock,
    newest,
    start,
    wait_for,
)

pytestmark = pytest.mark.signals

SIGNALS, EACH = int(os.environ.get("SIGNALS", "100")), 20
STEPS, EVAL_EVERY, CHECKPOINT_EVERY = 2000, 300, 150
INTERRUPTED = "mepg: interrupted; what was saved is safe\n"

# A hopper soon falls, and a cheetah runs for a thousand steps. With large matrices a signal may find the stack pointer
# where it should not be: `signals_off_the_heap`.
KINDS = {
    "short episodes": ("HopperBulletEnv-v0", []),
    "long episodes": ("HalfCheetahBulletEnv-v0", []),
    "large networks": ("HopperBulletEnv-v0", ["hidden=256,256", "batch_size=256"]),
}

# As users have it, whatever the suite itself runs in; and a start that is as cheap as can be.
VARIABLES = {
    "PYTHONUNBUFFERED": "",
    "PYTHONDONTWRITEBYTECODE": "",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

# What a moment is called, by the functions that the signal finds on the stack: the first that fits.
MOMENTS = {
    "finishing": {"session._finish"},
    "saving": {"session._save_checkpoint"},
    "compiling": {"compiler.backend_compile_and_load"},
    "evaluating": {"loop.evaluate"},
    "resuming": {"session._resume"},
    "training": {"session._records", "display.show"},
    "leaving": {"session.__exit__", "display.__exit__", "train._stopped"},
    "starting": {"cli.main"},
}
TO_BE_SAVED = {"saving", "evaluating", "training"}  # at these moments a single signal is not to lose anything

# A handler first notes where the interpreter was. Until a signal comes nothing is different; nobody sees the wrapper.
NOTES = """
import os, signal
set_handler, get_handler = signal.signal, signal.getsignal

def noting(handler):
    def note(number, frame):
        functions, at = [], frame
        while at is not None:
            module = os.path.basename(at.f_code.co_filename).removesuffix(".py")
            functions.append(f"{module}.{at.f_code.co_name}")
            at = at.f_back
        with open(os.environ["NOTES"], "a") as file:
            print(*functions, file=file)
        handler(number, frame)

    note.noted = handler
    return note

def bare(handler):
    return getattr(handler, "noted", handler)

def set_noting(number, handler):
    ours = callable(handler) and handler is not signal.default_int_handler
    return bare(set_handler(number, noting(handler) if ours else handler))

signal.signal, signal.getsignal = set_noting, lambda number: bare(get_handler(number))
"""


def train(kind, threads, out):
    """Many checkpoints, and mostly small networks: what a signal may hit comes soon, and often."""
    env, settings = KINDS[kind]
    extra = ["--eval-every", str(EVAL_EVERY), "--eval-episodes", "1", "--checkpoint-every", str(CHECKPOINT_EVERY)]
    extra += ["--threads", str(threads)]
    return command("ddpg", env, out, steps=STEPS, settings=["warmup=200", *settings], extra=extra)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    @cache
    def run(kind, threads):
        folder = tmp_path_factory.mktemp("undisturbed") / "run"
        finish(train(kind, threads, folder), **VARIABLES)
        return folder

    return run


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A line for each signal, from all processes of a run of the suite, for those who wait for it or wonder."""
    path = tmp_path_factory.getbasetemp().parent / "signals.jsonl"

    def add(**about):
        with path.open("a") as file:
            file.write(json.dumps(about) + "\n")

    return add


def wait_for_a_moment(process, folder, rng, cold):
    """A random one, but not each as likely as it is long: a checkpoint is written in a few milliseconds."""
    wait_for(lambda: hears(process), process, pause=0.01)  # before that it is only an interpreter that begins
    before, written_before = newest(folder), being_written(folder).items()
    kind = rng.choices(["starting", "begun", "saved", "saving", "finishing"], [6, 4, 8, 4, 1])[0]
    if kind == "starting":
        longest = 5
    elif kind == "begun" or cold:
        wait_for(lambda: holds_lock(process, folder), process, pause=0.01)
        longest = 12 if cold else 1.5
    elif kind == "saved":
        wait_for(lambda: newest(folder) != before, process, pause=0.01)
        longest = 1.5
    elif kind == "saving":
        wait_for(lambda: being_written(folder).items() - written_before, process, pause=0.002)
        longest = 0.005
    else:
        wait_for((folder / "policy.safetensors").exists, process, pause=0.01)
        longest = 1.5
    time.sleep(rng.uniform(0, longest))


def require_whole(folder):
    """Every checkpoint that counts, with its part of the replay memory."""
    for path in (folder / "checkpoints").glob("*.json"):
        content = read_sealed(path)
        read_arrays(path.with_suffix(".safetensors"), content["state"])
        if not (folder / "result.json").exists():
            for start, stop, sha256 in content["replay"]:
                read_arrays(folder / "replay" / f"{start:09d}-{stop:09d}.safetensors", sha256)


def heard(notes, folder):
    """How many signals were heard, and the moment of the first; None if it came too late to be."""
    if not notes.exists():
        return 0, None
    first, *more = notes.read_text().splitlines()
    if (folder / "result.json").exists():  # also while the curve's library is loaded
        return 1 + len(more), "finishing"
    return 1 + len(more), next(name for name, some in MOMENTS.items() if some & set(first.split()))


def interrupt(argv, folder, notes, rng, cold):
    """Start it and send it a signal, one time in eight two; gives how many it heard, the moment, and how it ended."""
    notes.unlink(missing_ok=True)
    before = newest(folder)
    variables = {**begun_with(NOTES, notes.parent), "NOTES": str(notes), **VARIABLES}
    if cold:
        variables["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    process = start(argv, **variables)
    wait_for_a_moment(process, folder, rng, cold)
    numbers = [rng.choice([signal.SIGTERM, signal.SIGINT]) for _ in range(2 if rng.random() < 1 / 8 else 1)]
    for i, number in enumerate(numbers):
        time.sleep(rng.uniform(0, 0.1) if i else 0)
        process.send_signal(number)
    out, err = process.communicate(timeout=300)

    (signals, moment), code = heard(notes, folder), process.returncode
    assert code in {0, *(128 + number for number in numbers)}, (numbers, moment, code, out, err)
    if code == 0:
        ended = "finished"
        assert (err, (folder / "result.json").exists()) == ("", True), (moment, out, err)
        assert f"inished: {STEPS:,} steps" in out
    elif err:
        ended = "one line"
        assert err == INTERRUPTED, (numbers, moment, code, out, err)
        assert len(numbers) == 2 or moment not in TO_BE_SAVED, (moment, code, out)
    else:
        ended = "saved"
        name = signal.Signals(code - 128).name
        assert f"{name}: saved at step {newest(folder):,} of {STEPS:,}; the same command continues" in out, (
            moment,
            out,
        )
    if before and ended != "one line" and "Already finished" not in out:
        assert f"resumed at step {before:,}" in out
    assert newest(folder) >= before
    require_whole(folder)
    return signals, moment or "too late", ended


@pytest.mark.parametrize("number", range(-(-SIGNALS // EACH)))
def test_signals(number, undisturbed, tmp_path, count, log):
    rng, threads, cold = random.Random(number), 1 + number % 2, number % 20 in (4, 9)
    kind = {1: "long episodes", 3: "large networks"}.get(number % 5, "short episodes")
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip("there is one core")
    folder, notes = tmp_path / "run", tmp_path / "notes" / "moments"
    argv, total, sent, compared = train(kind, threads, folder), Counter(), 0, 0

    def compare():
        finish(argv, **VARIABLES)
        assert_same_run(undisturbed(kind, threads), folder)
        shutil.rmtree(folder)

    while sent < min(EACH, SIGNALS - number * EACH):
        signals, moment, ended = interrupt(argv, folder, notes, rng, cold)
        log(test=number, kind=kind, threads=threads, cold=cold, signals=signals, moment=moment, ended=ended)
        if moment == "too late":
            total["runs that had ended before the signal came"] += 1
        else:
            total.update({"signals": signals, f"first signal while {moment}: {ended}": 1})
            sent += signals
        if (folder / "result.json").exists():
            compare()
            compared += 1
    if folder.exists():
        compare()
        compared += 1
    count(**total, runs_that_ended_with_equal_bits=compared)
