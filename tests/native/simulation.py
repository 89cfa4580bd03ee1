"""A schedule carried out on memory that remembers which value was written last to each word.

It checks a buffer assignment without a C++ compiler: every value that is read is still there.
"""

import numpy as np

from mepg.native.buffers import BufferAssignment
from mepg.native.fusion import Fusion
from mepg.native.schedule import LoopNest, NodeStep, PackStep

from .interpreter import lowered


def fused(function, *examples, state=0, bfloat16=False):
    return Fusion(lowered(function, *examples, state=state), bfloat16=bfloat16)


def assigned(function, *examples, state=0, written=False, bfloat16=False):
    """All passes up to the buffers. With a state that is written, the function returns the new one first."""
    graph = lowered(function, *examples, state=state)
    graph.top.carried = graph.inputs[:state] if written else []
    inputs = [*graph.inputs[state:], *graph.constant_arrays.values()]
    return BufferAssignment(Fusion(graph, bfloat16=bfloat16), graph.inputs[:state], inputs)


def simulate(assignment):
    """Run the schedule, once for each branch; an AssertionError names a value that is lost before it is read."""
    branches = [len(node.blocks) for node in assignment.fusion.live if node.op == "branch"]
    for branch in range(max(branches, default=1)):
        _Memory(assignment, branch).run()


class _Memory:
    def __init__(self, assignment, branch):
        self.assignment, self.branch = assignment, branch
        self.fusion, self.buffers = assignment.fusion, assignment.buffers
        state = max((self.buffers[node].offset + self.buffers[node].words for node in assignment.state), default=0)
        self.words = {"S": np.zeros(state, object), "T": np.zeros(assignment.words, object)}

    def run(self):
        for node in (*self.assignment.state, *self.assignment.inputs):
            if self.buffers[node].offset >= 0:
                self.write(node)
        top = self.fusion.graph.top
        self.block(top)
        for node, output in zip(top.carried, top.outputs, strict=False):
            self.expect(output, self.buffers[node], f"the new {node.shape}")
        for output in top.outputs[len(top.carried) :]:
            self.read(output)

    def region(self, buffer):
        return self.words[buffer.memory][buffer.offset : buffer.offset + buffer.matrices * buffer.matrix_words]

    def write(self, node, value=None):
        self.region(self.buffers[node])[:] = node if value is None else value

    def expect(self, value, buffer, what):
        found = set(self.region(buffer))
        assert found == {value}, f"{what} {value.op}: {[getattr(x, 'op', x) for x in found]} is there"

    def read(self, node):
        self.expect(node, self.buffers[node], "read")

    def block(self, block):
        for step in (*self.fusion.schedule[block], *self.assignment.final_copies.get(block, [])):
            for node, _ in step.reads:
                if node in self.buffers and node.op not in ("branch", "loop"):
                    self.read(node)
            if isinstance(step, LoopNest):
                self.nest(step)
            elif isinstance(step, PackStep):
                self.write(step.node)
            elif isinstance(step, NodeStep) and step.node.op == "branch":
                chosen = step.node.blocks[min(self.branch, len(step.node.blocks) - 1)]
                self.block(chosen)
                for result in self.results(step.node):
                    self.expect(chosen.outputs[result.params["position"]], self.buffers[result], "a branch's")
                    self.write(result)
            elif isinstance(step, NodeStep) and step.node.op == "loop":
                self.loop(step.node)
            elif step.node.op == "sort":
                for result in self.results(step.node):
                    self.write(result)
            else:
                self.write(step.node)

    def nest(self, nest):
        written = [(root.target, root.value if root.target.op == "destination" else root.target) for root in nest.roots]
        if nest.product is not None:
            written.append((nest.product, nest.product))
        for target, value in written:
            if target in self.assignment.read or target.op in ("destination", "input"):
                for node, same_element in nest.reads:
                    other = self.buffers.get(node)
                    assert same_element or other is not self.buffers[target], (
                        f"{node.op} is overwritten while it is read"
                    )
                self.write(target, value)
        for root in nest.roots:
            if root in self.assignment.scratch:
                self.region(self.assignment.scratch[root])[:] = "scratch"

    def loop(self, loop):
        (body,) = loop.blocks
        for _ in range(2):
            for node in body.carried:
                self.read(node)
            self.block(body)
            for node, output in zip(body.carried, body.outputs, strict=False):
                self.expect(output, self.buffers[node], "a loop's new")
                self.write(node)
        for result in self.results(loop):
            if result.params["position"] < loop.params["carry"]:
                self.expect(body.carried[result.params["position"]], self.buffers[result], "a loop's last")
            self.write(result)

    def results(self, owner):
        return [node for node in self.fusion.live if node.op == "result" and node.arguments[0] is owner]
