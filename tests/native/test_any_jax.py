"""Whatever JAX is installed: every algorithm becomes C++, and a primitive that nobody has heard of does too.

`make test-jax` runs this on the oldest JAX that pyproject.toml admits, on the locked one and on the newest.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

from mepg.algos import algorithms
from mepg.native import library
from mepg.native.lowering import Lowering
from mepg.native.processor import best_instructions
from mepg.run.session import Session
from mepg.training.config import Config
from tests.conftest import KINDS, all_but_slow

from .conftest import Case
from .test_functions import agree, draw
from .test_ordinary_jax import GIVEN, GROUPS, together


@pytest.mark.parametrize("name", all_but_slow(algorithms(), KINDS))
def test_every_algorithm_becomes_c_plus_plus(name):
    """Traced, placed and written, but not compiled."""
    case = Case(name, initialised=False)
    given = case.arguments(1)
    _, _, memory, obs, step, _, key = given
    for function, arguments, state in (
        (case.learn, given, "written"),
        (case.program._explore_impl, (memory, obs, step, key), "read"),
        (case.program._exploit_impl, (obs,), "read"),
    ):
        assert "run(" in library.generate(function, (case.leaves, *arguments), state, best_instructions(), 1).text


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_ordinary_functions_become_c_plus_plus(group):
    assert "run(" in library.generate(together(group), (GIVEN,), "none", best_instructions(), 1).text


def primitive(name, results, lowering):
    """One that is new: JAX knows what its results look like and how it is lowered, and nobody knows more."""
    new = Primitive(name)
    new.multiple_results = results > 1

    def abstract(x, *_, **__):
        return [x.update(shape=(x.shape[0], 5))] * results if results > 1 else x

    new.def_abstract_eval(abstract)
    mlir.register_lowering(new, mlir.lower_fun(lowering, multiple_results=results > 1))
    return new


SWISH = primitive("made_up_swish", 1, lambda x, *, beta: x * jax.nn.sigmoid(beta * x) + jnp.cumsum(x, axis=1))
PARTS = primitive(
    "made_up_parts", 2,
    lambda x, i: (jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y + x[i, :5]), x[:, :5]), jnp.sort(x, axis=1)[:, :5]),
)  # fmt: skip


def made_up(x, w, i):
    one, two = PARTS.bind(SWISH.bind(x, beta=2.0), i)
    inside = jax.lax.scan(lambda total, row: (total + SWISH.bind(row[None], beta=0.5)[0], total.sum()), x[0], x)
    return jax.nn.relu(SWISH.bind(x, beta=1.0) @ w), one, two, inside


@pytest.mark.usefixtures("compiler")
def test_a_primitive_that_nobody_has_heard_of():
    assert not [name for name in dir(Lowering) if "made_up" in name]
    agree(made_up, draw(14, 35), draw(35, 20), np.int32(3), tolerance=1e-5)


# Primitives that are views, products or loops of others: JAX's lowering of them is enough.
DISPENSABLE = ["scan", "split", "stack", "tile", "squeeze", "square", "integer_pow", "logistic"]


def with_all_of_them(x, w):
    one, two = jnp.split(x[:, :34], 2, axis=1)
    hidden = jnp.tile(jnp.stack([one, two]), (1, 2, 1)).sum(axis=0)
    total, steps = jax.lax.scan(lambda t, row: (t * 0.5 + row @ w, t.sum()), jnp.zeros(20), x, reverse=True)
    return hidden**3 + jnp.square(hidden) * jax.nn.sigmoid(hidden), total, steps, x[:, :1].squeeze(1) ** -2


@pytest.mark.usefixtures("compiler")
def test_one_that_looks_different_in_another_release(monkeypatch):
    """Its method fails as if a parameter had another name; scan's did so in JAX 0.11."""

    def fails(*_, **__):
        raise TypeError("missing 2 required keyword-only arguments")

    agree(with_all_of_them, draw(14, 35), draw(35, 20), tolerance=1e-5)
    for name in DISPENSABLE:
        monkeypatch.setattr(Lowering, f"_{name}", fails, raising=False)
    agree(with_all_of_them, draw(14, 35), draw(35, 20), tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["me-sac", "droq"])
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_a_training(name, backend, tmp_path):
    settings = ["hidden=16,16", "batch_size=16", "warmup=30"]
    config = Config.make(name, settings, env="Pendulum-v1", steps=60, eval_every=30, eval_episodes=1, backend=backend)
    with Session(config, tmp_path / "run") as session:
        assert [record.step for record in session][-1] == 60
    assert not session.notes
