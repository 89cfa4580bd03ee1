"""CrossQ: both sides in one batch, what is left of it without normalisation, and one mask in both halves."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms, crossq
from mepg.algos.crossq import CROSSQ, ME_CROSSQ, BatchNormalisation, CrossQ, batch_normalised, renormalise
from mepg.core import agent
from mepg.core.nets import BatchNorm
from mepg.core.spec import Dropout, Gaussian, Spec, Temperature
from tests.conftest import SIZES, all_but_slow, draw, jit_quickly, make_batch

KEY = jax.random.key(0)
SMALL = {"hidden": (16, 16), "actor_hidden": (16, 16)}


def started(spec, seed=0):
    made = crossq.build(spec, SIZES)
    return made, jit_quickly(made.init)(jax.random.key(seed))


def after(made, state, updates):
    update = jit_quickly(made.update)
    for i in range(updates):
        state, metrics = update(state, make_batch(seed=i), jax.random.fold_in(KEY, i))
    return state, metrics


def test_the_authors_settings():
    """Theirs, but for the critics' 2048 units, and the paper's p where there is a mask."""
    assert CROSSQ.gaussian == Gaussian(log_std=(-20, 2), bound="clip")
    assert CROSSQ.temperature == Temperature(initial=1, lr=1e-3)
    assert CROSSQ.batch_norm == BatchNormalisation(momentum=0.99, warmup=100_000)
    assert (CROSSQ.actor_lr, CROSSQ.critic_lr, CROSSQ.adam_b1) == (1e-3, 1e-3, 0.5)
    assert (CROSSQ.actor_every, CROSSQ.critics, CROSSQ.warmup, CROSSQ.batch_size) == (3, 2, 5_000, 256)
    assert (CROSSQ.hidden, CROSSQ.actor_hidden) == ((256, 256), (256, 256))
    assert replace(CROSSQ, dropout=Dropout(p=0.1), critics=1) == ME_CROSSQ
    assert replace(ME_CROSSQ, dropout=Dropout(p=0)) == replace(CROSSQ, critics=1)
    assert algorithms()["me-crossq-r"].spec.dropout.masks == "independent"


@pytest.mark.parametrize(
    "dropout",
    all_but_slow(
        [None, Dropout(), Dropout(masks="independent", rows="batch"), Dropout(masks="online")], [None, Dropout()]
    ),
)
def test_without_normalisation_it_is_sac_whose_targets_follow_at_once(dropout):
    """No target network is one that is a copy after every update. All else is SAC's: equation, policy, temperature."""
    critics = 1 if dropout else 2
    spec = CrossQ(batch_norm=None, dropout=dropout, critics=critics, **SMALL)
    names = (field for field in Spec.__dataclass_fields__ if field not in ("batch_norm", "actor_hidden"))
    sac = Spec(**{name: getattr(spec, name) for name in names})
    assert (sac.target_rate, sac.target_every) == (1, 1)
    ours, theirs = crossq.build(spec, SIZES), agent.build(sac, SIZES)
    state, metrics = after(ours, jit_quickly(ours.init)(KEY), 7)
    other, other_metrics = after(theirs, jit_quickly(theirs.init)(KEY), 7)
    other = other._replace(critic=other.critic._replace(target=None))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), state, other)
    for name, metric in metrics.items():
        np.testing.assert_allclose(metric.value, other_metrics[name].value, rtol=1e-4, atol=1e-5)


def still(made, spec, state, key):
    """A batch in which nothing moves: s' = s, a is the a' that will be drawn, r = 0, and no end."""
    batch = make_batch()
    k_critic, *_ = jax.random.split(key, 3)
    k_action = jax.random.split(k_critic, 4)[1]
    action, _ = made.beliefs.critics_policy(state, batch.obs, KEY, k_action)
    zeros = jnp.zeros(len(action))
    return batch._replace(action=action, next_obs=batch.obs, reward=zeros, discount=zeros + 1)


