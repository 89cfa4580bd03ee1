"""What holds for every algorithm."""

import contextlib
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.algos.mepg import ME_SAC
from mepg.algos.sac import SAC
from mepg.core.spec import Dropout, Noise, Pessimism, PolicyAverage, Quantiles, Search, Spec, Temperature
from mepg.core.types import AgentState, Trainable
from mepg.storage.checkpoint import flatten, unflatten
from mepg.storage.files import read_arrays, write_arrays
from tests.conftest import EVERY_ALGORITHM, KINDS, all_but_slow, jit_quickly, leaves_equal, make_batch, sizes_of


def small(name, **changes):
    spec = algorithms()[name].spec
    return replace(spec, hidden=(16, 16), **changes)


@cache
def make(name, spec=None):
    """The agent, compiled once for all tests."""
    agent = algorithms()[name].build(spec or small(name), sizes_of(name))
    return agent._replace(init=jit_quickly(agent.init), update=jit_quickly(agent.update))


def updated(name, updates, seed=0, spec=None):
    agent, sizes = make(name, spec), sizes_of(name)
    state = agent.init(jax.random.key(seed))
    history = [state]
    for i in range(updates):
        batch, key = make_batch(sizes=sizes, seed=i % 10), jax.random.fold_in(jax.random.key(seed + 1), i)
        state, metrics = agent.update(state, batch, key)
        history.append(state)
    return history, metrics


def instances(state, kind):
    """What there is of a kind in a state, with its path."""
    leaves = jax.tree_util.tree_flatten_with_path(state, is_leaf=lambda leaf: isinstance(leaf, kind))[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in leaves if isinstance(x, kind)]


def trainables(state):
    return instances(state, Trainable)


def test_quick_tests_see_every_kind_of_spec():
    tried = {type(algorithms()[name].spec) for name in KINDS}
    untried = {name: type(a.spec).__name__ for name, a in algorithms().items() if type(a.spec) not in tried}
    assert not untried, f"name one algorithm of each of these specs in KINDS, tests/conftest.py: {untried}"


@pytest.mark.parametrize("name", EVERY_ALGORITHM)
def test_shapes_and_finiteness(name):
    agent, sizes = make(name), sizes_of(name)
    history, metrics = updated(name, 4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(history[-1]))
    assert all(np.isfinite(metric.value) and metric.value.shape == () for metric in metrics.values())
    for obs in (jnp.ones((1, sizes.obs)), jnp.ones((7, sizes.obs))):
        memory = agent.begin(jax.random.key(1))
        explored, later = agent.explore(history[-1], memory, obs, jax.random.key(0))
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), memory) == jax.tree.map(
            lambda leaf: (leaf.shape, leaf.dtype), later
        )
        for action in (agent.exploit(history[-1], obs), explored):
            assert action.shape == (len(obs), sizes.action_width)
            if sizes.action_kind == "box":
                assert np.abs(action).max() <= 1
            else:
                assert set(np.ravel(action)) <= set(range(sizes.action))
    assert jax.tree.structure(history[0]) == jax.tree.structure(history[-1])


@pytest.mark.parametrize("name", EVERY_ALGORITHM)
def test_same_seed_same_bits_other_seed_others(name):
    once, again, other = (updated(name, 3, seed=seed)[0][-1] for seed in (0, 0, 1))
    assert leaves_equal(once, again)
    assert not leaves_equal(once, other)


@pytest.mark.parametrize("name", EVERY_ALGORITHM)
def test_state_survives_the_file(name, tmp_path):
    history, _ = updated(name, 3)
    write_arrays(tmp_path / "state.safetensors", flatten(history[-1], "agent"))
    template = jax.eval_shape(make(name).init, jax.random.key(0))
    assert leaves_equal(unflatten(read_arrays(tmp_path / "state.safetensors"), template, "agent"), history[-1])


@pytest.mark.parametrize("name", EVERY_ALGORITHM)
def test_everything_that_can_learn_does(name):
    history, _ = updated(name, 20)  # the longest delay
    assert trainables(history[0])
    for (path, before), (_, after) in zip(trainables(history[0]), trainables(history[-1]), strict=True):
        leaves = jax.tree_util.tree_flatten_with_path(before)[0]
        for (inner, old), new in zip(leaves, jax.tree.leaves(after), strict=True):
            name = jax.tree_util.keystr(inner)
            running = name.startswith(".moments") and name.endswith((".norm.mean", ".norm.variance"))
            # What has no gradient gives Adam nothing to remember.
            assert not new.any() if running else not np.array_equal(old, new), path + name


@pytest.mark.parametrize("name", all_but_slow([n for n, a in algorithms().items() if isinstance(a.spec, Spec)], KINDS))
def test_what_is_delayed_moves_on_time(name):
    spec = small(name)
    history, _ = updated(name, 4)
    history = [instances(state, AgentState)[0][1] for state in history]  # SUNRISE's has all members in it
    for count, (before, after) in enumerate(pairwise(history), start=1):
        assert int(after.updates) == count
        assert not leaves_equal(before.critic.params, after.critic.params)
        assert leaves_equal(before.actor.params, after.actor.params) == (count % spec.actor_every != 0)
        if before.critic.target is not None:
            assert leaves_equal(before.critic.target, after.critic.target) == (count % spec.target_every != 0)
        if before.temperature is not None:
            assert leaves_equal(before.temperature, after.temperature) == (count % spec.actor_every != 0)


