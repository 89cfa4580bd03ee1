"""ACE: the tree by hand, who learns, and what is left of it with one actor."""

from dataclasses import replace
from functools import partial
from math import tanh

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import ace
from mepg.algos.ace import ACE_FLAT, Ace, AceNetworks, OrnsteinUhlenbeck, make_tree
from mepg.algos.ddpg import DDPG
from mepg.core import agent
from mepg.core.bellman import critic_gradient
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.spec import Dropout
from mepg.core.types import Sizes
from tests.conftest import SIZES, jit_quickly, make_batch

KEY = jax.random.key(0)
TINY = Sizes(obs=1, action=1)
SMALL = Ace(hidden=(16, 16))


def column(*numbers):
    return jnp.array(numbers, jnp.float32)[:, None]


def hand_made(actions):
    """Networks whose values can be written down; z has one number.

    critic(z, a) = 4 tanh(z) + 5 tanh(a) + 1;  r(z, a) = 3 tanh(a) + 2;  z' = z + tanh(a);  pi_i(z) = actions[i].
    """
    heads = jnp.arctanh(jnp.array(actions, jnp.float32))[:, None]
    sees_both, sees_action = Layer(jnp.eye(2), jnp.zeros(2)), Layer(column(0, 1), jnp.zeros(1))
    return AceNetworks(
        encoder=Layer(jnp.ones((1, 1)), jnp.zeros(1)),
        actors=(
            Layer(jnp.zeros((len(actions), 1, 1)), jnp.zeros((len(actions), 1))),
            Layer(jnp.zeros((len(actions), 1, 1)), heads),
        ),
        critic=(sees_both, Layer(column(4, 5), jnp.ones(1))),
        reward=(sees_action, Layer(column(3), jnp.full(1, 2.0))),
        transition=(Layer(jnp.zeros((1, 1)), jnp.zeros(1)), sees_action),
    )


def critic(z, a):
    return 4 * tanh(z) + 5 * tanh(a) + 1


def reward(a):
    return 3 * tanh(a) + 2


def test_value_of_depth_two_by_hand():
    """Q_2(z, a) = r(z, a) + gamma max_i critic(z', pi_i(z')): the second actor, 0.75, is better wherever one is."""
    net, z, a, gamma = hand_made([-0.5, 0.75]), 0.3, 0.2, 0.9

    def ask(depth):
        tree = make_tree(Ace(actors=2, depth=depth, hidden=(1, 2), discount=gamma), TINY)
        return tree.value(net, jnp.full((1, 1), z), jnp.full((1, 1), a))

    assert float(ask(depth=1)[0]) == pytest.approx(critic(z, a), rel=1e-6)
    assert float(ask(depth=2)[0]) == pytest.approx(reward(a) + gamma * critic(z + tanh(a), 0.75), rel=1e-6)
    # Three deep, the actor that leads on need not be the better one at the leaf: both are tried.
    leaf = [reward(b) + gamma * critic(z + tanh(a) + tanh(b), 0.75) for b in (-0.5, 0.75)]
    assert float(ask(depth=3)[0]) == pytest.approx(reward(a) + gamma * max(leaf), rel=1e-6)


def test_the_actor_with_the_best_tree_is_followed():
    """At depth 1 a high action is better; a model in which it pays -20 turns that round."""
    net = hand_made([-0.5, 0.75])
    costly = net._replace(reward=(net.reward[0], Layer(column(-20), jnp.zeros(1))))
    for depth, networks, expected in [(1, net, 0.75), (2, net, 0.75), (1, costly, 0.75), (2, costly, -0.5)]:
        agent_ = ace.build(Ace(actors=2, depth=depth, hidden=(1, 2)), TINY)
        state = jit_quickly(agent_.init)(KEY)
        state = state._replace(networks=state.networks._replace(params=networks))
        np.testing.assert_allclose(agent_.exploit(state, jnp.ones((3, 1))), expected, atol=1e-6)


