import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.core import policies
from mepg.core.agent import build
from mepg.core.nets import Layer
from mepg.core.policies import make_policy
from mepg.core.spec import Gaussian, Noise, Spec
from mepg.core.types import Entry
from mepg.training.config import Config
from tests.conftest import SIZES, jit_quickly, leaves_equal, make_batch, sizes_of


def constant_gaussian(mean, raw_log_std):
    return (Layer(jnp.zeros((1, 2)), jnp.array([mean, raw_log_std])),)


@pytest.mark.parametrize("bound", ["tanh", "clip"])
@pytest.mark.parametrize("log_std", [(-5.0, 2.0), (-20.0, 2.0)])
def test_density_integrates_to_one(bound, log_std):
    """log pi is a density over actions in (-1, 1): a histogram of samples must agree with it."""
    spec = Spec(gaussian=Gaussian(bound=bound, log_std=log_std), hidden=(4,))
    raw = -0.2 if bound == "clip" else np.arctanh(2 * (-0.2 - log_std[0]) / (log_std[1] - log_std[0]) - 1)
    phi = constant_gaussian(0.3, raw)
    obs = jnp.zeros((400_000, 1))
    action, log_prob = make_policy(spec, SIZES).sample(phi, obs, jax.random.key(0))
    assert np.abs(action).max() <= 1
    # E[1/pi(a) ; a in interval] over samples is the interval's length
    inside = np.abs(action[:, 0]) < 0.8
    assert np.mean(np.where(inside, np.exp(-log_prob), 0)) == pytest.approx(1.6, rel=0.01)
    # and the spread before squashing is what the head said
    assert np.std(np.arctanh(np.clip(action[:, 0], -0.999999, 0.999999))) == pytest.approx(np.exp(-0.2), rel=0.02)


def test_log_prob_stays_finite_far_out():
    spec = Spec(gaussian=Gaussian(), hidden=(4,))
    for mean in (-200.0, 200.0):
        action, log_prob = make_policy(spec, SIZES).sample(
            constant_gaussian(mean, 0.0), jnp.zeros((8, 1)), jax.random.key(0)
        )
        assert np.isfinite(log_prob).all()
        assert np.isfinite(action).all()


def test_deterministic_policy_has_log_probability_zero():
    spec = Spec(hidden=(4,))
    phi = build(spec, SIZES).init(jax.random.key(0)).actor.params
    obs = jnp.ones((5, SIZES.obs))
    action, log_prob = make_policy(spec, SIZES).sample(phi, obs, jax.random.key(0))
    np.testing.assert_array_equal(action, make_policy(spec, SIZES).mode(phi, obs))
    np.testing.assert_array_equal(log_prob, np.zeros(5))


def test_add_noise():
    action = jnp.full((20_000, 1), 0.1)
    assert policies.add_noise(None, action, jax.random.key(0)) is action
    noisy = policies.add_noise(Noise(std=0.2), action, jax.random.key(0))
    assert np.std(noisy) == pytest.approx(0.2, rel=0.03)
    assert np.mean(noisy) == pytest.approx(0.1, abs=0.01)
    clipped = policies.add_noise(Noise(std=0.2, clip=0.1), action, jax.random.key(0)) - action
    assert np.abs(clipped).max() <= 0.1 + 1e-6
    assert np.abs(policies.add_noise(Noise(std=9), action, jax.random.key(0))).max() == 1


VIEW = (Entry("a", 0, 1), Entry("c", 2, 3))


@pytest.mark.parametrize("name", ["td3", "me-sac", "me-tqc", "me-crossq", "sunrise-ucb", "me-sac-discrete"])
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_the_policy_sees_a_part_and_the_critics_all(name, normalize_obs):
    sizes = sizes_of(name)._replace(entries=(VIEW[0], Entry("b", 1, 2), VIEW[1]))
    config = Config.make(name, ["hidden=8,8"], env="-", normalize_obs=normalize_obs, actor_obs=("a", "c"))
    assert config.with_actor_entries(sizes).actor_entries == VIEW
    agent = config.build(sizes)
    state, _ = jit_quickly(agent.update)(agent.init(jax.random.key(0)), make_batch(sizes=sizes), jax.random.key(1))
    batch = make_batch(seed=1, sizes=sizes)
    other = batch.obs.copy()
    other[:, 1] += 1
    exploit, policy = jit_quickly(agent.exploit), jit_quickly(config.build_policy(sizes))
    np.testing.assert_array_equal(exploit(state, batch.obs), exploit(state, other))
    np.testing.assert_allclose(policy(state, batch.obs[:, [0, 2]]), exploit(state, batch.obs), atol=1e-6)
    q, other_q = (agent.beliefs.posterior(state, each, batch.action).q for each in (batch.obs, other))
    assert not np.allclose(q, other_q)


def test_a_view_of_everything_changes_no_bit():
    sizes = SIZES._replace(entries=(Entry("a", 0, 1), Entry("b", 1, 3)))
    states = []
    for seen in (None, ("a", "b")):
        agent = Config.make("me-sac", ["hidden=8,8"], env="-", actor_obs=seen).build(sizes)
        update = jit_quickly(agent.update)
        states.append(update(agent.init(jax.random.key(0)), make_batch(), jax.random.key(1))[0])
    assert leaves_equal(*states)
