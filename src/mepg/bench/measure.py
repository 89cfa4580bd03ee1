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
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date

import numpy as np
import numpy.typing as npt

from mepg import system
from mepg.algos import find
from mepg.bench.peers import Peer
from mepg.bench.worker import Task
from mepg.errors import RunFailure
from mepg.native.build import CannotBuild, find_compiler
from mepg.signals import cleaning_up, process_group
from mepg.storage.files import JsonObject
from mepg.storage.folder import versions

MAIN = ("me-ddpg", "ddpg", "td3", "me-sac", "sac")
ENSEMBLES = ("redq", "redq-ours", "redq-utd20", "droq", "sunrise", "sunrise-ucb", "ace-flat", "ace")
OTHERS = (  # that the paper does not have
    "tqc", "me-tqc", "crossq", "me-crossq",
    "dqn", "me-dqn", "qr-dqn", "me-qr-dqn", "sac-discrete", "me-sac-discrete",
)  # fmt: skip
HOPPER, ANT, CHEETAH = "HopperBulletEnv-v0", "AntBulletEnv-v0", "HalfCheetahBulletEnv-v0"
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
# Other libraries update their targets at every update, but TD3's with its policy.
AS_PEERS = {"td3": (), "ddpg": ("target_every=1",), "sac": ("target_every=1",)}
# The same for SBX's other algorithms: it asks the target network which action is best, and epsilon is what it ends at.
AS_SBX = {
    "dqn": (CARTPOLE, ("double=false", "epsilon.start=0.05")),
    "tqc": (HOPPER, ("target_every=1",)),
    "crossq": (HOPPER, ()),
}
SMALL, SMALL_ENV = ("hidden=64,64", "batch_size=100"), "InvertedPendulumBulletEnv-v0"
STEPS = 40  # of a loop, in one turn

Turns = list[dict[str, float]]  # the answers of one contender
ShowProgress = Callable[[str, int, int], None]  # title, turn, rounds


