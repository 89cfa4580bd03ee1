"""Every algorithm's policy as plain operations: carried out elsewhere, they do what it does here."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.core.normalise import with_normalised_obs
from mepg.errors import UsageError
from mepg.export.onnx import open_session, to_onnx
from mepg.export.operations import trace
from mepg.export.standalone import run
from tests.conftest import EVERY_AGENT, jit_quickly
from tests.export.policies import SIZES, some_agent


def assert_exports(agent, state, spread=1):
    obs = np.random.default_rng(1).normal(0, spread, (64, SIZES.obs)).astype(np.float32)
    program = trace(agent.exploit, state, SIZES.obs)
    expected = np.asarray(jit_quickly(agent.exploit)(state, obs))
    np.testing.assert_allclose(run(program.operations, program.constants, obs)["action"], expected, atol=1e-5)
    session = open_session(to_onnx(program, SIZES.obs, {}))
    for batch in (obs, obs[:1], obs[:7]):
        (action,) = session.run(["action"], {"obs": batch})
        np.testing.assert_allclose(action, expected[: len(batch)], atol=1e-5)
    assert np.std(expected) > 0.01, "a policy that does something"
    return program


@pytest.mark.parametrize("name", EVERY_AGENT)
def test_every_algorithm_exports(name):
    pytest.importorskip("onnxruntime")
    # Of discrete actions one is the best nearly everywhere, unless observations are far apart.
    assert_exports(*some_agent(name), spread=1 if "box" in algorithms()[name].actions else 20)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ace", ["depth=1"]),
        ("ace", ["depth=3", "layer_norm=true"]),
        ("ace", ["actors=1"]),
        ("ace-flat", ["critics=3", "layer_norm=true", "policy_q=mean"]),
        ("ace-flat", ["critics=2", "policy_q=first", "gaussian.bound=clip"]),
        ("sunrise", ["members=1", "hidden=8"]),
        ("me-sac+lcb", ["policy_average.use=both"]),
        ("qr-dqn", ["critics=2", "policy_q=mean"]),
    ],
)
def test_and_so_do_its_variants(name, settings):
    pytest.importorskip("onnxruntime")
    assert_exports(*some_agent(name, settings), spread=20 if name == "qr-dqn" else 1)


def test_normalisation_is_part_of_the_program():
    pytest.importorskip("onnxruntime")
    agent, state = some_agent("me-sac")
    agent = with_normalised_obs(agent, SIZES)
    state = agent.init(jax.random.key(0))._replace(
        agent=state, mean=jnp.array([3.0, -2.0, 0.1]), variance=jnp.array([9.0, 0.0, 1e-4])
    )
    assert_exports(agent, state)


def test_only_what_the_action_depends_on_is_exported():
    agent, state = some_agent("sac")
    program = trace(agent.exploit, state, SIZES.obs)
    numbers = sum(array.size for array in program.constants.values())
    assert numbers == sum(leaf.size for leaf in jax.tree.leaves(state.actor.params)) + 2, "and the 0 of two ReLUs"


@pytest.mark.parametrize("use", ["acting", "both", "targets"])
def test_the_averaged_policy_is_exported_if_it_acts(use):
    agent, state = some_agent("me-sac+lcb", [f"policy_average.use={use}"])
    program = trace(agent.exploit, state, SIZES.obs)
    acts = state.actor.params if use == "targets" else state.policy_average
    exported = {array.tobytes() for array in program.constants.values()}
    assert {np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(acts)} <= exported


def test_an_operation_that_is_not_known_is_named():
    with pytest.raises(UsageError, match="JAX's 'cos'"):
        trace(lambda state, obs: jnp.cos(obs) + state, jnp.zeros(3), 3)


def test_every_kind_of_spec_is_covered():
    """Should an algorithm get a spec of another kind, the runs above need one of it too."""
    kinds = {type(algorithm.spec).__name__ for algorithm in algorithms().values()}
    assert kinds == {"Spec", "Sunrise", "Ace", "AceFlat", "CrossQ", "ValueSpec", "CategoricalSpec"}
    assert all(dataclasses.is_dataclass(algorithm.spec) for algorithm in algorithms().values())
