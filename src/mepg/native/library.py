"""A compiled function, called with arrays.

`compile_function(f, *examples)` gives a function of arrays. With a state, the first argument is a list of arrays that
stays where it is between calls, in a `State`; several functions may share one.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.errors import RunFailure, one_line
from mepg.native.build import CannotBuild, find_compiler, library, note_checked, was_checked
from mepg.native.emit import program
from mepg.native.fuse import Fusion
from mepg.native.graph import NUMPY, Graph, Shape, Unsupported
from mepg.native.place import Placement, state_buffers
from mepg.native.primitives import form
from mepg.native.processor import Instructions, best
from mepg.native.trace import Tracer

Rows = npt.NDArray[Any]
StateUse = Literal["none", "read", "written"]


class Form(NamedTuple):
    """What an array looks like."""

    shape: Shape
    type: str


class Picked(NamedTuple):
    """Some rows of a longer array, by their numbers. Only the compiled function copies them, where it needs them."""

    rows: npt.NDArray[np.float32]  # [m, width]
    numbers: npt.NDArray[np.int64]  # [n], each from 0 to m - 1


class Generated(NamedTuple):
    """A function's text, and how it is called."""

    text: str
    placement: Placement
    outputs: list[Form]  # besides the state
    writes_state: bool


class State:
    """A list of arrays, lying as compiled functions want them."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = list(forms)
        self._buffers = state_buffers([each.shape for each in forms])
        self._memory = _words(sum(buffer.words for buffer in self._buffers))
        self.address = int(self._memory.ctypes.data)

    @classmethod
    def of(cls, leaves: Sequence[Any]) -> State:
        """A state with these arrays in it."""
        state = cls([Form(*form(jax.typeof(leaf))) for leaf in leaves])
        state.put(leaves)
        return state

    def put(self, leaves: Sequence[Any]) -> None:
        """Copy arrays into it."""
        for each, buffer, leaf in zip(self.forms, self._buffers, leaves, strict=True):
            rows = _as_words(leaf).reshape(-1, buffer.rows, buffer.columns)
            panels = -(-buffer.columns // buffer.width)
            whole = np.zeros((len(rows), buffer.rows, panels * buffer.width), np.float32)
            whole[..., : buffer.columns] = rows
            lying = whole.reshape(len(rows), buffer.rows, panels, buffer.width).swapaxes(1, 2)
            assert math.prod(each.shape) == rows.size
            self._memory[buffer.offset : buffer.offset + lying.size] = lying.ravel()

    def get(self) -> list[Rows]:
        """Copies of the arrays."""
        found = []
        for each, buffer in zip(self.forms, self._buffers, strict=True):
            matrices, panels = math.prod(buffer.dims[:-2]), -(-buffer.columns // buffer.width)
            lying = self._memory[buffer.offset : buffer.offset + matrices * buffer.matrix]
            whole = lying.reshape(matrices, panels, buffer.rows, buffer.width).swapaxes(1, 2)
            rows = whole.reshape(matrices, buffer.rows, panels * buffer.width)[..., : buffer.columns]
            found.append(_as_array(np.ascontiguousarray(rows), each))
        return found


class Compiled:
    """A function that was compiled."""

    def __init__(self, generated: Generated, instructions: Instructions) -> None:
        self.text, placement, self._outputs, self.writes_state = generated
        self._inputs = [Form(node.shape, node.type) for node in placement.external if "array" not in node.settings]
        # Arrays of constants are given each time, after the arguments.
        self._tables = [_as_words(n.settings["array"]) for n in placement.external if "array" in n.settings]
        self._state = [Form(node.shape, node.type) for node in placement.state]
        self._accepted: State | None = None
        self._sizes = [math.prod(each.shape) for each in self._inputs]
        self._made = [(each.shape, np.int32 if each.type == "bool" else NUMPY[each.type]) for each in self._outputs]
        self._given, self._found = (ctypes.c_void_p * len(each) for each in (placement.external, self._outputs))
        self._memory = _words(placement.words)
        self._address = int(self._memory.ctypes.data)
        self._one_at_a_time = threading.Lock()  # all calls compute in the same memory
        self._loaded = library(self.text, instructions)
        try:
            branches = ctypes.c_int32.in_dll(self._loaded, "branches").value
            self._taken = (ctypes.c_int32 * branches).in_dll(self._loaded, "taken")
            self._run = self._loaded.run
        except (ValueError, AttributeError) as error:
            raise CannotBuild("the compiler's library lacks what the program has") from error
        self._run.restype = ctypes.c_int
        self._run.argtypes = [ctypes.c_void_p] * 5

    @property
    def checked(self) -> bool:
        """Whether it is known to compute what it should: see `check`."""
        return was_checked(self._loaded)

    def note_checked(self) -> None:
        note_checked(self._loaded)

    def untaken(self) -> list[int]:
        """The branches that no call has been through."""
        return [number for number, taken in enumerate(self._taken) if not taken]

    def __call__(self, *arguments: Any) -> list[Rows]:
        """Arrays in the order of a tree's leaves; the first argument is the `State`, if it has one."""
        state = 0
        if self._state:
            first, *rest = arguments
            state, arguments = self._accept(first), tuple(rest)
        given, which, sizes = [], [], []
        for leaf in arguments:
            rows, numbers = leaf if type(leaf) is Picked else (leaf, None)
            rows = rows if _lies_as_words(rows) else _as_words(rows)
            given.append(rows)
            which.append(None if numbers is None else _address(numbers))
            sizes.append(rows.size if numbers is None else len(numbers) * rows.shape[1])
        if self._sizes != sizes:
            raise TypeError("the arrays do not have the shapes that this was compiled for")
        given += self._tables
        found = [np.empty(shape, type_of) for shape, type_of in self._made]
        addresses = self._given(*map(_address, given)), self._given(*which), self._found(*map(_address, found))
        with self._one_at_a_time:
            failed = self._run(state, self._address, *addresses)
        if failed:
            raise RunFailure("the system gives this process no more threads: use --threads 1")
        return [
            each != 0 if each_of.type == "bool" else each for each, each_of in zip(found, self._outputs, strict=True)
        ]

    def _accept(self, state: Any) -> int:
        """Where a state lies, if it is one that this was compiled for."""
        if state is not self._accepted:
            if not isinstance(state, State) or state.forms != self._state:
                raise TypeError("the first argument is a State with the arrays that this was compiled for")
            self._accepted = state
        return self._accepted.address