def test_target_networks_follow():
    spec = small("me-ddpg", target_rate=0.25)
    history, _ = updated("me-ddpg", 2, spec=spec)
    for part in ("actor", "critic"):
        start, end = getattr(history[0], part), getattr(history[2], part)
        assert leaves_equal(start.target, start.params)  # begins as a copy
        expected = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, end.params, start.target)
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(end.target), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7)


def test_temperature_may_move_more_often_than_the_policy():
    spec = small("me-sac", temperature=Temperature(every=1))
    history, _ = updated("me-sac", 2, spec=spec)
    assert not leaves_equal(history[0].temperature, history[1].temperature)
    assert leaves_equal(history[0].actor, history[1].actor)


def test_policy_metrics_count_only_where_the_policy_moved():
    agent = make("me-sac")
    state = agent.init(jax.random.key(0))
    state, first = agent.update(state, make_batch(), jax.random.key(1))
    state, second = agent.update(state, make_batch(), jax.random.key(2))
    assert first["actor_loss"] == first["ent_coef"] == (0, 0)
    assert first["critic_loss"].weight == second["actor_loss"].weight == 1
    assert second["actor_loss"].value != 0
    assert second["ent_coef"].value == pytest.approx(0.1)


# What a field may be changed to. A new field needs its line.
OTHERS = {
    "exploration": [Noise(std=0.3)],
    "search": [Search(), Search(how="thompson")],
    "pessimism": [Pessimism()],
    "pessimism.beta": [0.5],
    "pessimism.policy": [True],
    "policy_average": [PolicyAverage(rate=0.1), PolicyAverage(rate=0.1, use="acting")],
    "policy_average.rate": [0.3],
    "policy_average.use": ["acting", "targets"],
    "minto": [True],
    "lr_decay": [1000],
    "dropout.shared": [True],
    "quantiles": [Quantiles(count=5)],
    "quantiles.count": [5],
    "quantiles.dropped": [1],
    "huber": [None, 0.5],
    "double": [False],
    "epsilon": [None],
    "epsilon.start": [0.5],
    "epsilon.end": [0.2],
    "epsilon.steps": [50],
    "max_grad_norm": [10.0],
    "entropy_ratio": [0.9],
    "search.how": ["thompson", "ucb"],
    "search.proposals": [5],
    "search.kappa": [2.0],
    "smoothing": [None, Noise(std=0.3)],
    "actor_every": [3],
    "critics": [3],
    "policy_q": ["mean", "first"],
    "subset": [1],
    "layer_norm": [True, False],
    "target_every": [3],
    "discount": [0.5],
    "target_rate": [0.1],
    "actor_lr": [1e-2],
    "critic_lr": [1e-2],
    "hidden": [(8, 16)],
    "init": ["orthogonal", "uniform"],
    "precision": ["mixed"],
    "dropout.p": [0.5],
    "dropout.masks": ["independent", "online", "expected", "consistent"],
    "dropout.layers": ["all"],
    "dropout.rows": ["batch"],
    "dropout.place": ["after", "before"],
    "dropout.policy_mask": [False, True],
    "temperature.initial": [0.5],
    "temperature.lr": [None, 1e-2],
    "temperature.target_entropy": [5.0],
    "temperature.every": [1],
    "gaussian.log_std": [(-20.0, 2.0)],
    "gaussian.bound": ["clip"],
    "exploration.std": [0.3],
    "exploration.clip": [0.01],
    "smoothing.std": [0.05],
    "smoothing.clip": [0.01],
    "members": [2],
    "bootstrap": [None, 0.7],
    "backup_temperature": [None, 5.0],
    "ucb": [None, 3.0],
    "actors": [3],
    "learners": ["chosen"],
    "depth": [1, 3],
    "lr": [1e-2],
    "value_scale": [1.0],
    "exploration.rate": [0.5],
    "exploration.dt": [0.1],
    "adam_b1": [0.3],
    "actor_hidden": [(8, 16)],
    "batch_norm.momentum": [0.5],
    "batch_norm.warmup": [7],
}
USED_BY_THE_LOOP = {"batch_size", "replay_size", "warmup", "updates_per_step", "n_step"}  # tests/run/test_loop.py
ABSENT = {"dropout": Dropout(), "gaussian": None, "temperature": None}


def others(field):
    assert field in OTHERS, f"a new field needs a line in OTHERS, tests/core/test_agent.py: {field!r}, and other values"
    return OTHERS[field]


