"""What is measured, and how: everything that is compared runs in turns, so that noise hits all alike."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from mepg import system
from mepg.algos import find
from mepg.bench.peers import Peer
from mepg.errors import RunFailure
from mepg.native.build import CannotBuild, find_compiler
from mepg.signals import cleaning_up
from mepg.storage.folder import versions

MAIN = ("me-ddpg", "ddpg", "td3", "me-sac", "sac")
ENSEMBLES = ("redq", "redq-ours", "redq-utd20", "droq", "sunrise", "sunrise-ucb", "ace-flat", "ace")
BEYOND = (
    "tqc", "me-tqc", "crossq", "me-crossq",
    "dqn", "me-dqn", "qr-dqn", "me-qr-dqn", "sac-discrete", "me-sac-discrete",
)  # fmt: skip
UPDATE_ENV, LOOP_ENVS, EVALUATION_ENV = (
    "AntBulletEnv-v0",
    ("HopperBulletEnv-v0", "AntBulletEnv-v0"),
    "HalfCheetahBulletEnv-v0",
)
DISCRETE_ENV = "CartPole-v1"
# Other libraries move their targets at every update, but TD3's with its policy.
AS_PEERS = {"td3": (), "ddpg": ("target_every=1",), "sac": ("target_every=1",)}
# The same for SBX's other algorithms: it asks the target network which action is best, and epsilon is what it ends at.
AS_SBX = {
    "dqn": (DISCRETE_ENV, ("double=false", "epsilon.start=0.05")),
    "tqc": (LOOP_ENVS[0], ("target_every=1",)),
    "crossq": (LOOP_ENVS[0], ()),
}
GROWTH = {
    "batch_size": ("64", "256", "1024"),
    "hidden": ("64,64", "256,256", "1024,1024"),
    "critics": ("1", "2", "5", "10"),
}
SMALL, SMALL_ENV = ("hidden=64,64", "batch_size=100"), "InvertedPendulumBulletEnv-v0"
PENDULUM = "Pendulum-v1"
STEPS = 40  # of a loop, in one turn

Answers = list[dict[str, float]]
Watch = Callable[[str, int, int], None]  # what, turn, of how many


class Contender:
    """A process that works when it is told to, on cores of its own."""

    def __init__(self, task: dict[str, Any], cores: Iterable[int], peer: Peer | None = None, cache: str = "") -> None:
        self._cores = set(cores)
        threads = str(len(self._cores))
        pools = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
        environment = dict(os.environ) | dict.fromkeys(pools, threads)
        if cache:
            environment["XDG_CACHE_HOME"] = cache
        command = [sys.executable, "-m", "mepg.bench.worker"] if peer is None else peer.command
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [*command, json.dumps({**task, "threads": len(self._cores), "steps": STEPS})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._name = " ".join([task["algorithm"], *task.get("set", ())])

    def settle(self) -> None:
        """Wait until it is prepared, for which it may use any core; from then on it has its own."""
        self.wait()
        system.pin(self._cores, self._process.pid)

    def wait(self) -> dict[str, float]:
        """The answer."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        self._errors.seek(0)
        last = [line.strip() for line in self._errors if line.strip()][-1:]
        raise RunFailure(f"the benchmark of {self._name} ended: {' '.join(last) or 'without a word'}")

    def tell(self) -> None:
        """One more turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        with self._process:  # closes its pipes
            pass
        self._errors.close()


def _close(contenders: Iterable[Contender]) -> None:
    for contender in contenders:
        contender.close()


def in_turns(what: str, contenders: dict[str, Contender], rounds: int, watch: Watch) -> dict[str, Answers]:
    """`rounds` turns of each, one after the other, never two at once."""
    answers: dict[str, Answers] = {name: [] for name in contenders}
    with cleaning_up(lambda: _close(contenders.values())):
        watch(f"{what}: starting", 0, rounds)
        for contender in contenders.values():
            contender.settle()
        for turn in range(rounds):
            watch(what, turn, rounds)
            for name, contender in contenders.items():
                contender.tell()
                answers[name].append(contender.wait())
    return answers


def measure(rounds: int, peers: list[Peer], watch: Watch) -> dict[str, Any]:
    """Every measurement: a quarter of an hour, and longer with other libraries."""
    cores = system.cores()
    one = cores[-1:]
    results: dict[str, Any] = {"about": _about(cores)}
    results["updates"] = {**_updates(rounds, one, cores, watch), **_updates_beyond(rounds, watch)}
    results["loops"] = {env: _loops(env, rounds, one, cores, peers, watch) for env in LOOP_ENVS}
    results["beyond"] = _loops_beyond(rounds, one, peers, watch)
    if len(cores) > 1:
        results["two_runs"] = _two_runs(rounds, cores, watch)
    results["pendulum"] = _pendulum(rounds, one, peers, watch)
    results["simulators"] = _simulators(rounds, one, watch)
    results["evaluation"] = _evaluation(one, watch)
    results["first_step"] = _first_step(one, watch)
    results["growth"] = _growth(max(rounds // 4, 3), one, watch)
    return results


def _about(cores: list[int]) -> dict[str, Any]:
    here = Path(__file__).parent
    git = subprocess.run(
        ["git", "-C", here, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "date": date.today().isoformat(),
        "processor": system.processor_name(),
        "cores": len(cores),
        "versions": versions(),
        "commit": git.stdout.strip() or None,
    }


def measure_updates(names: Iterable[str], rounds: int, watch: Watch) -> dict[str, Any]:
    """The updates of some algorithms, and ME-SAC's to compare them with, on one core."""
    one = system.cores()[-1:]
    contenders = {name: Contender(_update(name), one) for name in ("me-sac", *names)}
    answers = in_turns("updates, one core", contenders, rounds, watch)
    return {name: _against_multiplications(turns, answers["me-sac"]) for name, turns in answers.items()}