def test_losses_by_hand():
    """One transition s = 0, a = 0, r = 1, s' = 0 and alive; z = 0 and Q_2(0, 0) = 2 + gamma critic(0, 0.75)."""
    gamma, net = 0.9, hand_made([-0.5, 0.75])
    agent_ = ace.build(Ace(actors=2, hidden=(1, 2), discount=gamma), TINY)
    state = jit_quickly(agent_.init)(KEY)
    state = state._replace(networks=state.networks._replace(params=net, target=net))
    batch = make_batch(1, TINY)._replace(
        obs=jnp.zeros((1, 1)),
        action=jnp.zeros((1, 1)),
        reward=jnp.ones(1),
        discount=jnp.ones(1),
        next_obs=jnp.zeros((1, 1)),
    )
    _, metrics = jit_quickly(agent_.update)(state, batch, KEY)
    q = 2 + gamma * critic(0, 0.75)
    y = 1 + gamma * max(reward(a) + gamma * critic(tanh(a), 0.75) for a in (-0.5, 0.75))
    assert metrics["q"].value == pytest.approx(q, rel=1e-6)
    assert metrics["critic_loss"].value == pytest.approx(0.5 * (q - y) ** 2, rel=1e-5)
    assert metrics["reward_loss"].value == pytest.approx(0.5 * (2 - 1) ** 2, rel=1e-6)
    _, metrics = jit_quickly(agent_.update)(state, batch._replace(discount=jnp.zeros(1)), KEY)
    assert metrics["critic_loss"].value == pytest.approx(0.5 * (q - 1) ** 2, rel=1e-5)


def gradients(spec):
    """Of one update: how far each network moved, from Adam's moments. They begin at 0, so a 0 is no gradient ever."""
    agent_ = ace.build(spec, SIZES)
    state, _ = jit_quickly(agent_.update)(jit_quickly(agent_.init)(KEY), make_batch(), KEY)
    return state.networks.moments[0].mu


def test_who_learns_from_what():
    """The transition model learns through the tree only: not at all at depth 1. All else learns at any depth."""
    flat, deep = gradients(replace(SMALL, depth=1)), gradients(SMALL)
    assert not any(leaf.any() for leaf in jax.tree.leaves(flat.transition))
    assert all(leaf.any() for leaf in jax.tree.leaves(deep))
    assert all(leaf.any() for leaf in jax.tree.leaves((flat.encoder, flat.actors, flat.critic, flat.reward)))


def test_only_the_chosen_actor_learns():
    """Q rises with the action and the second actor is always ahead: under `chosen`, alone it moves."""
    net = hand_made([-0.5, 0.75, 0.1])
    for learners, moving in [("all", [True, True, True]), ("chosen", [False, True, False])]:
        agent_ = ace.build(Ace(actors=3, hidden=(1, 2), learners=learners), TINY)
        state = jit_quickly(agent_.init)(KEY)
        state = state._replace(networks=state.networks._replace(params=net, target=net))
        after, _ = jit_quickly(agent_.update)(state, make_batch(8, TINY), KEY)
        moved = after.networks.params.actors[-1].b[:, 0] != net.actors[-1].b[:, 0]
        np.testing.assert_array_equal(moved, moving)


def test_one_adam_moves_everything_twice():
    """As in the authors' code: after one update Adam has counted two steps, and the critic has moved in both."""
    agent_ = ace.build(SMALL, SIZES)
    state, _ = jit_quickly(agent_.update)(jit_quickly(agent_.init)(KEY), make_batch(), KEY)
    assert state.networks.moments[0].count == 2


