"""A compiled function, called with arrays.

`compile_function(f, *examples)` gives a function of arrays. With a state, the first argument is a list of arrays that
stay in memory between calls, in a `State`; several functions may share one.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from mepg.errors import RunFailure, one_line
from mepg.native.buffers import BufferAssignment, state_buffers
from mepg.native.build import CannotBuild, find_compiler, library, note_checked, was_checked
from mepg.native.emit import program
from mepg.native.fusion import Fusion
from mepg.native.graph import NUMPY_DTYPES, ArrayType, Unsupported
from mepg.native.lowering import as_array, lower
from mepg.native.primitives import array_type
from mepg.native.processor import Instructions, best_instructions

Array = npt.NDArray[Any]
Words = npt.NDArray[np.float32]
StateUse = Literal["none", "read", "written"]


class RowSelection(NamedTuple):
    """Some rows of a longer array. Only the compiled function copies them, where it needs them."""

    array: Words  # [m, width]
    indices: npt.NDArray[np.int64]  # [n], each from 0 to m - 1


class Generated(NamedTuple):
    """A function's C++, and how it is called."""

    text: str
    assignment: BufferAssignment
    outputs: list[ArrayType]  # besides the state
    writes_state: bool


class State:
    """A list of arrays in the layout of compiled functions."""

    def __init__(self, types: Sequence[ArrayType]) -> None:
        self.types = list(types)
        self._buffers = state_buffers([each.shape for each in types])
        self._memory = _allocate(sum(buffer.words for buffer in self._buffers))
        self.address = int(self._memory.ctypes.data)

    @classmethod
    def of(cls, leaves: Sequence[Any]) -> State:
        """A state with these arrays in it."""
        state = cls([array_type(jax.typeof(leaf)) for leaf in leaves])
        state.put(leaves)
        return state

    def put(self, leaves: Sequence[Any]) -> None:
        """Copy arrays into it."""
        for each, b, leaf in zip(self.types, self._buffers, leaves, strict=True):
            words = as_words(leaf)
            assert math.prod(each.shape) == words.size
            padded = np.zeros((b.matrices, b.rows, b.panels * b.width), np.float32)
            padded[..., : b.columns] = words.reshape(b.matrices, b.rows, b.columns)
            panels = padded.reshape(b.matrices, b.rows, b.panels, b.width).swapaxes(1, 2)
            self._memory[b.offset : b.offset + panels.size] = panels.ravel()

    def get(self) -> list[Array]:
        """Copies of the arrays."""
        arrays = []
        for each, b in zip(self.types, self._buffers, strict=True):
            words = self._memory[b.offset : b.offset + b.matrices * b.matrix_words]
            padded = words.reshape(b.matrices, b.panels, b.rows, b.width).swapaxes(1, 2)
            rows = padded.reshape(b.matrices, b.rows, b.panels * b.width)[..., : b.columns]
            arrays.append(_from_words(np.ascontiguousarray(rows), each))
        return arrays