def _update(name: str, *settings: str, env: str = "") -> dict[str, Any]:
    usual = UPDATE_ENV if "box" in find(name).actions else DISCRETE_ENV
    return {"what": "updates", "algorithm": name, "env": env or usual, "set": settings}


def _updates(rounds: int, one: list[int], cores: list[int], watch: Watch) -> dict[str, Any]:
    """Each algorithm's update against its multiplications."""
    contenders = {name: Contender(_update(name), one) for name in (*MAIN, *ENSEMBLES)}
    contenders |= {f"{name} mixed": Contender(_update(name, "precision=mixed"), one) for name in (*MAIN, "redq")}
    contenders |= {f"{name} small": Contender(_update(name, *SMALL, env=SMALL_ENV), one) for name in MAIN}
    answers = in_turns("updates, one core", contenders, rounds, watch)
    if len(cores) > 1:
        contenders = {f"{name} all cores": Contender(_update(name), cores) for name in MAIN}
        answers |= in_turns("updates, all cores", contenders, rounds, watch)
    return {name: _against_multiplications(turns, answers["me-sac"]) for name, turns in answers.items()}


def _updates_beyond(rounds: int, watch: Watch) -> dict[str, Any]:
    """The same of algorithms that the paper has not: beside an ME-SAC of their own, after the others have gone."""
    updates = measure_updates(BEYOND, rounds, watch)
    return {name: updates[name] for name in BEYOND}


def _against_multiplications(turns: Answers, of_me_sac: Answers) -> dict[str, float]:
    ours, bare = column(turns, "seconds"), column(turns, "multiplications")
    native = {}
    if "native" in turns[0]:
        fast = column(turns, "native")
        native = {
            "native_milliseconds": float(np.median(fast) * 1e3),
            "native_ratio": float(np.median(fast / bare)),
            "native_gain": float(np.median(ours / fast)),
        }
        if "native_alone" in turns[0]:
            native["native_threads_gain"] = float(np.median(column(turns, "native_alone") / fast))
    return {
        **native,
        "mflop": turns[0]["mflop"],
        "milliseconds": float(np.median(ours) * 1e3),
        "multiplications_milliseconds": float(np.median(bare) * 1e3),
        "ratio": float(np.median(ours / bare)),
        "ratio_of_minima": float(ours.min() / bare.min()),
        "relative_to_me_sac": float(np.median(ours) / np.median(column(of_me_sac, "seconds"))),
    }


