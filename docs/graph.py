"""Makes the picture of docs/native.md: one update of ME-DDPG as a graph, before and after fusion.

python docs/graph.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mepg.native.fusion import Fusion
from mepg.native.graph import VIEWS, Node
from mepg.native.lowering import lower
from mepg.native.schedule import CALLS, LoopNest, NodeStep, Step
from mepg.paper.tasks import PAPER_TASKS
from mepg.training.config import Config
from mepg.training.replay import row_width, unpack

PICTURE = Path(__file__).parent / "images" / "graph.png"
TASK = "AntBulletEnv-v0"
COLOURS = {
    "a matrix product": "#d1495b",
    "an operation on each element": "#1f6fb4",
    "a sum, or another reduction": "#2a9d60",
    "random numbers, sorting": "#7d55c7",
    "a branch, or a loop": "#d98a00",
}


def fusion_of(algorithm: str) -> Fusion:
    """An update of the algorithm on Ant, traced, simplified and fused."""
    config, sizes = Config.make(algorithm, env=TASK), PAPER_TASKS[TASK]
    agent, key = config.build(sizes), jax.random.key(0)
    rows = np.zeros((config.spec.batch_size, row_width(sizes)), np.float32)
    numbers = np.zeros(len(rows), np.uint32)

    def update(state: Any, rows: Any, numbers: Any, key: Any) -> Any:
        return agent.update(state, unpack(rows, numbers, sizes), key)

    traced = jax.make_jaxpr(update)(jax.eval_shape(agent.init, key), rows, numbers, key)
    return Fusion(lower(traced, state=len(traced.jaxpr.invars)), bfloat16=False)


def kind_of_node(node: Node) -> str | None:
    """Its colour's name; None for what computes nothing."""
    if node.op in (*VIEWS, "input", "constant", "iota", "result", "pack"):
        return None
    return _kind(node.op) or "an operation on each element"


def kind_of_step(step: Step) -> str:
    """The same for what became one function."""
    if isinstance(step, NodeStep):
        return _kind(step.node.op) or "an operation on each element"
    if isinstance(step, LoopNest) and step.product is None:
        sums = any(root.target.op == "reduce" for root in step.roots)
        return "a sum, or another reduction" if sums else "an operation on each element"
    return "a matrix product" if isinstance(step, LoopNest) else "an operation on each element"


def _kind(op: str) -> str | None:
    known = {"product": 0, "reduce": 2, "branch": 4, "loop": 4}
    number = known.get(op, 3 if op in CALLS else None)
    return None if number is None else list(COLOURS)[number]


def depths(before: Mapping[Hashable, Sequence[Hashable]]) -> dict[Hashable, int]:
    """The length of the longest way to each; what comes before is listed first."""
    found: dict[Hashable, int] = {}
    for each, those in before.items():
        found[each] = max((found[one] + 1 for one in those if one in found), default=0)
    return found


def draw(axes: Axes, title: str, kinds: Mapping[Any, str], before: Mapping[Any, Sequence[Any]], size: float) -> None:
    """A dot for each, further to the right the later it can be computed."""
    depth = depths(before)
    height = Counter(depth.values())
    seen: Counter[int] = Counter()
    at = {}
    for each in kinds:
        d = depth[each]
        at[each] = d / max(depth.values()), (seen[d] - (height[d] - 1) / 2)
        seen[d] += 1
    for each, those in before.items():
        for one in (one for one in those if one in at):
            axes.plot(*zip(at[one], at[each], strict=True), color="#c4c9cf", linewidth=0.5, zorder=1)
    for name, colour in COLOURS.items():
        points = [at[each] for each, kind in kinds.items() if kind == name]
        if points:
            axes.scatter(*zip(*points, strict=True), s=size, color=colour, zorder=2, label=f"{name} ({len(points)})")
    axes.set_title(title, loc="left", fontsize=10)
    axes.axis("off")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2)


def main() -> None:
    """Both graphs, side by side."""
    fusion = fusion_of("me-ddpg")
    kinds = {node: kind for node in fusion.live if (kind := kind_of_node(node))}
    before = {node: _arguments(node, kinds) for node in kinds}
    steps = [step for block in fusion.schedule.values() for step in block]
    producers = fusion.producers
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw(left, f"Before: {len(kinds)} operations", kinds, before, 9)
    order = {step: k for k, step in enumerate(steps)}
    needs = {
        step: [producers[n] for n, _ in step.reads if order.get(producers.get(n), 10**9) < order[step]]
        for step in steps
    }
    draw(right, f"After: {len(steps)} functions", {step: kind_of_step(step) for step in steps}, needs, 34)
    figure.savefig(PICTURE, dpi=130)
    print(f"{len(kinds)} operations, {len(steps)} functions -> {PICTURE}")


def _arguments(node: Node, kinds: Mapping[Node, str]) -> list[Node]:
    """What a node is computed from, through views."""
    found = []
    for argument in node.arguments:
        found += [argument] if argument in kinds else _arguments(argument, kinds)
    for block in node.blocks:
        found += [output for output in block.outputs if output in kinds]
    return found


if __name__ == "__main__":
    main()