def test_noise_goes_on_within_an_episode():
    """x <- x - 0.15 x 0.01 + 0.2 sqrt(0.01) N(0, 1), from 0."""
    agent_ = ace.build(SMALL, SIZES)
    state, obs = jit_quickly(agent_.init)(KEY), jnp.ones((1, SIZES.obs))
    memory = agent_.begin(KEY)
    np.testing.assert_array_equal(memory, np.zeros(SIZES.action))
    x, clean = np.zeros(SIZES.action), np.asarray(agent_.exploit(state, obs))
    for i in range(3):
        key = jax.random.key(i)
        action, memory = agent_.explore(state, memory, obs, key)
        x = x - 0.15 * x * 0.01 + 0.2 * 0.1 * np.asarray(jax.random.normal(key, (SIZES.action,)))
        np.testing.assert_allclose(memory, x, rtol=1e-5)
        np.testing.assert_allclose(action, clean + x, rtol=1e-4, atol=1e-6)
    action, _ = agent_.explore(state, memory + 5, obs, KEY)
    np.testing.assert_array_equal(action, np.ones((1, SIZES.action)))  # kept in bounds


def test_initial_networks():
    """Orthogonal, zero biases, and actors and critic near 0."""
    net = jit_quickly(ace.build(Ace(hidden=(32, 32)), SIZES).init)(KEY).networks.params
    np.testing.assert_allclose(net.transition[0].w @ net.transition[0].w.T, np.eye(32), atol=1e-5)
    tree = make_tree(Ace(hidden=(32, 32), depth=1), SIZES)
    z = tree.encode(net, jnp.ones((4, SIZES.obs)))
    assert z.shape == (4, 32)
    assert np.abs(tree.propose(net, z)).max() < 0.01
    assert np.abs(tree.value(net, z, tree.propose(net, z)[0])).max() < 0.01
    assert not net.encoder.b.any()


def stacked(state):
    """A plain agent's state as that of an ensemble of one actor."""
    return state._replace(actor=jax.tree.map(lambda leaf: leaf[None] if leaf.ndim else leaf, state.actor))


