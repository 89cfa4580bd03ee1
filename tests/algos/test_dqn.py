"""DQN and QR-DQN: the equation by hand, the defining test, exploration, and what they come down to."""

import signal
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos.dqn import DQN, ME_DQN, ME_QR_DQN, Epsilon, build, critic_gradient, exploration_rate
from mepg.cli import main
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.posterior import posterior_covariance, posterior_mean, posterior_variance
from mepg.core.spec import Dropout, Quantiles, Search
from tests.conftest import DISCRETE, jit_quickly, make_batch
from tests.run.processes import assert_same_run, finish, kill_after_progress

KEY = jax.random.key(0)


def gradient_of(spec, theta, theta_target, batch, key=KEY):
    return critic_gradient(make_critics(spec, DISCRETE), spec, theta, theta_target, batch, key)


def hand_made(outputs):
    """One hidden unit that is 1 for every s, and outputs that are these for the four actions."""
    return (Layer(jnp.zeros((1, 3, 1)), jnp.ones((1, 1))), Layer(jnp.array([[outputs]]), jnp.zeros((1, 4))))


def test_by_hand():
    """Online Q is 1 2 3 4, the target's 8 5 6 7; a = 1, r = 1, gamma = 1/2.

    Plain: the target network likes its 8 best: y = 1 + 4 = 5, 3 from Q(s, a) = 2: Huber's 2.5. Double: the online
    network likes the fourth best, which the target network says is worth 7: y = 4.5, and 2.5 away: 2.
    """
    online, target = hand_made([1.0, 2.0, 3.0, 4.0]), hand_made([8.0, 5.0, 6.0, 7.0])
    batch = make_batch(2, DISCRETE)._replace(action=jnp.ones((2, 1)), reward=jnp.ones(2), discount=jnp.ones(2))
    spec = replace(DQN, hidden=(1,), discount=0.5, double=False)
    assert gradient_of(spec, online, target, batch)[1]["critic_loss"] == 2.5
    assert gradient_of(replace(spec, double=True), online, target, batch)[1]["critic_loss"] == 2.0
    gradient, metrics = gradient_of(replace(spec, huber=None), online, target, batch)
    assert metrics["critic_loss"] == 4.5
    np.testing.assert_array_equal(gradient[-1].b, [[0, -3, 0, 0]])
    ended = batch._replace(discount=jnp.zeros(2))
    assert gradient_of(spec, online, target, ended)[1]["critic_loss"] == 0.5


def test_the_complete_network_chooses_and_the_masked_one_is_asked(monkeypatch):
    """Two units, dropped by turns. Complete, the first action is worth 5 + 1 and the second 4 + 3; under (0, 2) the
    first is worth 2 and the second 6. The second is chosen, and y is r + 6: Q(s, a) is far below in either case.
    """
    from mepg.algos import dqn

    w = jnp.array([[[5.0, 4.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]]])
    theta = (Layer(jnp.zeros((1, 3, 2)), jnp.ones((1, 2))), Layer(w, jnp.zeros((1, 4))))
    spec = replace(ME_DQN, hidden=(2,), discount=1.0, huber=None)
    batch = make_batch(1, DISCRETE)._replace(action=jnp.full((1, 1), 3.0), reward=jnp.zeros(1), discount=jnp.ones(1))
    for mask, worth in (([0.0, 2.0], 6.0), ([2.0, 0.0], 8.0)):
        m = (jnp.array([[mask]]),)
        monkeypatch.setattr(dqn, "draw_masks", lambda *_, m=m: (m, m))
        assert gradient_of(spec, theta, theta, batch)[1]["critic_loss"] == worth**2 / 2
    masked = replace(spec, dropout=Dropout(policy_mask=True))
    assert gradient_of(masked, theta, theta, batch)[1]["critic_loss"] == 10.0**2 / 2, "which likes the first action"


@pytest.mark.parametrize("quantiles", [None, Quantiles(count=5)])
@pytest.mark.parametrize("double", [False, True])
def test_defining(double, quantiles):
    """theta = theta', s = s', the best action is taken, r = 0, gamma = 1: nothing is left of one mask, but of two."""
    spec = replace(ME_DQN, hidden=(32, 32), discount=1.0, double=double, quantiles=quantiles)
    agent, batch = build(spec, DISCRETE), make_batch(64, DISCRETE)
    state = jit_quickly(agent.init)(KEY)
    theta = state.critic.params
    if quantiles is not None:  # all of an action's the same: a distribution with a spread is at a distance from itself
        same = [jnp.repeat(leaf[..., ::5], 5, axis=-1) for leaf in theta[-1][:2]]
        theta = (*theta[:-1], Layer(*same))
        state = state._replace(critic=state.critic._replace(params=theta))
    still = batch._replace(
        action=agent.exploit(state, batch.obs), reward=jnp.zeros(64), discount=jnp.ones(64), next_obs=batch.obs
    )
    assert gradient_of(spec, theta, theta, still)[1]["critic_loss"] == pytest.approx(0, abs=1e-12)
    for masks in ("independent", "online"):
        other = replace(spec, dropout=Dropout(masks=masks))
        assert gradient_of(other, theta, theta, still)[1]["critic_loss"] > 1e-5


def test_qr_dqn_with_one_quantile_is_dqn():
    """Such a spec is DQN's, so here the path with quantiles is walked by force: the same, but for rounding."""
    plain = replace(ME_DQN, hidden=(16, 16))
    by_force = replace(plain)
    object.__setattr__(by_force, "quantiles", Quantiles(count=1))
    states = []
    for spec in (plain, by_force):
        agent = build(spec, DISCRETE)
        state = jit_quickly(agent.init)(KEY)
        for i in range(3):
            state, _ = jit_quickly(agent.update)(state, make_batch(16, DISCRETE, seed=i), jax.random.key(i))
        states.append(state)
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