def compile_function(
    function: Callable[..., Any],
    *examples: Any,
    state: StateUse = "none",
    instructions: Instructions | None = None,
    threads: int = 1,
) -> Compiled:
    """Compile a function for arrays like these examples.

    With a state "read", its first argument is that list of arrays; with "written", it also returns the new ones first.
    Raises Unsupported if there is no C++ for something in it, and CannotBuild if there is no library.
    """
    instructions = instructions or best()
    find_compiler()  # before anything else: without one, what it could not compile is of no interest
    try:
        generated = _generate(function, examples, state, instructions, threads)
    except Unsupported:
        raise
    except Exception as error:  # a function that nobody thought of when this was written
        raise CannotBuild(f"the generator does not understand this agent: {one_line(error)}") from error
    return Compiled(generated, instructions)


def _generate(
    function: Callable[..., Any],
    examples: tuple[Any, ...],
    state: StateUse,
    instructions: Instructions,
    threads: int,
) -> Generated:
    traced, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    graph = Graph()
    count = len(jax.tree.leaves(examples[0])) if state != "none" else 0
    nodes = []
    for k, variable in enumerate(traced.jaxpr.invars):
        shape_of, type_of = form(variable.aval)
        nodes.append(graph.new("input", (), shape_of, type_of, rows=k >= count))
    graph.top.outputs = Tracer(graph).inline(traced.jaxpr, traced.consts, nodes)
    if any(0 in node.shape for node in (*nodes, *graph.top.outputs)):
        raise Unsupported("an argument or a result without any numbers")
    written = len(jax.tree.leaves(shape[0])) if state == "written" else 0
    if written not in (0, count):
        raise TypeError("a function that writes its state returns as many arrays first")
    graph.top.carried = nodes[:written]
    outputs = [Form(node.shape, node.type) for node in graph.top.outputs[written:]]
    placement = Placement(
        Fusion(graph, bfloat16=instructions.bfloat16), nodes[:count], [*nodes[count:], *graph.tables.values()]
    )
    return Generated(program(placement, instructions, threads), placement, outputs, written > 0)


def _words(count: int) -> npt.NDArray[np.float32]:
    """Memory that begins at a cache line."""
    memory = np.zeros(count + 32, np.float32)
    skip = -memory.ctypes.data % 64 // 4
    return memory[skip : skip + count + 16]


def _as_words(leaf: Any) -> npt.NDArray[np.float32]:
    if not isinstance(leaf, np.ndarray | np.generic):
        leaf = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    array = np.asarray(leaf)
    if array.dtype == np.bool_:
        array = array.astype(np.int32)
    if array.dtype.itemsize != 4:
        raise TypeError(f"{array.dtype} has no place in a compiled function")
    return (array if array.flags.c_contiguous else np.ascontiguousarray(array)).view(np.float32)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_array(words: npt.NDArray[np.float32], each: Form) -> Rows:
    array: Rows = words.view(np.int32 if each.type == "bool" else NUMPY[each.type]).reshape(each.shape)
    return array != 0 if each.type == "bool" else array


_WORDS = frozenset(map(np.dtype, (np.float32, np.uint32, np.int32)))


def _lies_as_words(leaf: Any) -> bool:
    return type(leaf) is np.ndarray and leaf.dtype in _WORDS and leaf.flags.c_contiguous


def _address(array: Rows) -> int:
    address: int = array.__array_interface__["data"][0]  # array.ctypes makes an object each time
    return address


__all__ = ["CannotBuild", "Compiled", "Form", "State", "compile_function"]