class Compiled:
    """A function that was compiled."""

    def __init__(self, generated: Generated, instructions: Instructions) -> None:
        self.text, assignment, self._outputs, self.writes_state = generated
        inputs = [node for node in assignment.inputs if "array" not in node.params]
        # Constant arrays are inputs too, after the arguments.
        self._constants = [as_words(node.params["array"]) for node in assignment.inputs if "array" in node.params]
        self._state = [ArrayType(node.shape, node.dtype) for node in assignment.state]
        self._accepted: State | None = None
        self._sizes = [math.prod(node.shape) for node in inputs]
        self._word_dtypes = [(each.shape, _word_dtype(each)) for each in self._outputs]
        self._input_pointers = ctypes.c_void_p * len(assignment.inputs)
        self._output_pointers = ctypes.c_void_p * len(self._outputs)
        self._memory = _allocate(assignment.words)
        self._address = int(self._memory.ctypes.data)
        self._lock = threading.Lock()  # all calls compute in the same memory
        self._library = library(self.text, instructions)
        try:
            branches = ctypes.c_int32.in_dll(self._library, "branches").value
            self._taken = (ctypes.c_int32 * branches).in_dll(self._library, "taken")
            self._run = self._library.run
        except (ValueError, AttributeError) as error:
            raise CannotBuild("the compiler's library lacks what the program has") from error
        self._run.restype = ctypes.c_int
        self._run.argtypes = [ctypes.c_void_p] * 5

    @property
    def checked(self) -> bool:
        """Whether it has passed the self-check: see `check`."""
        return was_checked(self._library)

    def note_checked(self) -> None:
        note_checked(self._library)

    def untaken(self) -> list[int]:
        """The branches that no call has taken."""
        return [branch for branch, taken in enumerate(self._taken) if not taken]

    def __call__(self, *arguments: Any) -> list[Array]:
        """Arrays in the order of a tree's leaves; the first argument is the `State`, if it has one."""
        state = 0
        if self._state:
            first, *rest = arguments
            state, arguments = self._accept(first), tuple(rest)
        inputs, indices, sizes = [], [], []
        for argument in arguments:
            array, selected = argument if type(argument) is RowSelection else (argument, None)
            array = array if _is_words(array) else as_words(array)
            inputs.append(array)
            indices.append(None if selected is None else _address(selected))
            sizes.append(array.size if selected is None else len(selected) * array.shape[1])
        if self._sizes != sizes:
            raise TypeError("the arrays do not have the shapes that this was compiled for")
        inputs += self._constants
        outputs = [np.empty(shape, dtype) for shape, dtype in self._word_dtypes]
        in_, rows = self._input_pointers(*map(_address, inputs)), self._input_pointers(*indices)
        out = self._output_pointers(*map(_address, outputs))
        with self._lock:
            failed = self._run(state, self._address, in_, rows, out)
        if failed:
            raise RunFailure("the system gives this process no more threads: use --threads 1")
        pairs = zip(outputs, self._outputs, strict=True)
        return [array != 0 if each.dtype == "bool" else array for array, each in pairs]

    def _accept(self, state: Any) -> int:
        """The address of a state, if it is one that this was compiled for."""
        if state is not self._accepted:
            if not isinstance(state, State) or state.types != self._state:
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
    instructions = instructions or best_instructions()
    find_compiler()  # first of all: without one, nothing else matters
    try:
        generated = generate(function, examples, state, instructions, threads)
    except Unsupported:
        raise
    except Exception as error:  # a function that nobody thought of when this was written
        raise CannotBuild(f"the generator does not understand this agent: {one_line(error)}") from error
    return Compiled(generated, instructions)


def generate(
    function: Callable[..., Any], examples: tuple[Any, ...], state: StateUse, instructions: Instructions, threads: int
) -> Generated:
    """All passes, from a function to its C++."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    count = len(jax.tree.leaves(examples[0])) if state != "none" else 0
    written = len(jax.tree.leaves(shapes[0])) if state == "written" else 0
    graph = lower(jaxpr, count)
    if any(0 in node.shape for node in (*graph.inputs, *graph.top.outputs)):
        raise Unsupported("an argument or a result without any numbers")
    if written not in (0, count):
        raise TypeError("a function that writes its state returns as many arrays first")
    graph.top.carried = graph.inputs[:written]
    outputs = [ArrayType(node.shape, node.dtype) for node in graph.top.outputs[written:]]
    fusion = Fusion(graph, bfloat16=instructions.bfloat16)
    inputs = [*graph.inputs[count:], *graph.constant_arrays.values()]
    assignment = BufferAssignment(fusion, graph.inputs[:count], inputs)
    return Generated(program(assignment, instructions, threads), assignment, outputs, written > 0)


def _allocate(words: int) -> Words:
    """Memory that begins at a cache line."""
    memory = np.zeros(words + 32, np.float32)
    skip = -memory.ctypes.data % 64 // 4
    return memory[skip : skip + words + 16]


def as_words(leaf: Any) -> Words:
    """An array or a random key as the 32-bit words that compiled functions read."""
    array = np.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic) else as_array(leaf)
    if array.dtype == np.bool_:
        array = array.astype(np.int32)
    if array.dtype.itemsize != 4:
        raise TypeError(f"{array.dtype} has no place in a compiled function")
    return (array if array.flags.c_contiguous else np.ascontiguousarray(array)).view(np.float32)


def _word_dtype(each: ArrayType) -> Any:
    return np.int32 if each.dtype == "bool" else NUMPY_DTYPES[each.dtype]


def _from_words(words: Words, each: ArrayType) -> Array:
    array: Array = words.view(_word_dtype(each)).reshape(each.shape)
    return array != 0 if each.dtype == "bool" else array


_WORD_DTYPES = frozenset(map(np.dtype, (np.float32, np.uint32, np.int32)))


def _is_words(leaf: Any) -> bool:
    return type(leaf) is np.ndarray and leaf.dtype in _WORD_DTYPES and leaf.flags.c_contiguous


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]  # array.ctypes makes an object each time
    return address


__all__ = ["CannotBuild", "Compiled", "RowSelection", "State", "compile_function"]
