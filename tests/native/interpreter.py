"""A graph computed with NumPy, node by node and element by element: slow, and independent of every later pass."""

import jax
import numpy as np

from mepg.native.graph import NUMPY_DTYPES, VIEWS, loop_index, loop_variables, squeezed, through_view
from mepg.native.lowering import lower

ELEMENTWISE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin,
    "rem": np.fmod, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": lambda predicate, no, yes: np.where(predicate, yes, no), "convert": lambda x: x, "copy": lambda x: x,
    "pow": np.power, "rint": np.rint, "floor": np.floor, "not": np.invert, "sign": np.sign,
    "round": lambda x: np.asarray(jax.lax.reduce_precision(x, 8, 7)),
    "shift_left": np.left_shift, "shift_right_logical": np.right_shift,
}  # fmt: skip
LETTERS = str.maketrans("012", "abc")  # of leading axes: l0, l1, l2
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
SCATTER = {"set": lambda a, b: b, "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": max, "min": min}


def lowered(function, *examples, state=0):
    """A function's graph; without examples' numbers."""
    return lower(jax.make_jaxpr(function)(*examples), state)


def evaluate(function, *arguments):
    """The outputs of a function's graph."""
    graph = lowered(function, *arguments)
    return run(graph, *jax.tree.leaves(arguments))


def run(graph, *arguments):
    values = dict(zip(graph.inputs, map(np.asarray, arguments), strict=True))
    return [Evaluation(values, {}).value(output) for output in graph.top.outputs]


class Evaluation:
    """The values of nodes, given those of inputs and loop counters."""

    def __init__(self, values, counters):
        self.values, self.counters = values, counters

    def value(self, node):
        if node not in self.values:
            with np.errstate(all="ignore"):
                array = np.asarray(self._compute(node)).astype(NUMPY_DTYPES[node.dtype])
            self.values[node] = np.broadcast_to(array, node.shape)
        return self.values[node]

    def _compute(self, node):
        op, params, arguments = node.op, node.params, node.arguments
        if op == "constant":
            return params["value"]
        if op == "input":
            return params["array"].reshape(node.shape)
        if op == "iota":
            return np.indices(node.shape)[params["axis"]]
        if op in VIEWS:
            return self._view(node)
        if op in ELEMENTWISE:
            return ELEMENTWISE[op](*map(self.value, arguments))
        if op == "product":
            left, right = ("".join(x.translate(LETTERS)[-1] for x in names) for names in params["names"])
            leading = "".join(sorted({x for x in left + right if x in "abc"}))
            return np.einsum(f"{left},{right}->{leading}in", *map(self.value, arguments))
        if op == "reduce":
            return REDUCTIONS[params["kind"]](self.value(arguments[0]), axis=params["axes"])
        if op == "concatenate":
            return np.concatenate([self.value(x) for x in arguments], params["axis"])
        if op == "relayout":
            return self.value(arguments[0]).reshape(node.shape)
        if op == "order":
            keys = [self.value(key) for key in reversed(arguments)]
            return np.concatenate([np.lexsort(keys, axis=-1), np.zeros((1, node.shape[1]), np.int32)])
        if op == "scatter":
            return self._scatter(node)
        if op == "result":
            return self._results(arguments[0])[params["position"]]
        raise NotImplementedError(op)

    def _index(self, axis, loops):
        if axis.indirect:
            array, element = axis.indirect
            index = tuple(self._index(each, loops) for each in element)
            return int(np.clip(self.value(array)[index], 0, axis.size - 1)) + axis.offset
        return ({**self.counters, **loops}[axis.variable] if axis.variable else 0) + axis.offset

    def _view(self, node):
        result = np.empty(node.shape, NUMPY_DTYPES[node.dtype])
        base, index = through_view(node, loop_index(node.shape))
        variables = loop_variables(squeezed(node.shape))
        for position in np.ndindex(*node.shape):
            at = dict(zip(variables, (i for i, d in zip(position, node.shape, strict=True) if d > 1), strict=True))
            result[position] = self.value(base)[tuple(self._index(axis, at) for axis in index)]
        return result

    def _scatter(self, node):
        base, updates, *starts = node.arguments
        result, updated = self.value(base).copy(), self.value(updates)
        for position in np.ndindex(*updated.shape):
            index = []
            for axis, (array, batch, window) in enumerate(node.params["source"]):
                start = 0 if array is None else int(self.value(starts[array])[tuple(position[a] for a in batch)])
                largest = node.shape[axis] - (1 if window is None else updated.shape[window])
                start = min(max(start, 0), largest) if node.params["clip"] else start
                if not 0 <= start <= largest and array is not None:
                    break
                index.append(start + (0 if window is None else position[window]))
            else:
                result[tuple(index)] = SCATTER[node.params["kind"]](result[tuple(index)], updated[position])
        return result

    def _results(self, owner):
        if owner.op == "branch":
            blocks = owner.blocks
            k = int(np.clip(self.value(owner.arguments[0]), 0, len(blocks) - 1))
            return [Evaluation({**self.values}, self.counters).value(output) for output in blocks[k].outputs]
        body, length, stacked = owner.blocks[0], owner.params["length"], []
        carried = [self.value(x) for x in owner.arguments]
        for t in range(1000 if length is None else length)[:: -1 if owner.params["reverse"] else 1]:
            if length is None and not carried[-1]:
                break
            values = {**self.values, **dict(zip(body.carried, carried, strict=True))}
            inner = Evaluation(values, {**self.counters, body.loop: t})
            outputs = [inner.value(output) for output in body.outputs]
            carried, ys = outputs[: len(carried)], outputs[len(carried) :]
            stacked.append(ys)
        columns = zip(*(reversed(stacked) if owner.params["reverse"] else stacked), strict=True)
        return [*carried, *(np.stack(column) for column in columns)]