def field_changes(spec):
    for field in fields(spec):
        value = getattr(spec, field.name)
        if is_dataclass(value):
            for inner in fields(value):
                for other in others(f"{field.name}.{inner.name}"):
                    yield f"{field.name}.{inner.name}={other}", {field.name: replace(value, **{inner.name: other})}
        elif field.name in ABSENT:
            if ABSENT[field.name] is not None:
                yield field.name, {field.name: ABSENT[field.name]}
        elif field.name not in USED_BY_THE_LOOP:
            for other in others(field.name):
                yield f"{field.name}={other}", {field.name: other}


def other_specs(spec):
    """Each change, and the spec with it; what the rest of the spec rules out is refused, and so not ignored either."""
    for change, values in field_changes(spec):
        with contextlib.suppress(ValueError):
            if (other := replace(spec, **values)) != spec:
                yield change, other


def program(name, spec):
    """All that the agent computes, as text: every operation and every constant in it. What changes most comes first."""
    sizes = sizes_of(name)
    agent = algorithms()[name].build(spec, sizes)
    key = jax.random.key(0)
    state = jax.eval_shape(agent.init, key)
    obs = jnp.ones((4, sizes.obs))
    yield str(jax.make_jaxpr(agent.update)(state, make_batch(sizes=sizes), key))
    yield str(jax.make_jaxpr(agent.explore)(state, jax.eval_shape(agent.begin, key), obs, key))
    yield str(jax.make_jaxpr(agent.begin)(key))
    yield str(jax.make_jaxpr(agent.init)(key))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ace", {}),
        ("me-sac", {"search": Search(how="thompson")}),
        ("me-dqn", {"search": Search(), "max_grad_norm": 1.0, "pessimism": Pessimism()}),
        ("me-sac-discrete", {"pessimism": Pessimism(), "policy_average": PolicyAverage()}),
        ("me-crossq", {"pessimism": Pessimism(), "policy_average": PolicyAverage(rate=0.1)}),
    ]
    + [pytest.param("me-ddpg", given, marks=pytest.mark.slow) for given in ({}, {"search": Search()})]
    + [pytest.param("sac", {}, marks=pytest.mark.slow)]
    + [
        pytest.param(name, {}, marks=pytest.mark.slow)
        for name in KINDS
        if name not in ("me-ddpg", "ace", "me-sac", "me-dqn")
    ],
)
def test_every_field_matters(name, given):
    """No knob that turns nothing: changing any field changes what the algorithm does."""
    spec = small(name, **given)
    base = list(program(name, spec))
    assert base == list(program(name, replace(spec))), "the text must not depend on when it is written"
    changes = dict(other_specs(spec))
    assert len(changes) >= 10
    for change, other in changes.items():
        assert any(ours != theirs for ours, theirs in zip(base, program(name, other), strict=True)), change


def test_without_dropout_me_sac_with_two_critics_is_sac():
    """A collapse in bits, not only in `==`."""
    collapsed = replace(ME_SAC, dropout=Dropout(p=0), critics=2, actor_every=1, hidden=(16, 16))
    ours, _ = updated("me-sac", 3, spec=collapsed)
    theirs, _ = updated("sac", 3, spec=replace(SAC, hidden=(16, 16)))
    assert leaves_equal(ours[-1], theirs[-1])


def test_fixed_temperature_has_nothing_to_learn():
    history, metrics = updated("me-sac+fixent", 2)
    assert history[-1].temperature is None
    assert metrics["ent_coef"].value == pytest.approx(0.1)  # D21


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("me-sac", {"layer_norm": True}),
        ("ace-flat", {"dropout": Dropout(masks="expected")}),
        pytest.param("redq", {"dropout": Dropout()}, marks=pytest.mark.slow),
        pytest.param("sunrise", {"dropout": Dropout()}, marks=pytest.mark.slow),
        pytest.param("ace-flat", {"dropout": Dropout()}, marks=pytest.mark.slow),
    ],
)
def test_what_composes(name, change):
    """Layer normalisation with a consistent mask; consistent masks with every kind of ensemble; expected ones."""
    history, metrics = updated(name, 20, spec=small(name, **change))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(history[-1]))
    before, after = (instances(state, AgentState)[0][1] for state in (history[0], history[-1]))
    assert not leaves_equal(before.actor.params, after.actor.params)
    assert metrics["critic_loss"].value > 0
    plain = updated(name, 20)[0][-1]
    assert not leaves_equal(instances(plain, AgentState)[0][1].actor.params, after.actor.params)


def test_initialisation():
    """D10: uniform within 1/sqrt(fan-in) with biases, or orthogonal with none."""
    phi = make("ddpg", Spec(hidden=(64, 64))).init(jax.random.key(0)).actor.params
    for layer in phi:
        bound = layer.w.shape[0] ** -0.5
        assert 0.8 * bound < np.abs(layer.w).max() <= bound
        assert 0 < np.abs(layer.b).max() <= bound
    state = make("sac", replace(SAC, hidden=(64, 64))).init(jax.random.key(0))
    square = state.actor.params[1].w
    np.testing.assert_allclose(square @ square.T, np.eye(64), atol=1e-4)
    assert not any(layer.b.any() for layer in state.critic.params)
    assert not np.array_equal(state.critic.params[0].w[0], state.critic.params[0].w[1])
