"""SUNRISE: its parts by hand, and what is left of it with one member."""

from dataclasses import replace
from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import sunrise
from mepg.algos.sac import SAC
from mepg.algos.sunrise import SUNRISE, SUNRISE_UCB, Sunrise, backup_weights, bootstrap_bits, ucb_action
from mepg.core import agent
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.policies import make_policy
from mepg.core.types import Sizes
from tests.conftest import SIZES, jit_quickly, make_batch

KEY = jax.random.key(0)
TINY = Sizes(obs=1, action=1)
SMALL = replace(SUNRISE, hidden=(16, 16))
CRITICS = make_critics(SUNRISE, TINY)


def linear_critics(slopes):
    """Q(s, a) = slope * a for each critic of each member: relu(a + 1) - 1 is a. Slopes are [M, N]."""
    slopes = jnp.array(slopes, jnp.float32)
    members, critics = slopes.shape
    hidden = Layer(jnp.tile(jnp.array([[0.0], [1.0]]), (members, critics, 1, 1)), jnp.ones((members, critics, 1)))
    return (hidden, Layer(slopes[:, :, None, None], -slopes[:, :, None]))


def deterministic_members(actions, slopes):
    """Members that always do the same, with critics of these slopes."""
    spec = Sunrise(members=len(actions), critics=len(slopes[0]), hidden=(1,), bootstrap=None)
    state = jit_quickly(sunrise.build(spec, TINY).init)(KEY)
    heads = jnp.arctanh(jnp.array(actions))[:, None]
    phi = (jax.tree.map(jnp.zeros_like, state.members.actor.params[0]), Layer(jnp.zeros((len(actions), 1, 1)), heads))
    actor = state.members.actor._replace(params=phi, target=phi)
    theta = linear_critics(slopes)
    critic = state.members.critic._replace(params=theta, target=theta)
    return spec, state._replace(members=state.members._replace(actor=actor, critic=critic))


def import_named(spec, state, next_obs, temperature):
    return backup_weights(
        make_policy(spec, TINY), make_critics(spec, TINY), spec, state.members, next_obs, KEY, temperature
    )


def test_backup_weights_by_hand():
    """Members at 0.5 and -0.5 with Q = a and Q = 3 a, twice each: 0.5, 0.5, -1.5, -1.5. Standard deviation 1.

    Asked at each other's actions as well they would give 0.5, -0.5, 1.5, -1.5: 1.118.
    """
    spec, state = deterministic_members([0.5, -0.5], [[1, 1], [3, 3]])
    for temperature in (1.0, 20.0):
        weights = import_named(spec, state, jnp.ones((4, 1)), temperature)
        np.testing.assert_allclose(weights, [1 / (1 + exp(temperature)) + 0.5] * 4, rtol=1e-5)


def test_members_that_agree_are_trusted():
    """No spread: the weight is 1, the highest; and it is never below 0.5."""
    spec, state = deterministic_members([0.5, 0.5], [[2, 2], [2, 2]])
    np.testing.assert_allclose(import_named(spec, state, jnp.ones((1, 1)), 20.0), 1.0, rtol=1e-6)
    spec, state = deterministic_members([0.9, -0.9], [[1e6, 1e6], [1e6, 1e6]])
    np.testing.assert_allclose(import_named(spec, state, jnp.ones((1, 1)), 20.0), 0.5)


def test_ucb_by_hand():
    """Q = a and Q = 3 a. Proposal 0.5: 0.5 and 1.5, mean 1, std 0.5. Proposal -1: -1 and -3, mean -2, std 1.

    With lambda 1 the scores are 1.5 and -1; with 10 they are 6 and 8.
    """
    theta = linear_critics([[1], [3]])
    proposals = jnp.array([[[0.5]], [[-1.0]]])  # [M, B, A]
    assert ucb_action(CRITICS, proposals, jnp.ones((1, 1)), theta, 1.0) == 0.5
    assert ucb_action(CRITICS, proposals, jnp.ones((1, 1)), theta, 10.0) == -1.0