@pytest.mark.parametrize(
    "where", all_but_slow(["last sample", "last batch", "all sample", "all batch"], ["last sample"])
)
def test_defining(where):
    """s = s', a = a', r = 0, gamma = 1, no entropy: the halves are the same, and one mask leaves no residual."""
    losses, (layers, rows) = {}, where.split()
    for masks in ("consistent", "independent", "online"):
        dropout = Dropout(p=0.3, layers=layers, rows=rows, masks=masks)
        spec = replace(ME_CROSSQ, discount=1, temperature=None, dropout=dropout, **SMALL)
        made, state = started(spec)
        _, metrics = jit_quickly(made.update)(state, still(made, spec, state, KEY), KEY)
        losses[masks] = float(metrics["critic_loss"].value)
    assert losses["consistent"] == pytest.approx(0, abs=1e-10)
    assert losses["independent"] > 1e-3
    assert losses["online"] > 1e-3


def test_there_are_no_target_networks_and_statistics_move_with_what_they_belong_to():
    made, state = started(replace(ME_CROSSQ, **SMALL))
    assert state.critic.target is None
    assert state.actor.target is None
    once, _ = after(made, state, 1)
    batch = make_batch(seed=0)
    key = jax.random.split(jax.random.split(jax.random.fold_in(KEY, 0), 3)[0], 4)[1]
    next_action, _ = made.beliefs.critics_policy(state, batch.next_obs, KEY, key)
    both = np.concatenate([np.c_[batch.obs, batch.action], np.c_[batch.next_obs, next_action]])
    seen = once.critic.params[0].norm
    np.testing.assert_allclose(seen.mean[0], 0.01 * both.mean(axis=0), atol=1e-6)  # from 0, with momentum 0.99
    np.testing.assert_allclose(seen.variance[0], 0.99 + 0.01 * both.var(axis=0), atol=1e-6)  # from 1
    for layer in once.actor.params:
        assert not layer.norm.mean.any(), "the policy moves with every third update"
    thrice, _ = after(made, state, 3)
    seen = thrice.actor.params[0].norm
    np.testing.assert_allclose(seen.mean, 0.01 * make_batch(seed=2).obs.mean(axis=0), atol=1e-6)


def test_both_sides_are_normalised_together():
    """Where every s' is terminal y is r alone; another s' still changes what Q(s, a) is normalised by."""
    made, state = started(replace(ME_CROSSQ, **SMALL))
    batch = make_batch()._replace(discount=jnp.zeros(16))
    losses = [
        float(jit_quickly(made.update)(state, batch._replace(next_obs=factor * batch.next_obs), KEY)[1]["q"].value)
        for factor in (1.0, 5.0)
    ]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_renormalisation_begins_after_its_warm_up():
    """Until then the running means are not used while learning, whatever they are."""
    for warmup, matters in ((100_000, False), (0, True)):
        spec = replace(ME_CROSSQ, batch_norm=BatchNormalisation(warmup=warmup), **SMALL)
        made, state = started(spec)
        shifted = tuple(
            layer._replace(norm=layer.norm._replace(mean=layer.norm.mean + 1)) for layer in state.critic.params
        )
        other = state._replace(critic=state.critic._replace(params=shifted))
        q, moved = (float(jit_quickly(made.update)(each, make_batch(), KEY)[1]["q"].value) for each in (state, other))
        assert (q != pytest.approx(moved, rel=1e-4)) == matters