def test_flat_with_one_actor_is_ddpg():
    """Ten updates of each, from the same networks, of (400, 300)."""
    spec = replace(ACE_FLAT, actors=1)
    ensemble, ddpg = ace.build_flat(spec, SIZES), agent.build(replace(DDPG, hidden=(400, 300)), SIZES)
    together, alone = jit_quickly(ensemble.update), jit_quickly(ddpg.update)
    theirs = jit_quickly(ddpg.init)(KEY)
    ours = stacked(theirs)
    for i in range(10):
        batch, key = make_batch(seed=i), jax.random.key(i)
        ours, our_metrics = together(ours, batch, key)
        theirs, their_metrics = alone(theirs, batch, key)
        for name, metric in their_metrics.items():
            assert our_metrics[name].value == pytest.approx(float(metric.value), rel=1e-4, abs=1e-6), name
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(stacked(theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    obs = make_batch().obs
    np.testing.assert_allclose(ensemble.exploit(ours, obs), ddpg.exploit(theirs, obs), atol=1e-6)
    np.testing.assert_allclose(
        ensemble.explore(ours, (), obs, KEY)[0], ddpg.explore(theirs, (), obs, KEY)[0], atol=1e-6
    )


def flat_with(actions, spec):
    """Actors that always do the same, and a critic that likes high actions: Q = relu(a + 1)."""
    state = jit_quickly(ace.build_flat(spec, TINY).init)(KEY)
    heads = jnp.arctanh(jnp.array(actions, jnp.float32))[:, None]
    zero = jax.tree.map(jnp.zeros_like, state.actor.params)
    phi = (zero[0], zero[1]._replace(b=heads))
    theta = (Layer(jnp.array([[[0.0], [1.0]]]), jnp.ones((1, 1))), Layer(jnp.ones((1, 1, 1)), jnp.zeros((1, 1))))
    return state._replace(
        actor=state.actor._replace(params=phi, target=phi), critic=state.critic._replace(params=theta, target=theta)
    )


def test_flat_follows_the_best_actor_and_backs_its_value_up():
    """Actors at -0.5, 0.75 and 0.1; Q(s', 0.75) = 1.75. gamma = 0.5, r = 1, a = 0: (1 - 1.875)^2 / 2."""
    spec = replace(ACE_FLAT, actors=3, hidden=(1,), discount=0.5, exploration=None)
    flat, state = ace.build_flat(spec, TINY), flat_with([-0.5, 0.75, 0.1], spec)
    np.testing.assert_allclose(flat.exploit(state, jnp.ones((2, 1))), 0.75, atol=1e-6)
    np.testing.assert_allclose(flat.explore(state, (), jnp.ones((2, 1)), KEY)[0], 0.75, atol=1e-6)
    batch = make_batch(4, TINY)._replace(reward=jnp.ones(4), discount=jnp.ones(4), action=jnp.zeros((4, 1)))
    _, metrics = jit_quickly(flat.update)(state, batch, KEY)
    assert metrics["critic_loss"].value == pytest.approx(0.5 * (1 - (1 + 0.5 * 1.75)) ** 2)


@pytest.mark.parametrize(("learners", "moving"), [("all", [True, True, True]), ("chosen", [False, True, False])])
def test_flat_only_the_chosen_actor_learns(learners, moving):
    spec = replace(ACE_FLAT, actors=3, hidden=(1,), learners=learners)
    flat, state = ace.build_flat(spec, TINY), flat_with([-0.5, 0.75, 0.1], spec)
    after, _ = jit_quickly(flat.update)(state, make_batch(8, TINY), KEY)
    moved = after.actor.params[-1].b[:, 0] != state.actor.params[-1].b[:, 0]
    np.testing.assert_array_equal(moved, moving)


def test_flat_with_masks_is_consistent(batch):
    """The defining test for several actors: they are chosen on the complete critic, so both sides see one mask."""
    spec = replace(ACE_FLAT, hidden=(32, 32), discount=1.0, dropout=Dropout(p=0.5))
    state = jit_quickly(ace.build_flat(spec, SIZES).init)(KEY)
    theta, phi = state.critic.params, state.actor.params
    critics = make_critics(spec, SIZES)
    pi = partial(ace.several_actors(spec, SIZES, critics).sample, phi, theta)
    still = batch._replace(
        action=pi(batch.obs, KEY)[0],
        reward=jnp.zeros(len(batch.obs)),
        discount=jnp.ones(len(batch.obs)),
        next_obs=batch.obs,
    )
    assert critic_gradient(critics, spec, theta, theta, pi, 0.0, still, KEY)[1]["critic_loss"] == 0
    other = replace(spec, dropout=Dropout(p=0.5, masks="independent"))
    assert critic_gradient(critics, other, theta, theta, pi, 0.0, still, KEY)[1]["critic_loss"] > 0


def test_specs():
    """D12, and what means the same is the same."""
    spec = Ace()
    assert (spec.actors, spec.depth, spec.hidden, spec.lr, spec.batch_size) == (5, 2, (400, 300), 1e-4, 64)
    assert (spec.target_rate, spec.discount, spec.value_scale, spec.warmup) == (1e-3, 0.99, 10, 64)
    assert spec.exploration == OrnsteinUhlenbeck(rate=0.15, std=0.2, dt=0.01)
    assert Ace(exploration=OrnsteinUhlenbeck(std=0)) == Ace(exploration=None)
    assert Ace(actors=1, learners="chosen") == Ace(actors=1)
    assert replace(ACE_FLAT, actors=1, learners="chosen") == replace(ACE_FLAT, actors=1)
    for wrong in ({"actors": 0}, {"depth": 0}, {"depth": 7}, {"lr": 0.0}, {"hidden": (0, 1)}, {"discount": 2.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Ace(**wrong)
    with pytest.raises(ValueError, match="leaves"):
        Ace(actors=50, depth=4)
