"""The matrix products of an update's forward and backward passes: what it cannot avoid."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.algos.ace import Ace, AceFlat
from mepg.algos.sunrise import Sunrise
from mepg.core.policies import head_width
from mepg.core.types import Sizes

Shape = tuple[int, int, int]  # (m, k, n): [m, k] times [k, n]
Net = list[tuple[int, int]]  # inputs and outputs of each layer


def multiplications(spec: Any, sizes: Sizes) -> tuple[list[Shape], list[Shape]]:
    """Those of one critic update and of one policy update, forward and backward."""
    if isinstance(spec, Ace):
        return _tree_multiplications(spec, sizes)
    rows = spec.batch_size
    actor = _dense(sizes.obs, *spec.hidden, head_width(spec, sizes))
    critic = _dense(sizes.obs + sizes.action, *spec.hidden, 1)
    members = spec.members if isinstance(spec, Sunrise) else 1
    actors = spec.actors if isinstance(spec, AceFlat) else 1

    asked = spec.subset or spec.critics
    targets = actors * (_forward(rows, actor) + asked * _forward(rows, critic))
    if isinstance(spec, Sunrise) and spec.backup_temperature is not None:
        targets += _forward(rows, actor) + spec.critics * _forward(rows, critic)
    learning = _forward(rows, critic) + _to_weights(rows, critic) + _to_inputs(rows, critic)
    evaluation = targets + spec.critics * learning

    seen = 1 if spec.improve_on == "first" else spec.critics
    to_the_action = [*_to_inputs(rows, critic), (rows, spec.hidden[0], sizes.action)]
    through_critics = seen * (_forward(rows, critic) + to_the_action)
    learning = _forward(rows, actor) + _to_weights(rows, actor) + _to_inputs(rows, actor)
    return members * evaluation, members * actors * (learning + through_critics)


def _tree_multiplications(spec: Ace, sizes: Sizes) -> tuple[list[Shape], list[Shape]]:
    """ACE's, of depth 2. In the tree, K actors propose again behind each action, and the critic judges them all."""
    assert spec.depth == 2
    rows, (code, width), k = spec.batch_size, spec.hidden, spec.actors
    encoder, actor, pair = (
        _dense(sizes.obs, code),
        _dense(code, width, sizes.action),
        _dense(code + sizes.action, width, 1),
    )
    first, second = _dense(code, code), _dense(code + sizes.action, code)

    def tree(n: int) -> list[Shape]:  # below n * rows actions, all of a layer's inputs at once
        model = _forward(rows, first) + _forward(n * rows, second) + _forward(n * rows, pair)
        return model + k * _forward(n * rows, actor) + _forward(n * k * rows, pair)

    def tree_to_actions(n: int) -> list[Shape]:
        """The gradient of n * rows values: only the best leaf of each has one."""
        nets = (pair, pair, second)
        return [shape for net in nets for shape in (*_to_inputs(n * rows, net), (n * rows, net[0][1], net[0][0]))]

    learning = [*_to_weights(rows, encoder)]
    for net in (first, second, pair, pair):
        learning += _to_weights(rows, net)
    proposing = _forward(rows, encoder) + k * _forward(rows, actor)
    evaluation = proposing + tree(k) + _forward(rows, encoder) + tree(1) + learning + tree_to_actions(1)
    evaluation += [(rows, code, code)]
    improving = k * (_to_weights(rows, actor) + _to_inputs(rows, actor) + [(rows, width, code)])
    return evaluation, proposing + tree(k) + tree_to_actions(k) + improving + _to_weights(rows, encoder)


def _dense(*widths: int) -> Net:
    return list(itertools.pairwise(widths))


def _forward(rows: int, net: Net) -> list[Shape]:
    return [(rows, i, o) for i, o in net]


def _to_weights(rows: int, net: Net) -> list[Shape]:
    return [(i, rows, o) for i, o in net]


def _to_inputs(rows: int, net: Net) -> list[Shape]:
    """Down to the first layer's outputs, which is as far as the weights need."""
    return [(rows, o, i) for i, o in net[1:]]


class Multiplier:
    """The machine's BLAS, as NumPy calls it, on matrices of given shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        rng = np.random.default_rng(0)

        def draw(*shape: int) -> npt.NDArray[np.float32]:
            return rng.standard_normal(shape, np.float32)

        self._work = {s: (draw(s[0], s[1]), draw(s[1], s[2]), np.empty((s[0], s[2]), np.float32)) for s in set(shapes)}
        self.shapes = shapes

    def __call__(self) -> None:
        for shape in self.shapes:
            a, b, out = self._work[shape]
            np.dot(a, b, out=out)