def test_ucb_chooses_for_each_observation():
    """Q = relu(s + a): in the first state the first member has the better idea, in the second the second."""
    theta = (
        Layer(jnp.array([[[[1.0], [1.0]]]]), jnp.zeros((1, 1, 1))),
        Layer(jnp.ones((1, 1, 1, 1)), jnp.zeros((1, 1, 1))),
    )
    proposals = jnp.array([[[0.5], [-0.5]], [[-0.5], [0.5]]])
    np.testing.assert_array_equal(ucb_action(CRITICS, proposals, jnp.ones((2, 1)), theta, 1.0), [[0.5], [0.5]])


def test_bootstrap_bits():
    """Three fair bits, and one of them set where all were 0: each is 1 with 1/2 + 1/8 * 1/3."""
    bits = np.asarray(jit_quickly(lambda n: bootstrap_bits(KEY, n, 0.5, 3))(jnp.arange(20_000)))
    assert bits.shape == (3, 20_000)
    assert set(np.unique(bits)) == {0.0, 1.0}
    assert bits.any(axis=0).all()
    np.testing.assert_allclose(bits.mean(axis=1), 0.5 + 1 / 24, atol=0.015)
    np.testing.assert_allclose((bits.sum(axis=0) == 1).mean(), 3 / 8 + 1 / 8, atol=0.015)
    rare = np.asarray(bootstrap_bits(KEY, jnp.arange(2_000), 1e-6, 3))
    assert (rare.sum(axis=0) == 1).all()
    np.testing.assert_allclose(rare.mean(axis=1), 1 / 3, atol=0.05)


def test_bits_belong_to_the_transition():
    """Whenever and wherever it is sampled they are the same; another run's are others."""
    numbers = jnp.array([7, 123_456, 7, 3], jnp.uint32)
    bits = bootstrap_bits(KEY, numbers, 0.5, 8)
    np.testing.assert_array_equal(bits[:, 0], bits[:, 2])
    np.testing.assert_array_equal(bits[:, 1:2], bootstrap_bits(KEY, numbers[1:2], 0.5, 8))
    assert not np.array_equal(bits, bootstrap_bits(jax.random.key(1), numbers, 0.5, 8))


