"""Makes the texts of docs/native-walkthrough.md: one small function after each pass of `mepg.native`.

python docs/walkthrough.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
from markers import filled

from mepg.native.buffers import Buffer, BufferAssignment
from mepg.native.decompose import decompose
from mepg.native.emit import program
from mepg.native.expressions import Addresses, Expressions
from mepg.native.fusion import Fusion
from mepg.native.graph import Graph, Node, loop_index
from mepg.native.lowering import lower
from mepg.native.partition import is_parallel, partition
from mepg.native.processor import KNOWN
from mepg.native.schedule import LoopNest, NodeStep, PackStep, Step

PAGE = Path(__file__).parent / "native-walkthrough.md"
INSTRUCTIONS = KNOWN["avx2"]
X, W = jax.ShapeDtypeStruct((20, 40), jnp.float32), jax.ShapeDtypeStruct((40, 48), jnp.float32)


def row_sums(x: jax.Array, w: jax.Array) -> jax.Array:
    """The ReLU of a product, summed over each row."""
    return jnp.maximum(x @ w, 0.0).sum(axis=1)


def texts() -> dict[str, str]:
    """What stands between each pair of markers."""
    jaxpr = jax.make_jaxpr(row_sums)(X, W)
    (logistic,) = jax.make_jaxpr(jax.lax.logistic)(X).eqns
    graph = lower(jaxpr)
    lowered = _show_graph(graph)
    fusion = Fusion(graph, bfloat16=INSTRUCTIONS.bfloat16)
    names = _name_nodes(graph)
    assignment = BufferAssignment(fusion, [], graph.inputs)
    steps = fusion.schedule[graph.top]
    nest = steps[-1]
    assert isinstance(nest, LoopNest)
    return {
        "function": _code(inspect.getsource(row_sums), "python"),
        "jaxpr": _code(jaxpr),
        "lowering": _code(lowered),
        "decompose": _code(f"{logistic}\n\n{decompose(logistic)}"),
        "materialize": _code("\n".join(_show_stored(node, names, fusion) for node in fusion.live)),
        "fusion": _code("\n".join(_show_step(k, step, names) for k, step in enumerate(steps))),
        "buffers": _code(_show_buffers(assignment, names)),
        "partition": _code("\n".join(_show_partition(k, step) for k, step in enumerate(steps))),
        "expressions": _code(_show_expressions(assignment, nest), "cpp"),
        "emit": _code(program(assignment, INSTRUCTIONS), "cpp"),
    }


def _code(text: object, language: str = "text") -> str:
    return f"```{language}\n{str(text).strip()}\n```"


def _name_nodes(graph: Graph) -> dict[Node, str]:
    return {node: f"n{k}" for k, node in enumerate(graph.nodes)}


def _show_graph(graph: Graph) -> str:
    names = _name_nodes(graph)
    outputs = ", ".join(names[node] for node in graph.top.outputs)
    return "\n".join([*(_show_node(node, names) for node in graph.nodes), f"outputs: {outputs}"])


def _show_node(node: Node, names: dict[Node, str]) -> str:
    arguments = [names[argument] for argument in node.arguments]
    arguments += [f"{key}={value}" for key, value in node.params.items() if key not in ("names", "row_major")]
    shape = ", ".join(map(str, node.shape))
    return f"{names[node]} = {node.op}({', '.join(arguments)}): {node.dtype}[{shape}]"


def _show_stored(node: Node, names: dict[Node, str], fusion: Fusion) -> str:
    return f"{_show_node(node, names):50}{'materialized' if fusion.is_materialized(node) else ''}".rstrip()


def _show_step(k: int, step: Step, names: dict[Node, str]) -> str:
    if isinstance(step, LoopNest):
        product = f", product {names[step.product]}" if step.product is not None else ""
        roots = ", ".join(f"{names[root.target]} = {root.target.op}" for root in step.roots)
        kind = f"loop nest {' x '.join(map(str, step.space))}{product}, roots {roots}"
    else:
        assert isinstance(step, NodeStep | PackStep)
        kind = step.node.op
    return f"step {k}: {kind}; reads {', '.join(names[node] for node, _ in step.reads)}"


def _show_buffers(assignment: BufferAssignment, names: dict[Node, str]) -> str:
    def line(name: str, b: Buffer) -> str:
        place = f"{b.memory} + {b.offset} ... {b.offset + b.words}"
        return f"{name:12}{place:22}{b.rows} x {b.columns}, {b.panels} panel{'s' * (b.panels > 1)} of {b.width} columns"

    read = [(names[node], b) for node, b in assignment.buffers.items() if node in assignment.read]
    scratch = [(f"{names[root.target]} scratch", b) for root, b in assignment.scratch.items()]
    return "\n".join([*(line(*each) for each in (*read, *scratch)), f"{assignment.words} words"])


def _show_partition(k: int, step: Step) -> str:
    if not isinstance(step, LoopNest) or not is_parallel(step):
        return f"step {k}: by the first thread alone"
    part = partition(step, 2, (6, 2 * INSTRUCTIONS.lanes))
    return "\n".join([f"step {k}: rows {part.rows.first} to {part.rows.last}, with", *part.statements])


def _show_expressions(assignment: BufferAssignment, nest: LoopNest) -> str:
    expressions = Expressions(Addresses(assignment), nest)
    for root in nest.roots:
        expressions.value(root.value, loop_index(root.value.shape))
    return "\n".join(expressions.statements)


def page() -> str:
    """The page as it should read."""
    return filled(PAGE.read_text(), texts())


if __name__ == "__main__":
    PAGE.write_text(page())