def test_it_acts_by_the_running_means():
    """One observation alone is acted on as it is in a batch."""
    made, state = started(replace(CROSSQ, **SMALL))
    state, _ = after(made, state, 6)
    obs = make_batch().obs
    together = made.exploit(state, obs)
    np.testing.assert_allclose(together[:1], made.exploit(state, obs[:1]), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target_rate": 0.005}, "target_rate must be 1 in CrossQ, not 0.005"),
        ({"target_every": 2}, "target_every must be 1 in CrossQ, not 2"),
        ({"subset": 1}, "subset must be none in CrossQ, not 1"),
        ({"layer_norm": True}, "layer_norm must be false in CrossQ, not True"),
        ({"gaussian": None, "temperature": None}, "gaussian must be set"),
        ({"actor_hidden": ()}, "actor_hidden must be one to a hundred widths"),
        ({"adam_b1": 1.0}, "adam_b1 must be in [0, 1), not 1.0"),
    ],
)
def test_what_it_has_not_is_refused_by_name(change, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        replace(CROSSQ, **change)


def test_parameters_are_counted_without_what_no_gradient_moves():
    """With S = 3, A = 2 and 4 units: weights and biases, and a scale and a shift for each input of a layer."""
    spec = replace(CROSSQ, hidden=(4,), actor_hidden=(4,))
    actor = (3 * 4 + 4 + 2 * 3) + (4 * 4 + 4 + 2 * 4)
    critic = (5 * 4 + 4 + 2 * 5) + (4 * 1 + 1 + 2 * 4)
    counted = agent.count_parameters(crossq.build(spec, SIZES), spec)
    assert counted == (actor + 2 * critic - (4 * 2 + 2), actor + 2 * critic)


# Batch renormalisation


def one_unit(mean, variance, scale=1.0, shift=0.0):
    return BatchNorm(*(jnp.array([number]) for number in (scale, shift, mean, variance)))


# A batch of 1, 3 and 5: mean 3, variance 8/3. With 0.001 added, the standard deviation is 1.633.
BATCH, STD = jnp.array([[1.0], [3.0], [5.0]]), (8 / 3 + 1e-3) ** 0.5


@pytest.mark.parametrize(
    ("running", "renorm", "r", "d"),
    [
        ((0.0, 1.0), False, 1, 0),  # plain batch normalisation, whatever the running ones are
        ((3.0, 8 / 3), True, 1, 0),  # they agree
        ((2.0, 1.0), True, STD / 1.001**0.5, 1 / 1.001**0.5),  # as if by the running ones
        ((100.0, 1.0), True, STD / 1.001**0.5, -5),  # too far away
        ((3.0, 0.04), True, 3, 0),  # much too narrow
        ((3.0, 100.0), True, 1 / 3, 0),  # much too wide
    ],
)
def test_renormalisation_by_hand(running, renorm, r, d):
    found, seen = renormalise(one_unit(*running, scale=2.0, shift=0.5), BATCH, 0.9, renorm)
    np.testing.assert_allclose(found[:, 0], 2 * (np.array([-2, 0, 2]) / STD * r + d) + 0.5, rtol=1e-5)
    np.testing.assert_allclose(seen.mean, [0.9 * running[0] + 0.1 * 3], rtol=1e-6)
    np.testing.assert_allclose(seen.variance, [0.9 * running[1] + 0.1 * 8 / 3], rtol=1e-6)


def test_no_gradient_goes_through_r_d_or_the_running_means():
    """With renormalisation, but for r and d as numbers, the gradient is plain batch normalisation's."""
    weight = draw(3, 1)

    def total(x, norm, renorm):
        return (weight * renormalise(norm, x, 0.9, renorm)[0]).sum()

    norm = one_unit(2.0, 1.0)
    plain, renormalised = (jax.grad(total)(BATCH, norm, renorm) for renorm in (False, True))
    np.testing.assert_allclose(renormalised, plain * STD / 1.001**0.5, rtol=1e-4, atol=1e-6)
    of_norm = jax.grad(total, argnums=1)(BATCH, norm, True)
    assert not of_norm.mean.any()
    assert not of_norm.variance.any()
    assert of_norm.scale.any()


def test_a_network_acts_with_running_statistics_and_masks_what_is_normalised():
    network = batch_normalised(CrossQ(batch_norm=BatchNormalisation(momentum=0.9), init="uniform"), (3, 4, 2))
    layers, x = network.network.init(jax.random.key(0)), draw(5, 3)
    first, last = layers
    layers = (first, last._replace(norm=last.norm._replace(mean=draw(4), variance=1 + draw(4, seed=1) ** 2)))
    units = jax.nn.relu((x / 1.001**0.5) @ first.w + first.b)
    units = (units - layers[1].norm.mean) / np.sqrt(layers[1].norm.variance + 1e-3)
    mask = (jnp.array([0.0, 2.0, 2.0, 0.0]),)
    outputs, found = network.network.apply_masked(layers, x, mask)
    np.testing.assert_allclose(found, units, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs, (mask[0] * units) @ last.w + last.b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(network.network.apply(layers, x), units @ last.w + last.b, rtol=1e-5, atol=1e-6)
    _, normalised, moved = network.train(layers, x, mask, jnp.bool_(False))
    np.testing.assert_allclose(normalised.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(moved[0].norm.mean, 0.1 * x.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(moved[1].w, last.w)