def _loops(
    env: str, rounds: int, one: list[int], cores: list[int], peers: list[Peer], watch: Watch
) -> dict[str, dict[str, float]]:
    """Training steps, ours and others', the same work in each."""

    def task(name: str, *settings: str) -> dict[str, Any]:
        return {"what": "loop", "algorithm": name, "env": env, "set": settings}

    contenders = {name: Contender(task(name), one) for name in (*MAIN, "redq-ours", "sunrise")}
    with contextlib.suppress(CannotBuild):
        find_compiler()  # or the others are XLA's anyway
        contenders |= {f"{name} by XLA": Contender({**task(name), "backend": "xla"}, one) for name in MAIN}
    contenders |= {f"{name} mixed": Contender(task(name, "precision=mixed"), one) for name in MAIN}
    if len(cores) > 1:
        contenders |= {f"{name} all cores": Contender(task(name), cores) for name in MAIN}
    if peers:
        contenders |= {f"{name} as peers": Contender(task(name, *more), one) for name, more in AS_PEERS.items() if more}
    for peer in peers:
        for name in AS_PEERS if peer.name != "rltools" else ():  # which has no PyBullet
            contenders[f"{name} in {peer.name}"] = Contender({**task(name), "library": peer.name}, one, peer)
    answers = in_turns(f"loop on {env}", contenders, rounds, watch)
    return {name: _speed(turns) for name, turns in answers.items()}


def _loops_beyond(rounds: int, one: list[int], peers: list[Peer], watch: Watch) -> dict[str, dict[str, float]]:
    """Training steps of algorithms that the paper has not, with a mask, without and SBX's, the same work in each."""
    answers: dict[str, Answers] = {}
    for name, (env, settings) in AS_SBX.items():
        task = {"what": "loop", "env": env, "set": settings}
        contenders = {each: Contender({**task, "algorithm": each}, one) for each in (f"me-{name}", name)}
        for peer in peers:
            if peer.name == "sbx":
                theirs = {**task, "algorithm": name, "library": peer.name}
                contenders[f"{name} in {peer.name}"] = Contender(theirs, one, peer)
        answers |= in_turns(f"loop of {name} on {env}", contenders, rounds, watch)
    return {name: _speed(turns) for name, turns in answers.items()}


def _speed(turns: Answers) -> dict[str, float]:
    seconds = column(turns, "seconds")
    speed = {"steps_per_second": float(1 / np.median(seconds)), "megabytes": turns[-1]["megabytes"]}
    if "environment" in turns[0]:  # another library's worker does not know
        floor = column(turns, "environment") + column(turns, "multiplications")
        speed["ratio"] = float(np.median(seconds / floor))
        speed["floor_steps_per_second"] = float(1 / np.median(floor))
    return speed


def _two_runs(rounds: int, cores: list[int], watch: Watch) -> dict[str, dict[str, float]]:
    """Steps per second of two runs at once, and of one alone."""
    tasks = {
        f"me-ddpg{' ' + precision if precision == 'mixed' else ''}": [f"precision={precision}"]
        for precision in ("full", "mixed")
    }
    return {name: _pair(name, settings, rounds, cores, watch) for name, settings in tasks.items()}


def _pair(name: str, settings: list[str], rounds: int, cores: list[int], watch: Watch) -> dict[str, float]:
    task = {"what": "loop", "algorithm": "me-ddpg", "env": LOOP_ENVS[0], "set": settings}
    pair = [Contender(task, [core]) for core in cores[:2]]
    alone, together = [], []
    with cleaning_up(lambda: _close(pair)):
        for run in pair:
            run.settle()
        for turn in range(rounds):
            watch(f"two runs of {name} at once", turn, rounds)
            for run in pair:
                run.tell()
                alone.append(run.wait()["seconds"])
            for run in pair:
                run.tell()
            together += [run.wait()["seconds"] for run in pair]
    return {
        "throughput_against_one": float(2 * np.median(alone) / np.median(together)),
        "steps_per_second": float(2 / np.median(together)),
    }


