"""What all tests share. The number of threads is part of a run's bits, so it is set here too."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

# Most of the time would go into compiling the same programs again, here and in the processes that tests start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".pytest_cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
# Nor is everything compiled by g++ as well: tests that want native code ask for the fixture `native`.
os.environ["CXX"] = ""

import gymnasium
import jax
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.types import Batch, Sizes
from mepg.envs.simulators import has_pybullet
from mepg.envs.spaces import Spaces
from mepg.system import release_free_memory, resident_memory
from mepg.training.threads import limit_threads

limit_threads(1)

SIZES = Sizes(obs=3, action=2)
SPACES = Spaces("Any-v0", gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-1, 1, (2,)))
DISCRETE = Sizes(obs=3, action=4, action_kind="discrete")
MAIN = ["ddpg", "td3", "sac", "me-ddpg", "me-sac"]
# Tasks for tests that are not about a simulator; the second has short episodes at first.
HOPPER = "HopperBulletEnv-v0" if has_pybullet() else "Hopper-v5"
PENDULUM = "InvertedPendulumBulletEnv-v0" if has_pybullet() else "InvertedPendulum-v5"

# Between them they have every mechanism and every kind of spec; the others differ in settings.
KINDS = [
    "td3",
    "me-ddpg",
    "me-ddpg-x",
    "me-sac",
    "me-sac+lcb",
    "redq",
    "droq",
    "sunrise-ucb",
    "ace",
    "ace-flat",
    "me-crossq",
]
KINDS += ["me-tqc", "me-dqn", "me-qr-dqn", "me-sac-discrete"]


def all_but_slow(values, quick):
    """Parameters of a test: all of these, of which `make test` takes the quick ones."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


EVERY_ALGORITHM = all_but_slow(algorithms(), KINDS)
# The same where an agent is only passed on: one for each kind of action, of network and of memory.
EVERY_AGENT = all_but_slow(algorithms(), ["me-sac", "ace", "me-tqc", "me-crossq", "me-dqn"])


def sizes_of(name: str) -> Sizes:
    """Sizes that the algorithm can use."""
    return SIZES if "box" in algorithms()[name].actions else DISCRETE


def make_batch(size: int = 16, sizes: Sizes = SIZES, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    box = sizes.action_kind == "box"
    return Batch(
        obs=draw(size, sizes.obs),
        action=np.tanh(draw(size, sizes.action)) if box else np.float32(rng.integers(sizes.action, size=(size, 1))),
        reward=draw(size),
        discount=(rng.random(size) < 0.9).astype(np.float32),
        next_obs=draw(size, sizes.obs),
        number=rng.integers(10**6, size=size).astype(np.int32),
    )


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Half of the tests' time would go into optimising programs that run a few times.
jit_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def leaves_equal(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """A process may have 65,530 pieces of mapped memory, and every compiled program takes some: beyond, JAX crashes.

    Two processes that hold 6 GB each are too much for many a machine.
    """
    yield
    maps = Path("/proc/self/maps")  # Linux's
    crowded = not maps.exists() or maps.read_bytes().count(b"\n") > 30_000 or resident_memory() > 3 * 2**30
    if crowded:  # else the next module may use them too
        jax.clear_caches()
        release_free_memory()


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def compiler():
    """Skips where there is no C++ compiler."""
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("there is no C++ compiler")


@pytest.fixture
def native(monkeypatch, native_cache, compiler):
    """A C++ compiler may be used, here and in processes that the test starts; libraries are kept for the session."""
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("XDG_CACHE_HOME", str(native_cache))


@pytest.fixture
def batch() -> Batch:
    return make_batch()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "test_learning" not in item.nodeid)  # the longest first


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where PyBullet cannot be had (docs/machines.md), a test that asks for it is skipped, and says so."""
    report = yield
    if report.failed and not has_pybullet():
        words = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
        if re.search(r"needs PyBullet, which|No module named 'pybullet", words):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1], "Skipped: PyBullet cannot be had here")
    return report


# What was run, what was skipped and why, and what was left out: the last lines of `make test`.

LEFT_OUT = pytest.StashKey[Counter]()  # tests by their marker


def pytest_deselected(items):
    for item in items:
        marker = next((mark.name for mark in item.iter_markers() if mark.name in _targets(item.config)), "other")
        item.config.stash.setdefault(LEFT_OUT, Counter())[marker] += 1


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of pytest-xdist's, which all collect the same
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter, config):
    stats = terminalreporter.stats
    ran = {name: len(stats.get(name, ())) for name in ("passed", "failed", "error", "xfailed", "xpassed")}
    said = ", ".join(f"{count} {name}" for name, count in ran.items() if count)
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in stats.get("skipped", ()))
    terminalreporter.section("what was run")
    terminalreporter.line(f"run: {sum(ran.values())}" + (f" ({said})" if said else ""))
    terminalreporter.line(f"skipped: {reasons.total()}")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"  {count:>4}  {reason}")
    for name, number in sorted(_counted(stats.get("passed", ())).items()):
        terminalreporter.line(f"counted: {number:,} {name.replace('_', ' ')}")
    left_out = config.stash.get(LEFT_OUT, Counter())
    terminalreporter.line(f"left out: {left_out.total()}")
    for marker, count in left_out.most_common():
        terminalreporter.line(f"  {count:>4}  {marker}: {_targets(config).get(marker, 'not asked for')}")


def _counted(reports):
    """What tests counted with tests/faults' fixture `count`: kills by the kind of moment, signals, memory."""
    total = Counter()
    for report in reports:
        for name, numbers in report.user_properties:
            if name == "counted" and report.when == "call":
                total.update(numbers)
    return total


def _targets(config):
    """The make target that runs a marker's tests, from what pyproject.toml says about it."""
    found = (re.match(r"(\w+):.*(make [\w-]+) runs these", line) for line in config.getini("markers"))
    return {match[1]: f"{match[2]} runs these" for match in found if match}
