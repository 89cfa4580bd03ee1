"""The generated C++ on a 64-bit ARM processor: from a cross compiler, run by QEMU, compared with XLA's numbers of this
machine. `make test-arm` runs these.

QEMU shows that the numbers are right and counts instructions. It says nothing about time, and little about what threads
see of each other's stores, because this machine keeps their order.
"""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mepg.core.types import Sizes
from mepg.native import build
from mepg.native.library import State, _allocate, _from_words, as_words, generate
from mepg.native.processor import KNOWN
from tests.conftest import KINDS

from . import conftest, test_functions, test_ordinary_jax

pytestmark = pytest.mark.arm
HERE = Path(__file__).parent
KERNELS = Path(build.__file__).parent
FLAGS = [*(flag for flag in build._FLAGS if flag != "-shared"), "-static"]
COMPILERS = {
    "g++": ["aarch64-linux-gnu-g++", "-O1"],
    "clang++": ["clang++", "--target=aarch64-linux-gnu", "-O2"],  # what Apple's is like
}


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command[0]}: exit status {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


class Emulated:
    """A compiled function, called as one is: computed with one thread and with two, for the same bits."""

    def __init__(self, folder, compiler, function, examples, state):
        self._folder, self._taken = folder, np.zeros(0, np.int32)
        self._programs = [folder / f"program-{threads}" for threads in (1, 2)]
        for threads, program in enumerate(self._programs, 1):
            generated = generate(function, examples, state, KNOWN["neon"], threads)
            source = program.with_suffix(".cpp")
            source.write_text(generated.text)
            run(*COMPILERS[compiler], *FLAGS, f"-I{KERNELS}", "-o", program, source, HERE / "harness.cpp")
        self.text, self._assignment, self._outputs, self.writes_state = generated

    def untaken(self):
        return np.flatnonzero(self._taken == 0).tolist()

    def __call__(self, *arguments):
        state, given = State([]), list(arguments)
        if self._assignment.state:
            state, *given = arguments
        constants = [node.params["array"] for node in self._assignment.inputs if "array" in node.params]
        inputs = [as_words(each).ravel() for each in (*given, *constants)]
        outputs = [int(np.prod(each.shape)) for each in self._outputs]
        own = _allocate(self._assignment.words).size
        sizes = [state._memory.size, own, len(inputs), *(each.size for each in inputs), len(outputs), *outputs]
        parts = [np.array(sizes, np.int32), state._memory, *inputs]
        (self._folder / "given").write_bytes(b"".join(part.tobytes() for part in parts))
        one, two = (self._found(program) for program in self._programs)
        assert np.array_equal(one.view(np.uint32), two.view(np.uint32)), "two threads give other bits than one"
        state._memory[:], *found, taken = np.split(one, np.cumsum([state._memory.size, *outputs]))
        self._taken = np.maximum(self._taken, taken.view(np.int32)) if self._taken.size else taken.view(np.int32)
        return [_from_words(words, each) for words, each in zip(found, self._outputs, strict=True)]

    def _found(self, program):
        run("qemu-aarch64", program, self._folder / "given", 1, self._folder / "found")
        return np.fromfile(self._folder / "found", np.float32)


def available(compiler):
    for tool in (COMPILERS[compiler][0], "qemu-aarch64"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.fixture
def compile_for_arm(tmp_path, monkeypatch):
    """Other tests' functions, called from here, compile for ARM."""
    folders = (tmp_path / str(number) for number in itertools.count())

    def compile_function(function, *examples, state="none", instructions=None, threads=1, compiler="g++"):
        available(compiler)
        folder = next(folders)
        folder.mkdir()
        return Emulated(folder, compiler, function, examples, state)

    for module in (conftest, test_functions, test_ordinary_jax):
        monkeypatch.setattr(module, "compile_function", compile_function)
    return compile_function


def case(name, **settings):
    """Sizes that fit no vector and no tile; large enough for two threads to share something."""
    return conftest.Case(name, Sizes(7, 3), hidden=(70, 37), batch_size=33, **settings)


@pytest.mark.parametrize("precision", ["full", "mixed"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("compile_for_arm")
def test_every_family(name, precision):
    case(name, precision=precision).check(tolerance=1e-5 if precision == "full" else 2e-3)


@pytest.mark.usefixtures("compile_for_arm")
def test_functions_of_an_element():
    test_functions.test_functions_of_an_element("plain")


@pytest.mark.parametrize("sizes", [(7, 33, 17), (10, 20, 3), (29, 70, 40)])
@pytest.mark.usefixtures("compile_for_arm")
def test_products(sizes):
    test_functions.test_products(*sizes, "plain")


@pytest.mark.parametrize("group", test_ordinary_jax.GROUPS)
@pytest.mark.usefixtures("compile_for_arm")
def test_ordinary_functions(group):
    assert not test_ordinary_jax.wrong(group)


def test_numbers_below_1e_38_are_zero(compile_for_arm):
    """Those that are computed, and those that are given. The program that runs it looks whether this ends with it."""
    given = np.array([1e-30, 1e-39, 1e-20], np.float32)
    (found,) = compile_for_arm(lambda x, y: x * y, given, given)(given, np.float32([1e-10, 1e10, 1e-10]))
    assert found.tolist() == [0, 0, np.float32(1e-20) * np.float32(1e-10)]


@pytest.mark.parametrize("name", ["me-sac", "me-dqn"])
def test_the_other_compiler(name, compile_for_arm, monkeypatch):
    monkeypatch.setattr(
        conftest, "compile_function", lambda *given, **how: compile_for_arm(*given, **how, compiler="clang++")
    )
    case(name).check()


def innermost_loops(assembler):
    """The instructions of each."""
    lines = [line.strip() for line in assembler.splitlines() if not re.match(r"\s*(//|#|\.(?!L))", line)]
    labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
    jumps = ((place, re.match(r"(?:b\w*|cbn?z|tbn?z)\s.*?(\.L\w+)$", line)) for place, line in enumerate(lines))
    loops = [(labels[to[1]], place) for place, to in jumps if to and labels[to[1]] < place]
    for first, last in loops:
        if not any(first <= a and b <= last for a, b in loops if (a, b) != (first, last)):
            yield [line for line in lines[first : last + 1] if not line.endswith(":")]


def test_instructions(tmp_path):
    """Square roots of vectors; a product's sums stay in registers, and each load serves four multiplications."""
    available("g++")
    learner = case("me-sac")
    source = tmp_path / "program.cpp"
    whole = {"along k": (8 * 2 * 4, 8 + 2 * 4), "down the rows": (8 * 2, 2 + 2)}  # multiplications, loads
    for threads in (1, 2):
        examples = (learner.leaves, *learner.arguments(0))
        source.write_text(generate(learner.learn, examples, "written", KNOWN["neon"], threads).text)
        code = run(*COMPILERS["g++"], *FLAGS, f"-I{KERNELS}", "-S", "-o", "-", source)
        assert re.search(r"\tfsqrt\s+v", code)
        assert not re.search(r"\tfsqrt\s+s", code)
        assert ("yield" in code) == (threads == 2)
        found = dict.fromkeys(whole, 0)
        for loop in innermost_loops(code):
            count = sum(line.startswith("fmla") and ".s[" in line for line in loop)
            loads = sum(line.startswith("ld") for line in loop) + sum(line.startswith("ldp") for line in loop)
            for name in whole:
                if (count, loads) == whole[name] and not any(line.startswith("st") or "[sp" in line for line in loop):
                    found[name] += 1
        assert all(found.values()), found