def _pendulum(rounds: int, one: list[int], peers: list[Peer], watch: Watch) -> dict[str, float]:
    """Microseconds of processor time of a step with small networks, on Gymnasium's Pendulum; RLtools' beside ours."""
    task = {"what": "loop", "env": PENDULUM, "set": SMALL}
    settings = {"sac": [*SMALL, "target_every=1"], "me-sac": list(SMALL)}
    contenders = {name: Contender({**task, "algorithm": name, "set": more}, one) for name, more in settings.items()}
    for peer in peers:
        if peer.name == "rltools":
            contenders["sac in rltools"] = Contender({**task, "algorithm": "sac", "library": "rltools"}, one, peer)
    answers = in_turns(f"loop on {PENDULUM}, small networks", contenders, rounds, watch)
    return {name: float(np.median(column(turns, "processor")) * 1e6) for name, turns in answers.items()}


def _simulators(rounds: int, one: list[int], watch: Watch) -> dict[str, dict[str, float]]:
    """Microseconds of a step in environments, as they come and through this package."""
    tasks = {env: {"what": "simulator", "algorithm": "", "env": env} for env in (*LOOP_ENVS, PENDULUM)}
    contenders = {env: Contender(task, one) for env, task in tasks.items()}
    answers = in_turns("environments", contenders, rounds, watch)
    return {
        env: {
            "as_it_comes": float(np.median(column(turns, "environment")) * 1e6),
            "here": float(np.median(column(turns, "seconds")) * 1e6),
            "ratio": float(np.median(column(turns, "seconds") / column(turns, "environment"))),
        }
        for env, turns in answers.items()
    }


def _evaluation(one: list[int], watch: Watch) -> dict[str, float]:
    """Ten whole episodes of a task that never ends early, against the 5,000 steps between two evaluations."""
    task = {"what": "evaluation", "algorithm": "me-sac", "env": EVALUATION_ENV}
    turns = in_turns("evaluation", {"me-sac": Contender(task, one)}, 3, watch)["me-sac"]
    step, evaluation = np.median(column(turns, "seconds")), np.median(column(turns, "evaluation"))
    return {
        "seconds": float(evaluation),
        "steps": turns[0]["evaluation_steps"],
        "adds": float(evaluation / (5_000 * step)),
    }


def _first_step(one: list[int], watch: Watch) -> dict[str, float]:
    """Seconds from the command to the first step with an update: with nothing compiled yet, and the second time."""
    task = {"what": "first_step", "algorithm": "me-sac", "env": LOOP_ENVS[0]}
    seconds = []
    cache = tempfile.mkdtemp(prefix="mepg-bench-")
    with cleaning_up(lambda: shutil.rmtree(cache, ignore_errors=True)):
        for turn in range(4):
            watch("time to the first step", turn, 4)
            began = time.perf_counter()
            contender = Contender(task, one, cache=cache)
            contender.wait()
            seconds.append(time.perf_counter() - began)
            contender.close()
    return {"first_start": seconds[0], "second_start": float(np.median(seconds[1:]))}


def _growth(rounds: int, one: list[int], watch: Watch) -> dict[str, dict[str, float]]:
    """Milliseconds of an update as one thing grows."""
    growth = {}
    for field, values in GROWTH.items():
        tasks = {
            value: {"what": "updates", "algorithm": "me-sac", "env": UPDATE_ENV, "set": [f"{field}={value}"]}
            for value in values
        }
        contenders = {value: Contender(task, one) for value, task in tasks.items()}
        answers = in_turns(f"growth of {field}", contenders, rounds, watch)
        growth[field] = {value: float(np.median(column(turns, "seconds")) * 1e3) for value, turns in answers.items()}
    return growth


def column(answers: Answers, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One quantity, for each turn."""
    return np.array([answer[name] for answer in answers])