def test_bootstrapped_losses_by_hand(monkeypatch):
    """gamma = 0 and Q = 0, so a transition's loss is r^2 / 2 for each of 2 critics; rewards 1, 2, 3, 4.

    Member 0 has the first two: (1 + 4) / (2 + 1). Member 1 has only the last: 16 / (1 + 1). Member 2 none: 0.
    """
    spec = Sunrise(critics=2, hidden=(2,), discount=0.0, backup_temperature=None)
    batch = make_batch(4, TINY)._replace(reward=jnp.array([1.0, 2.0, 3.0, 4.0]))
    bits = jnp.array([[1.0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    monkeypatch.setattr(sunrise, "bootstrap_bits", lambda *_: bits)
    ensemble = sunrise.build(spec, TINY)
    state = jit_quickly(ensemble.init)(KEY)
    zero = jax.tree.map(jnp.zeros_like, state.members.critic)
    state = state._replace(members=state.members._replace(critic=zero))
    after, metrics = jit_quickly(ensemble.update)(state, batch, KEY)
    assert metrics["critic_loss"].value == pytest.approx((5 / 3 + 16 / 2 + 0) / 3)
    biases = after.members.critic.params[-1].b  # where the first gradient of a critic that is all zero goes
    assert (biases[:2] != 0).all()
    assert not biases[2].any(), "learned from transitions that it does not have"
    for before, now in zip(
        jax.tree.leaves(state.members.actor.params), jax.tree.leaves(after.members.actor.params), strict=True
    ):
        np.testing.assert_array_equal(before[2], now[2])


def test_weighted_backups_scale_the_loss():
    """Members that disagree by far: every weight is 0.5, and so the loss is half."""
    spec, state = deterministic_members([0.9, -0.9], [[1e3, 1e3], [1e3, 1e3]])
    batch = make_batch(8, TINY)
    losses = []
    for temperature in (None, 20.0):
        ensemble = sunrise.build(replace(spec, backup_temperature=temperature), TINY)
        losses.append({name: float(m.value) for name, m in jit_quickly(ensemble.update)(state, batch, KEY)[1].items()})
    assert losses[1]["critic_loss"] == pytest.approx(losses[0]["critic_loss"] / 2, rel=1e-5)
    assert losses[1]["actor_loss"] == pytest.approx(losses[0]["actor_loss"])
    assert losses[1]["backup_weight"] == pytest.approx(0.5)


def test_one_member_without_weights_and_bootstrap_is_sac():
    """Twenty updates of each, from the same networks, on the same batches, with the same keys."""
    spec = replace(SMALL, members=1, backup_temperature=None)
    assert spec.bootstrap is None  # bits that are never all zero say nothing to one member
    sac_spec = replace(SAC, hidden=(16, 16), target_every=1)
    ensemble, sac = sunrise.build(spec, SIZES), agent.build(sac_spec, SIZES)
    together, alone = jit_quickly(ensemble.update), jit_quickly(sac.update)
    ours = jit_quickly(ensemble.init)(KEY)
    first = lambda members: members._replace(  # noqa: E731
        **{
            name: jax.tree.map(lambda leaf: leaf[0], getattr(members, name))
            for name in ("actor", "critic", "temperature")
        }
    )
    theirs = first(ours.members)
    for i in range(20):
        batch, key = make_batch(seed=i), jax.random.key(i)
        _, k_members = jax.random.split(key)
        ours, our_metrics = together(ours, batch, key)
        theirs, their_metrics = alone(theirs, batch, jax.random.split(k_members, 1)[0])
        for name, metric in their_metrics.items():
            assert our_metrics[name].value == pytest.approx(float(metric.value), rel=1e-4, abs=1e-5), name
    for a, b in zip(jax.tree.leaves(first(ours.members)), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    obs, key = make_batch().obs, jax.random.key(9)
    np.testing.assert_allclose(ensemble.exploit(ours, obs), sac.exploit(theirs, obs), atol=1e-5)
    explored, _ = ensemble.explore(ours, ensemble.begin(key), obs, key)
    np.testing.assert_allclose(explored, sac.explore(theirs, (), obs, key)[0], atol=1e-5)


def test_one_member_explores_for_an_episode_and_all_are_asked_in_evaluation():
    _, state = deterministic_members([-0.5, 0.0, 0.8], [[1, 1]] * 3)
    ensemble = sunrise.build(Sunrise(critics=2, hidden=(1,)), TINY)
    obs = jnp.ones((2, 1))
    for member, expected in enumerate([-0.5, 0.0, 0.8]):
        action, memory = ensemble.explore(state, jnp.int32(member), obs, KEY)
        np.testing.assert_allclose(action, expected, atol=1e-6)
        assert memory == member, "another member went on with the episode"
    np.testing.assert_allclose(ensemble.exploit(state, obs), 0.1, atol=1e-6)
    drawn = np.asarray(jax.vmap(ensemble.begin)(jax.random.split(KEY, 3_000)))
    np.testing.assert_allclose(np.bincount(drawn) / 3_000, 1 / 3, atol=0.03)


def test_ucb_asks_every_step():
    spec, state = deterministic_members([-0.5, 0.8], [[1, 1]] * 2)
    ensemble = sunrise.build(replace(spec, ucb=1.0), TINY)
    assert ensemble.begin(KEY) == ()
    action, _ = ensemble.explore(state, (), jnp.ones((3, 1)), KEY)
    np.testing.assert_allclose(action, 0.8, atol=1e-6)  # Q = a


def test_a_delay_is_one_decision_for_all_members():
    """The condition must not become a selection, in which both branches are computed."""
    ensemble = sunrise.build(replace(SMALL, actor_every=2), SIZES)
    program = str(jax.make_jaxpr(ensemble.update)(jax.eval_shape(ensemble.init, KEY), make_batch(), KEY))
    assert "cond[" in program


def test_specs():
    """D13, and what means the same is the same."""
    assert (SUNRISE.members, SUNRISE.bootstrap, SUNRISE.backup_temperature, SUNRISE.ucb) == (3, 0.5, 20.0, None)
    assert (SUNRISE_UCB.members, SUNRISE_UCB.ucb) == (5, 1.0)
    assert replace(SUNRISE, bootstrap=1.0) == replace(SUNRISE, bootstrap=None)
    assert replace(SUNRISE, backup_temperature=0.0) == replace(SUNRISE, backup_temperature=None)
    assert replace(SUNRISE_UCB, members=1) == replace(SUNRISE, members=1)
    for wrong in ({"members": 0}, {"bootstrap": 0.0}, {"bootstrap": 1.5}, {"backup_temperature": -1.0}, {"ucb": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(SUNRISE, **wrong)