class Contender:
    """A process that works when it is told to, on cores of its own: ours, or another library's."""

    def __init__(self, task: Task, cores: Iterable[int], peer: Peer | None = None, cache: str = "") -> None:
        self._cores = set(cores)
        threads = str(len(self._cores))
        pools = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
        environment = dict(os.environ) | dict.fromkeys(pools, threads)
        if cache:
            environment["XDG_CACHE_HOME"] = cache
        command = [sys.executable, "-m", "mepg.bench.worker"] if peer is None else peer.command
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        command.append(json.dumps({"steps": STEPS, **task, "threads": len(self._cores), "parent": os.getpid()}))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._open = contextlib.ExitStack()
        self._process = self._open.enter_context(process_group(command, text=True, env=environment, **pipes))
        self._name = " ".join([task.get("algorithm", task["env"]), *task.get("set", ())])

    def wait_until_ready(self) -> None:
        """It may prepare on any core; from then on it has its own."""
        self.answer()
        self.pin()

    def pin(self) -> None:
        """Keep it on its cores from now on."""
        system.pin(self._cores, self._process.pid)

    def start_turn(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, float]:
        """Wait for the end of a turn, and read what was measured in it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        self._errors.seek(0)
        last = [line.strip() for line in self._errors if line.strip()][-1:]
        raise RunFailure(f"the benchmark of {self._name} ended: {' '.join(last) or 'without a word'}")

    def close(self) -> None:
        self._open.close()
        self._errors.close()


def in_turns(
    title: str, contenders: Mapping[str, Contender], rounds: int, progress: ShowProgress, *, together: bool = False
) -> dict[str, Turns]:
    """`rounds` turns of each contender: one after the other, or all `together`."""
    turns: dict[str, Turns] = {name: [] for name in contenders}
    groups = [list(contenders)] if together else [[name] for name in contenders]
    with contextlib.ExitStack() as stack:
        for contender in contenders.values():
            stack.callback(contender.close)
        progress(f"{title}: starting", 0, rounds)
        for contender in contenders.values():
            contender.wait_until_ready()
        for turn in range(rounds):
            progress(title, turn, rounds)
            for group in groups:
                for name in group:
                    contenders[name].start_turn()
                for name in group:
                    turns[name].append(contenders[name].answer())
    return turns


class Benchmark:
    """All measurements, on one core unless they say otherwise."""

    def __init__(self, rounds: int, peers: Sequence[Peer], progress: ShowProgress) -> None:
        self._rounds, self._progress = rounds, progress
        self._peers = {peer.name: peer for peer in peers}
        self._cores = system.cores()

    def results(self) -> JsonObject:
        """As bench.json has them: a quarter of an hour, and longer with other libraries."""
        several = len(self._cores) > 1
        return {
            "about": self._about(),
            "updates": self._updates(),
            "loops": {env: self._loops(env) for env in (HOPPER, ANT)},
            "beyond": self._loops_of_others(),
            **({"two_runs": self._two_runs()} if several else {}),
            "pendulum": self._pendulum(),
            "simulators": self._simulators(),
            "evaluation": self._evaluation(),
            "memory": self._memory(),
            "first_step": self._first_step(),
        }

    def updates_of(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """The updates of some algorithms against their multiplications, and ME-SAC's to compare them with."""
        turns = self._in_turns("updates, one core", {name: _update(name) for name in ("me-sac", *names)})
        return {name: _against_multiplications(own, turns["me-sac"]) for name, own in turns.items()}

    def _about(self) -> JsonObject:
        return {
            "date": date.today().isoformat(),
            "processor": system.processor_name(),
            "cores": len(self._cores),
            "versions": versions(),
            "commit": versions().get("commit"),
        }

    def _in_turns(self, title: str, tasks: Mapping[str, Task], rounds: int = 0) -> dict[str, Turns]:
        """A contender for each task: by the library that it names, on one core unless it asks for all."""
        contenders = {}
        for name, task in tasks.items():
            cores = self._cores if task.get("all_cores") else self._cores[-1:]
            contenders[name] = Contender(task, cores, self._peers.get(task.get("library", "")))
        return in_turns(title, contenders, rounds or self._rounds, self._progress)

    def _updates(self) -> dict[str, dict[str, float]]:
        tasks = {name: _update(name) for name in (*MAIN, *ENSEMBLES)}
        tasks |= {f"{name} mixed": _update(name, "precision=mixed") for name in (*MAIN, "redq")}
        tasks |= {f"{name} small": _update(name, *SMALL, env=SMALL_ENV) for name in MAIN}
        turns = self._in_turns("updates, one core", tasks)
        if len(self._cores) > 1:
            on_all: dict[str, Task] = {f"{name} all cores": {**_update(name), "all_cores": True} for name in MAIN}
            turns |= self._in_turns("updates, all cores", on_all)
        updates = {name: _against_multiplications(own, turns["me-sac"]) for name, own in turns.items()}
        # After the others have ended, beside an ME-SAC of their own.
        others = self.updates_of(OTHERS)
        return updates | {name: others[name] for name in OTHERS}

    def _loops(self, env: str) -> dict[str, dict[str, float]]:
        """Training steps, ours and others', the same work in each."""
        tasks = {name: _loop(name, env) for name in (*MAIN, "redq-ours", "sunrise")}
        with contextlib.suppress(CannotBuild):
            find_compiler()  # without one, the first ones are XLA's anyway
            tasks |= {f"{name} by XLA": {**_loop(name, env), "backend": "xla"} for name in MAIN}
        tasks |= {f"{name} mixed": _loop(name, env, "precision=mixed") for name in MAIN}
        if len(self._cores) > 1:
            tasks |= {f"{name} all cores": {**_loop(name, env), "all_cores": True} for name in MAIN}
        if self._peers:
            changed = {name: settings for name, settings in AS_PEERS.items() if settings}
            tasks |= {f"{name} as peers": _loop(name, env, *settings) for name, settings in changed.items()}
        for library in self._peers:
            for name in AS_PEERS if library != "rltools" else ():  # which has no PyBullet
                tasks[f"{name} in {library}"] = {**_loop(name, env), "library": library}
        turns = self._in_turns(f"loop on {env}", tasks)
        return {name: _speed(own) for name, own in turns.items()}

    def _loops_of_others(self) -> dict[str, dict[str, float]]:
        """Algorithms that the paper does not have, with a mask, without and SBX's, the same work in each."""
        turns: dict[str, Turns] = {}
        for name, (env, settings) in AS_SBX.items():
            tasks = {each: _loop(each, env, *settings) for each in (f"me-{name}", name)}
            if "sbx" in self._peers:
                tasks[f"{name} in sbx"] = {**tasks[name], "library": "sbx"}
            turns |= self._in_turns(f"loop of {name} on {env}", tasks)
        return {name: _speed(own) for name, own in turns.items()}

    def _two_runs(self) -> dict[str, dict[str, float]]:
        """Steps per second of two runs at once, a core each."""
        speeds = {}
        for name, settings in (("me-ddpg", ()), ("me-ddpg mixed", ("precision=mixed",))):
            pair = {str(core): Contender(_loop("me-ddpg", HOPPER, *settings), [core]) for core in self._cores[:2]}
            turns = in_turns(f"two runs of {name} at once", pair, self._rounds, self._progress, together=True)
            speeds[name] = {
                "steps_per_second": 2 / float(np.median([column(own, "seconds") for own in turns.values()]))
            }
        return speeds

    def _pendulum(self) -> dict[str, float]:
        """Microseconds of processor time of a step with small networks; RLtools' beside ours."""
        tasks = {"sac": _loop("sac", PENDULUM, *SMALL, "target_every=1"), "me-sac": _loop("me-sac", PENDULUM, *SMALL)}
        if "rltools" in self._peers:
            tasks["sac in rltools"] = {**_loop("sac", PENDULUM, *SMALL), "library": "rltools"}
        turns = self._in_turns(f"loop on {PENDULUM}, small networks", tasks)
        return {name: median(own, "processor") * 1e6 for name, own in turns.items()}

    def _simulators(self) -> dict[str, dict[str, float]]:
        """Microseconds of a step of environments, as they come and through this package."""
        tasks: dict[str, Task] = {env: {"measurement": "simulator", "env": env} for env in (HOPPER, ANT, PENDULUM)}
        results = {}
        for env, turns in self._in_turns("environments", tasks).items():
            results[env] = {
                "as_it_comes": median(turns, "environment") * 1e6,
                "here": median(turns, "seconds") * 1e6,
                "ratio": median_ratio(turns, "seconds", "environment"),
            }
        return results

    def _evaluation(self) -> dict[str, float]:
        """Ten whole episodes of a task that never ends early, against the 5,000 steps between two evaluations."""
        task: Task = {"measurement": "evaluation", "algorithm": "me-sac", "env": CHEETAH}
        turns = self._in_turns("evaluation", {"me-sac": task}, rounds=3)["me-sac"]
        step, evaluation = median(turns, "seconds"), median(turns, "evaluation")
        return {"seconds": evaluation, "steps": turns[0]["evaluation_steps"], "adds": evaluation / (5_000 * step)}

    def _memory(self) -> dict[str, float]:
        """Megabytes that a run on Hopper holds when its replay buffer has its 1,000,000 transitions."""
        tasks: dict[str, Task] = {name: {**_loop(name, HOPPER), "measurement": "memory"} for name in ("me-sac", "sac")}
        for library in self._peers:
            if library != "rltools":  # which has no PyBullet
                tasks[f"sac in {library}"] = {**tasks["sac"], "library": library}
        turns = self._in_turns("memory", tasks, rounds=1)
        return {name: own[0]["resident"] for name, own in turns.items()}

    def _first_step(self) -> dict[str, float]:
        """Seconds from the command to the first step with an update: with nothing compiled yet, and the second time."""
        task: Task = {"measurement": "first_step", "algorithm": "me-sac", "env": HOPPER}
        seconds = []
        cache = tempfile.mkdtemp(prefix="mepg-bench-")
        with cleaning_up(lambda: shutil.rmtree(cache, ignore_errors=True)):
            for turn in range(4):
                self._progress("time to the first step", turn, 4)
                start = time.perf_counter()
                with contextlib.closing(Contender(task, self._cores[-1:], cache=cache)) as contender:
                    contender.answer()
                    seconds.append(time.perf_counter() - start)
        return {"first_start": seconds[0], "second_start": float(np.median(seconds[1:]))}


