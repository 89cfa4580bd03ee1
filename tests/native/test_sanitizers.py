"""The generated C++ under sanitizers, as programs of their own: no access outside of memory, no undefined behaviour, no
race between two threads."""

import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.types import Sizes
from mepg.native import build
from mepg.native.library import State, as_words, compile_function
from mepg.native.processor import best_instructions

from .conftest import Case
from .test_ordinary_jax import GIVEN, GROUPS, together

HERE = Path(__file__).parent
KERNELS = Path(build.__file__).parent
MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RACES = ("-fsanitize=thread",)
COMPILERS = {"g++ -O1": ("g++", "-O1"), "g++ -O2": ("g++", "-O2"), "clang++ -O2": ("clang++", "-O2")}


def case(name, **settings):
    """Sizes that fit no vector; large enough for two threads to share something."""
    return Case(name, Sizes(7, 3), hidden=(70, 37), batch_size=33, **settings)


def run(case, folder, compiler, flags, threads=1, calls=3):
    """The sum of all that the program computes, or an error with what the sanitizer says."""
    given = [as_words(leaf).ravel() for leaf in jax.tree.leaves(case.arguments(1))]
    compiled = case.compile(threads=threads)
    written = [*given, *(table.ravel() for table in compiled._constants)]
    state = State.of(case.leaves)
    words = [state._memory.size, compiled._memory.size]
    counts = [len(written), *(each.size for each in written)]
    outputs = [int(np.prod(each.shape)) for each in compiled._outputs]
    header = np.array([*words, *counts, len(outputs), *outputs], np.int32)
    parts = [header, state._memory, *written]
    (folder / "given").write_bytes(b"".join(part.tobytes() for part in parts))
    (folder / "program.cpp").write_text(compiled.text)
    command = [
        *COMPILERS[compiler],
        "-g",
        "-std=c++20",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-w",
        "-pthread",
        *flags,
    ]
    parts = [*best_instructions().flags, f"-I{KERNELS}", "-o", str(folder / "program"), str(folder / "program.cpp")]
    made = subprocess.run([*command, *parts, str(HERE / "harness.cpp")], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    ran = subprocess.run(
        [str(folder / "program"), str(folder / "given"), str(calls)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    for _ in range(calls):
        found = compiled(state, *given)
    expected = sum(int(as_words(each).view(np.uint32).sum(dtype=np.uint64)) for each in (state._memory, *found))
    assert int(ran.stdout) == expected % 2**32, "sanitized, it computes something else"


class Ordinary:
    """Functions as users write them, beside a state that they do not touch."""

    leaves = (np.ones(3, np.float32),)

    def __init__(self, group):
        self._function = together(group)

    def arguments(self, _):
        return (GIVEN,)

    def compile(self, threads=1):
        return compile_function(lambda _, g: self._function(g), list(self.leaves), GIVEN, state="read", threads=threads)


def available(compiler):
    if shutil.which(COMPILERS[compiler][0]) is None:
        pytest.skip(f"{COMPILERS[compiler][0]} is not installed")


@pytest.mark.slow
def test_memory_and_behaviour(tmp_path):
    run(case("me-sac"), tmp_path, "g++ -O1", MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", list(algorithms()))
def test_memory_and_behaviour_of_every_algorithm(name, compiler, tmp_path):
    available(compiler)
    run(case(name), tmp_path, compiler, MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_mixed_precision(compiler, tmp_path):
    available(compiler)
    run(case("sac", precision="mixed"), tmp_path, compiler, MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(algorithms()))
def test_races_in_every_algorithm(name, tmp_path):
    run(case(name), tmp_path, "g++ -O1", RACES, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_memory_and_behaviour_of_ordinary_functions(group, tmp_path):
    run(Ordinary(group), tmp_path, "g++ -O1", MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_races_in_ordinary_functions(group, tmp_path):
    run(Ordinary(group), tmp_path, "g++ -O1", RACES, threads=2)
