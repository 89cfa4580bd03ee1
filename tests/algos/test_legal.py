"""Legal actions in the equations: what is illegal is never chosen, and the rest is as before."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.algos.dqn import DQN, ME_DQN, Epsilon, build, critic_gradient, random_action
from mepg.algos.sac_discrete import ME_SAC_DISCRETE, SAC_DISCRETE
from mepg.algos.sac_discrete import build as build_sac
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.normalise import with_normalised_obs
from mepg.core.spec import Dropout, Search, Temperature
from mepg.core.types import Sizes
from mepg.errors import UsageError
from mepg.training.config import Config
from tests.conftest import DISCRETE, all_but_slow, jit_quickly, leaves_equal, make_batch

KEY = jax.random.key(0)
LEGAL = DISCRETE._replace(n_legal=4)
DISCRETES = [name for name, algorithm in algorithms().items() if "discrete" in algorithm.actions]


def with_legal(obs, seed=1):
    """Observations with legal actions behind them, at least one in each."""
    rng = np.random.default_rng(seed)
    legal = rng.random((len(obs), 4)) < 0.4
    legal[np.arange(len(obs)), rng.integers(4, size=len(obs))] = True
    return jnp.concatenate([obs, legal.astype(np.float32)], axis=1)


def batch_of(size=16, seed=0):
    batch = make_batch(size, DISCRETE, seed)
    return batch._replace(obs=with_legal(batch.obs, seed), next_obs=with_legal(batch.next_obs, seed + 1))


def is_legal(action, obs):
    return np.take_along_axis(np.asarray(obs)[:, 3:], np.asarray(action, int), axis=1).all()


def small(name):
    spec = algorithms()[name].spec
    return replace(spec, hidden=(16, 16))


@pytest.mark.parametrize("name", all_but_slow(DISCRETES, ["me-dqn", "me-qr-dqn", "me-sac-discrete"]))
@pytest.mark.parametrize("normalize", [False, True])
def test_whatever_chooses_chooses_what_is_legal(name, normalize):
    """Also after updates, when the critics like some illegal action best."""
    agent = algorithms()[name].build(small(name), LEGAL)
    agent = with_normalised_obs(agent, LEGAL) if normalize else agent
    state, obs = jit_quickly(agent.init)(KEY), with_legal(make_batch(500, DISCRETE).obs)
    for i in range(3):
        state, metrics = jit_quickly(agent.update)(state, batch_of(seed=i), jax.random.key(i))
        assert all(np.isfinite(metric.value) for metric in metrics.values())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    explored, _ = jit_quickly(agent.explore)(state, agent.begin(KEY), obs, KEY)
    evaluated, bonus = jit_quickly(agent.beliefs.critics_policy)(state, obs, KEY, KEY)
    for action in (explored, jit_quickly(agent.exploit)(state, obs), evaluated):
        assert is_legal(action, obs)
    assert np.isfinite(bonus).all()
    free, _ = agent.explore(state, agent.begin(KEY), jnp.concatenate([obs[:, :3], jnp.ones((500, 4))], axis=1), KEY)
    assert not is_legal(free, obs), "or else this shows nothing"


@pytest.mark.parametrize("name", all_but_slow(DISCRETES, ["me-dqn", "me-sac-discrete"]))
@pytest.mark.parametrize("normalize", [False, True])
def test_where_everything_is_legal_nothing_is_different(name, normalize):
    """The same numbers but for the random action, which is drawn in another way."""
    states = []
    for sizes in (DISCRETE, LEGAL):
        agent = algorithms()[name].build(small(name), sizes)
        agent = with_normalised_obs(agent, sizes) if normalize else agent
        state, batch = jit_quickly(agent.init)(KEY), make_batch(16, DISCRETE)
        if sizes.n_legal:
            ones = jnp.ones((16, 4))
            batch = batch._replace(
                obs=jnp.concatenate([batch.obs, ones], axis=1), next_obs=jnp.concatenate([batch.next_obs, ones], axis=1)
            )
        state, _ = agent.update(state, batch, KEY)
        states.append((state, agent.exploit(state, batch.obs)))
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)


def hand_made(outputs):
    """One hidden unit that is 1 for every s, and outputs that are these for the four actions."""
    return (Layer(jnp.zeros((1, 3, 1)), jnp.ones((1, 1))), Layer(jnp.array([[outputs]]), jnp.zeros((1, 4))))


@pytest.mark.parametrize(("legal", "best"), [([1, 1, 1, 1], 4.0), ([1, 1, 1, 0], 3.0), ([0, 1, 0, 0], 2.0)])
def test_the_best_next_action_of_y_is_legal(legal, best):
    """Q(s', .) is 1 2 3 4, r = 1, gamma = 1/2: y = 1 + best / 2, beside Q(s, a) = 2, which was legal then."""
    theta = hand_made([1.0, 2.0, 3.0, 4.0])
    s = make_batch(1, DISCRETE)
    batch = s._replace(
        obs=jnp.concatenate([s.obs, jnp.ones((1, 4))], axis=1),
        next_obs=jnp.concatenate([s.next_obs, jnp.array([legal], jnp.float32)], axis=1),
        action=jnp.ones((1, 1)), reward=jnp.ones(1), discount=jnp.ones(1),
    )  # fmt: skip
    for double in (True, False):
        spec = replace(DQN, hidden=(1,), discount=0.5, huber=None, double=double)
        _, metrics = critic_gradient(make_critics(spec, LEGAL), spec, theta, theta, batch, KEY)
        assert metrics["critic_loss"] == 0.5 * (1 + best / 2 - 2) ** 2


def test_random_actions_are_uniform_among_the_legal():
    obs = jnp.tile(jnp.array([[0.0, 0, 0, 1, 0, 1, 1]]), (6_000, 1))
    counts = np.bincount(np.asarray(random_action(LEGAL, obs, KEY)[:, 0], int), minlength=4)
    assert counts[1] == 0
    assert counts[[0, 2, 3]] == pytest.approx(2_000, rel=0.1)


def test_random_exploration_is_legal():
    spec = replace(DQN, hidden=(8,), epsilon=Epsilon(start=1.0, end=1.0))
    agent, obs = build(spec, LEGAL), with_legal(make_batch(500, DISCRETE).obs)
    action, _ = agent.explore(jit_quickly(agent.init)(KEY), (), obs, KEY)
    assert is_legal(action, obs)
    assert not np.array_equal(action, agent.exploit(agent.init(KEY), obs))


@pytest.mark.parametrize("search", [Search(how="ucb", kappa=2.0), Search(how="thompson")], ids=["ucb", "thompson"])
def test_exploring_by_choice_is_legal(search):
    spec = replace(ME_DQN, hidden=(16,), epsilon=None, search=search, dropout=Dropout(p=0.5))
    agent, obs = build(spec, LEGAL), with_legal(make_batch(300, DISCRETE).obs)
    state = jit_quickly(agent.init)(KEY)
    action, _ = agent.explore(state, agent.begin(KEY), obs, KEY)
    assert is_legal(action, obs)
    everything = jnp.concatenate([obs[:, :3], jnp.ones((300, 4))], axis=1)
    free, _ = agent.explore(state, agent.begin(KEY), everything, KEY)
    already = np.take_along_axis(np.asarray(obs)[:, 3:], np.asarray(free, int), axis=1)[:, 0] > 0
    assert 0 < already.sum() < 300
    np.testing.assert_array_equal(action[already], free[already])


def test_the_policys_probabilities_are_of_legal_actions_alone():
    """They are the softmax of the legal preferences: as often as the policy says, and so is what entropy is paid."""
    agent = build_sac(replace(SAC_DISCRETE, hidden=(8,)), LEGAL)
    state = jit_quickly(agent.init)(KEY)
    s = np.asarray(make_batch(1, DISCRETE).obs)
    frequency = {}
    for legal in ([1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0]):
        obs = jnp.tile(jnp.array(np.concatenate([s, [legal]], axis=1), jnp.float32), (20_000, 1))
        action, bonus = jit_quickly(agent.beliefs.critics_policy)(state, obs, KEY, KEY)
        frequency[tuple(legal)] = {int(a): float(np.exp(-b / 0.1)) for a, b in zip(action[:, 0], bonus, strict=True)}
        for choice, pi in frequency[tuple(legal)].items():
            assert pi == pytest.approx(np.mean(np.asarray(action) == choice), abs=0.02)
    whole, half = frequency[1, 1, 1, 1], frequency[1, 0, 1, 0]
    assert half == pytest.approx({a: whole[a] / (whole[0] + whole[2]) for a in (0, 2)}, rel=1e-3)
    assert frequency[0, 0, 1, 0] == pytest.approx({2: 1.0})


@pytest.mark.parametrize(("given", "aims"), [(None, "at a share"), (0.3, "at the number")])
def test_alpha_aims_at_a_share_of_what_legal_actions_allow(given, aims):
    """log pi is 0 where only one is legal. d J(alpha) / d log alpha = -alpha mean(log pi + H), H = ratio log n."""
    temperature = Temperature(initial=0.1, lr=1.0, target_entropy=given)
    agent = build_sac(replace(SAC_DISCRETE, hidden=(8,), entropy_ratio=0.5, temperature=temperature), LEGAL)
    s = make_batch(3, DISCRETE)
    legal = jnp.array([[0, 1, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0]], jnp.float32)
    batch = s._replace(obs=jnp.concatenate([s.obs, legal], axis=1), next_obs=jnp.concatenate([s.next_obs, legal], 1))
    state = jit_quickly(agent.init)(KEY)
    _, metrics = agent.update(state, batch, KEY)
    entropy = float(metrics["entropy"].value)  # the mean of 0, 0 and at most log 2
    assert 0.8 * math.log(2) / 3 < entropy <= math.log(2) / 3 + 1e-6
    target = 0.5 * math.log(2) / 3 if given is None else given
    assert metrics["ent_coef_loss"].value == pytest.approx(-0.1 * (-entropy + target), rel=1e-4), aims


@pytest.mark.parametrize("masks", ["consistent", "independent"])
def test_one_mask_is_still_on_both_sides(masks):
    """With one legal action, taken, theta = theta', s = s', r = 0, gamma = 1: nothing is left of one mask."""
    dropout = Dropout(p=0.3, masks=masks)
    for base, make in ((ME_DQN, build), (ME_SAC_DISCRETE, build_sac)):
        spec = replace(base, hidden=(32, 32), discount=1.0, dropout=dropout)
        spec = replace(spec, temperature=None) if make is build_sac else spec
        agent, s = make(spec, LEGAL), make_batch(64, DISCRETE)
        only = jax.nn.one_hot(s.action[:, 0].astype(int), 4)
        obs = jnp.concatenate([s.obs, only], axis=1)
        still = s._replace(obs=obs, next_obs=obs, reward=jnp.zeros(64), discount=jnp.ones(64))
        _, metrics = agent.update(jit_quickly(agent.init)(KEY), still, KEY)
        loss = metrics["critic_loss"].value
        assert loss == pytest.approx(0, abs=1e-12) if masks == "consistent" else loss > 1e-5


def test_without_legal_actions_no_operation_is_added():
    """What an agent computes for an environment that says nothing has no trace of all this."""
    for name in ("me-dqn", "me-sac-discrete"):
        agent = algorithms()[name].build(small(name), DISCRETE)
        state, batch = jax.eval_shape(agent.init, KEY), make_batch(16, DISCRETE)
        text = str(jax.make_jaxpr(agent.update)(state, batch, KEY)) + str(
            jax.make_jaxpr(agent.exploit)(state, batch.obs)
        )
        assert "-1e+30" not in text
        assert "-1.0000000150474662e+30" not in text
        legal = algorithms()[name].build(small(name), LEGAL)
        said = str(jax.make_jaxpr(legal.exploit)(state, with_legal(batch.obs)))
        assert "e+30" in said, "or else this shows nothing"


def test_an_algorithm_that_does_not_ask_is_refused():
    config = Config.make("me-dqn", env="Any-v0")
    assert config.build(LEGAL)
    from tests.algos import discrete  # noqa: F401

    own = Config.make("tests.algos.discrete:dqn", env="Any-v0")
    assert own.build(DISCRETE)
    with pytest.raises(
        UsageError, match=r"^Any-v0 says which actions are legal, and tests\.algos\.discrete:dqn does not"
    ):
        own.build(LEGAL)


def test_a_policy_by_itself_gets_what_it_sees_and_what_is_legal():
    from mepg.core.types import Entry

    entries = (Entry("a", 0, 1), Entry("b", 1, 3))
    sizes = Sizes(3, 4, "discrete", entries, n_legal=4)
    view = sizes._replace(actor_entries=entries[1:])
    obs = jnp.arange(7.0)[None]
    np.testing.assert_array_equal(sizes.policy_input(obs), obs)
    np.testing.assert_array_equal(view.policy_input(obs), [[1, 2, 3, 4, 5, 6]])
    np.testing.assert_array_equal(view.actor_input(obs), [[1, 2]])
    assert view.policy_sizes == Sizes(2, 4, "discrete", (Entry("b", 0, 2),), n_legal=4)
    assert view.policy_sizes.named_entries[-1] == Entry("action_masks", 2, 6)

    config = Config.make("me-sac-discrete", ["hidden=8,8"], env="-", actor_obs=("b",), normalize_obs=True)
    agent, policy = config.build(sizes), config.build_policy(sizes)
    state, s = jit_quickly(agent.init)(KEY), with_legal(make_batch(64, DISCRETE).obs)
    np.testing.assert_array_equal(policy(state, view.policy_input(s)), agent.exploit(state, s))
    assert is_legal(agent.exploit(state, s), s)
    assert leaves_equal(policy(state, view.policy_input(s.at[:, 0].set(9))), policy(state, view.policy_input(s)))