def _update(name: str, *settings: str, env: str = "") -> Task:
    usual = ANT if "box" in find(name).actions else CARTPOLE
    return {"measurement": "updates", "algorithm": name, "env": env or usual, "set": settings}


def _loop(name: str, env: str, *settings: str) -> Task:
    return {"measurement": "loop", "algorithm": name, "env": env, "set": settings}


def _against_multiplications(turns: Turns, of_me_sac: Turns) -> dict[str, float]:
    native = {}
    if "native" in turns[0]:
        native = {
            "native_milliseconds": median(turns, "native") * 1e3,
            "native_ratio": median_ratio(turns, "native", "multiplications"),
            "native_gain": median_ratio(turns, "seconds", "native"),
        }
    if "native_alone" in turns[0]:
        native["native_threads_gain"] = median_ratio(turns, "native_alone", "native")
    return {
        **native,
        "mflop": turns[0]["mflop"],
        "milliseconds": median(turns, "seconds") * 1e3,
        "multiplications_milliseconds": median(turns, "multiplications") * 1e3,
        "ratio": median_ratio(turns, "seconds", "multiplications"),
        "ratio_of_minima": float(column(turns, "seconds").min() / column(turns, "multiplications").min()),
        "relative_to_me_sac": median(turns, "seconds") / median(of_me_sac, "seconds"),
    }


def _speed(turns: Turns) -> dict[str, float]:
    speed = {"steps_per_second": 1 / median(turns, "seconds"), "megabytes": turns[-1]["megabytes"]}
    if "environment" in turns[0]:  # another library's worker does not know
        floor = column(turns, "environment") + column(turns, "multiplications")
        speed["ratio"] = float(np.median(column(turns, "seconds") / floor))
        speed["floor_steps_per_second"] = float(1 / np.median(floor))
    return speed


def column(turns: Turns, name: str) -> npt.NDArray[np.float64]:
    """One quantity, for each turn."""
    return np.array([answer[name] for answer in turns])


def median(turns: Turns, name: str) -> float:
    """Of one quantity, over the turns."""
    return float(np.median(column(turns, name)))


def median_ratio(turns: Turns, numerator: str, denominator: str) -> float:
    """Of two quantities measured in the same turn."""
    return float(np.median(column(turns, numerator) / column(turns, denominator)))
