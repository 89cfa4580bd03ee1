"""Golden traces: where 200 updates on fixed data lead, for every algorithm.

`python -m tests.core.test_golden NAME...` records those of these algorithms, and of all if none is named. Changing one
needs `[numerics]` in CHANGELOG.md.
"""

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core import policies
from mepg.core.spec import Dropout
from mepg.native.library import State, compile_function
from tests.conftest import EVERY_ALGORITHM, all_but_slow, jit_quickly, make_batch, sizes_of
from tests.core.test_agent import make, small, trainables

GOLDEN = Path(__file__).parent.parent / "data" / "golden.json"
UPDATES = 200
NUDGE = 1e-7  # about the last bit of a float32
NUDGED = 12  # trajectories that drift is measured by
MARGIN = 3


@cache
def given(sizes):
    """The batch and the key of each update."""
    batches = [make_batch(sizes=sizes, seed=i) for i in range(10)]
    return [(batches[i % 10], jax.random.fold_in(jax.random.key(8), i)) for i in range(UPDATES)]


def trace(name, agent=None, before=lambda state, i: state):
    """What there is after all updates, should something happen to the state before each of them."""
    agent = agent or make(name)
    state = agent.init(jax.random.key(7))
    for i, (batch, key) in enumerate(given(sizes_of(name))):
        state, _ = agent.update(before(state, i), batch, key)
    return summary(state)


@jit_quickly
def nudge(state, key):
    leaves, tree = jax.tree.flatten(state)
    keys = jax.random.split(key, len(leaves))
    moved = [
        leaf * (1 + NUDGE * jax.random.normal(k, leaf.shape)) if leaf.dtype == np.float32 else leaf
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def summary(state):
    """Each network's norm and its projection on a fixed direction."""
    rng = np.random.default_rng(0)
    networks = {f"{path}.params": trainable.params for path, trainable in trainables(state)}
    networks |= {f"{path}.target": t.target for path, t in trainables(state) if t.target is not None}
    numbers = {}
    for part, params in networks.items():
        vector = np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(params)])
        numbers[part] = np.array([np.linalg.norm(vector), vector @ rng.standard_normal(len(vector))])
    return numbers


def drift(name):
    """How far the program itself gets away from its trace when every number it keeps is nudged at every update."""
    here, nudged = trace(name), []
    for seed in range(NUDGED):
        keys = jax.random.split(jax.random.key(seed), UPDATES)
        nudged.append(trace(name, before=lambda state, i, keys=keys: nudge(state, keys[i])))
    return {part: np.max([abs(other[part] - here[part]) for other in nudged], axis=0) for part in here}


def departures(name, found):
    """The parts that are further from the golden trace than rounding takes them, with their distances.

    A nudge is what another processor's rounding amounts to. Adam makes more of it where a gradient is near 0: there
    a weight takes a whole step one way or the other, which few of the nudged trajectories may show. So one such step
    of a single weight is allowed for on top.
    """
    recorded = json.loads(GOLDEN.read_text())
    assert name in recorded, f"record it: python -m tests.core.test_golden {name}"
    golden = recorded[name]
    assert golden.keys() == found.keys()
    step = 3e-4  # Adam's: Table 5
    far = {}
    for part, (norm, projection) in found.items():
        known = golden[part]
        apart = np.abs([norm - known["norm"], projection - known["projection"]])
        if np.any(apart > MARGIN * np.array(known["drift"]) + [step / norm, step]):
            far[part] = apart.tolist()
    return far


@pytest.mark.parametrize("name", EVERY_ALGORITHM)
def test_golden_trace(name):
    assert departures(name, trace(name)) == {}


@pytest.mark.parametrize("name", all_but_slow(algorithms(), ["me-sac"]))
def test_golden_trace_in_native_code(name, native):
    agent = algorithms()[name].build(small(name), sizes_of(name))  # make's are jitted already
    first = agent.init(jax.random.key(7))
    leaves, tree = jax.tree.flatten(first)

    def update(leaves, batch, key):
        return jax.tree.leaves(agent.update(jax.tree.unflatten(tree, leaves), batch, key)[0]), ()

    updates = given(sizes_of(name))
    compiled = compile_function(update, leaves, *updates[0], state="written")
    state = State.of(leaves)
    for batch, key in updates:
        compiled(state, *jax.tree.leaves(batch), key)
    assert departures(name, summary(jax.tree.unflatten(tree, state.get()))) == {}


def other_masks(spec):
    return {"dropout": None} if spec.dropout else {"dropout": Dropout()}


CHANGES = {
    "discount": lambda spec: {"discount": spec.discount - 0.05},
    "mask": other_masks,
    "interval": lambda spec: {"target_every": spec.target_every + 1},
    "rate": lambda spec: {"target_rate": 1.1 * spec.target_rate},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", all_but_slow(["me-sac", "me-ddpg", "me-sac-r", "redq", "sunrise"], ["me-sac"]))
def test_a_changed_formula_is_noticed(name, change):
    spec = small(name)
    assert departures(name, trace(name, make(name, replace(spec, **CHANGES[change](spec)))))


def test_two_masks_in_place_of_one_are_noticed():
    spec = small("me-sac")
    assert departures(
        "me-sac", trace("me-sac", make("me-sac", replace(spec, dropout=replace(spec.dropout, masks="independent"))))
    )


@pytest.mark.parametrize("name", all_but_slow(["sac", "me-sac-r", "droq"], ["sac"]))
def test_a_changed_sign_is_noticed(name, monkeypatch):
    """Of the entropy, in Eq. (6), (7) and (8)."""
    sample_squashed = policies.sample_squashed

    def wrong(*arguments):
        action, log_prob = sample_squashed(*arguments)
        return action, -log_prob

    monkeypatch.setattr(policies, "sample_squashed", wrong)
    assert departures(name, trace(name, make.__wrapped__(name)))


def written(name):
    apart = drift(name)
    return {
        part: {"norm": norm, "projection": projection, "drift": apart[part].tolist()}
        for part, (norm, projection) in trace(name).items()
    }


if __name__ == "__main__":
    named = sys.argv[1:]
    recorded = json.loads(GOLDEN.read_text()) | {name: written(name) for name in named or algorithms()}
    GOLDEN.write_text(json.dumps({name: recorded[name] for name in algorithms() if name in recorded}, indent=1) + "\n")