def test_the_schedule_by_hand():
    """From 1 to 0.1 in 1,000 steps, of which 100 are warm-up; two updates a step."""
    spec = replace(DQN, warmup=100, updates_per_step=2)
    rates = [float(exploration_rate(spec, Epsilon(end=0.1, steps=1_000), jnp.int32(n))) for n in (0, 800, 1_800, 9_000)]
    assert rates == pytest.approx([0.91, 0.55, 0.1, 0.1])


def test_how_often_actions_are_random():
    spec = replace(DQN, hidden=(8,), warmup=0, epsilon=Epsilon(start=0.4, end=0.4))
    agent, obs = build(spec, DISCRETE), make_batch(4_000, DISCRETE).obs
    state = jit_quickly(agent.init)(KEY)
    action, memory = jit_quickly(agent.explore)(state, (), obs, KEY)
    assert memory == ()
    others = np.mean(np.asarray(action) != np.asarray(agent.exploit(state, obs)))
    assert others == pytest.approx(0.4 * 3 / 4, abs=0.03), "a random action is the best one in a quarter of cases"


@pytest.mark.parametrize("base", [ME_DQN, ME_QR_DQN])
def test_exploring_by_choice_looks_at_every_action(base):
    for search in (Search(how="ucb", kappa=2.0), Search(how="thompson")):
        spec = replace(base, hidden=(16,), epsilon=None, search=search, dropout=Dropout(p=0.5))
        agent, obs = build(spec, DISCRETE), jnp.asarray(make_batch(9, DISCRETE).obs)
        state, memory = jit_quickly(agent.init)(KEY), agent.begin(KEY)
        action, _ = agent.explore(state, memory, obs, KEY)
        promise = []
        for choice in range(4):
            here = jnp.full((9, 1), float(choice))
            if search.how == "ucb":
                belief = agent.beliefs.posterior(state, obs, here)
                promise.append(posterior_mean(belief) + 2 * jnp.sqrt(posterior_variance(belief)))
            else:
                promise.append(make_critics(spec, DISCRETE).q(state.critic.params, obs, here, memory.mask)[0])
        np.testing.assert_array_equal(action[:, 0], jnp.stack(promise).argmax(axis=0))


@pytest.mark.parametrize("base", [ME_DQN, ME_QR_DQN])
def test_the_variance_of_q_has_a_closed_form(base):
    spec = replace(base, hidden=(16, 12), dropout=Dropout(p=0.3))
    agent, batch = build(spec, DISCRETE), make_batch(6, DISCRETE)
    state = jit_quickly(agent.init)(KEY)
    draws = jax.jit(jax.vmap(lambda key: agent.beliefs.subnetwork(state, batch.obs, batch.action, key)))(
        jax.random.split(KEY, 20_000)
    )
    belief = agent.beliefs.posterior(state, batch.obs, batch.action)
    np.testing.assert_allclose(draws.var(axis=0), posterior_variance(belief), rtol=0.06)
    np.testing.assert_allclose(
        np.cov(draws.T), posterior_covariance(belief), atol=0.06 * float(posterior_variance(belief).max())
    )


def test_a_long_gradient_is_shortened():
    spec = replace(DQN, hidden=(8,), max_grad_norm=1e-3, target_rate=1.0)
    agents = [build(each, DISCRETE) for each in (spec, replace(spec, max_grad_norm=None))]
    moments = []
    for agent in agents:
        state, _ = agent.update(agent.init(KEY), make_batch(16, DISCRETE), KEY)
        moments.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.critic.moments[0].mu)]))
    assert np.linalg.norm(10 * moments[0]) == pytest.approx(1e-3, rel=1e-2)  # Adam's first moment is a tenth of it
    np.testing.assert_allclose(
        moments[0] / np.linalg.norm(moments[0]), moments[1] / np.linalg.norm(moments[1]), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["epsilon.end=1.5"], "epsilon.end must be in [0, 1], not 1.5"),
        (["epsilon.start=-0.1"], "epsilon.start must be in [0, 1]"),
        (["quantiles.count=5", "quantiles.dropped=5"], "quantiles.dropped must be in [0, 4]"),
        (["quantiles.count=0"], "quantiles.count must be in [1, 10000], not 0"),
        (["search.how=ucb"], "search needs critics with uncertainty"),
        (["actor_lr=1e-3"], "unknown field 'actor_lr'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, says, tmp_path, capsys):
    argv = ["train", "dqn", "--env", "CartPole-v1", "--out", str(tmp_path / "run")]
    assert main([*argv, *(part for each in settings for part in ("--set", each))]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists(), "nothing is written"


@pytest.mark.faults
def test_killed_and_resumed_it_ends_with_the_same_bits(tmp_path):
    def command(out):
        short = ["--steps", "1200", "--eval-every", "400", "--eval-episodes", "2", "--checkpoint-every", "150"]
        small = ["--set", "hidden=16,16", "--set", "warmup=200", "--set", "search.how=thompson", "--envs", "2"]
        argv = ["train", "me-dqn", "--env", "CartPole-v1", *short, *small, "--out", str(out)]
        return [sys.executable, "-m", "mepg", *argv]

    status, _, err = kill_after_progress(command(tmp_path / "killed"), tmp_path / "killed", 0.2)
    assert status in (-signal.SIGKILL, 0), err
    finish(command(tmp_path / "killed"))
    finish(command(tmp_path / "whole"))
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
