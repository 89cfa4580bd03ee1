"""The loop with a stub agent and a stub environment: what happens when."""

import jax.numpy as jnp
import numpy as np
import pytest

from mepg.envs.vector import SerialEnvs
from mepg.errors import RunFailure
from tests.conftest import leaves_equal
from tests.run.stubs import CountingEnv, make_loop, stub_agent


def test_no_update_before_the_warm_up_is_over_then_one_a_step():
    loop = make_loop(steps=20, warmup=5)
    updates = [float(loop.state["updates"]) for _ in loop]
    assert updates == [0] * 5 + list(range(1, 16))


def test_actions_are_random_in_the_warm_up_and_the_agents_after():
    env = CountingEnv(7)
    list(make_loop(steps=20, warmup=5, env=env))
    assert len(set(env.taken[:5])) == 5
    assert all(-1 <= action <= 1 for action in env.taken[:5])
    assert env.taken[5:] == [0.5] * 15


def test_evaluations_are_on_time_without_exploration_and_after_the_last_step():
    eval_env = CountingEnv(3)
    records = list(make_loop(steps=25, eval_every=10, eval_env=eval_env))
    assert [record.step for record in records] == list(range(1, 26))
    assert [record.step for record in records if record.evaluation] == [10, 20, 25]
    assert all(episode == (3.0, 3) for record in records if record.evaluation for episode in record.evaluation)
    assert set(eval_env.taken) == {-0.5}


def test_episodes_are_counted_and_have_seeds_of_their_own():
    env, eval_env = CountingEnv(7), CountingEnv(3)
    records = list(make_loop(steps=22, env=env, eval_env=eval_env, eval_every=5))
    assert [(record.step, *record.episodes) for record in records if record.episodes] == [
        (7, (7.0, 7)),
        (14, (7.0, 7)),
        (21, (7.0, 7)),
    ]
    assert len(set(env.seeds)) == 4
    assert len(set(eval_env.seeds)) == 5 * 3  # another three for each evaluation


@pytest.mark.parametrize(("terminal", "alive"), [(True, 0.0), (False, 1.0)])
def test_an_end_does_not_bootstrap_and_a_time_limit_does(terminal, alive):
    loop = make_loop(steps=7, env=CountingEnv(7, terminal=terminal))
    list(loop)
    obs, action, reward, is_alive, next_obs = loop.replay.read(0, 7).T
    np.testing.assert_array_equal(obs, range(7))
    np.testing.assert_array_equal(next_obs, range(1, 8))  # the last one is the end, not the next beginning
    np.testing.assert_array_equal(is_alive, [1] * 6 + [alive])
    np.testing.assert_array_equal(reward, 1)
    assert np.abs(action).max() <= 1


class Paying(CountingEnv):
    """Its t-th step pays 10^t, so that a sum says which rewards are in it."""

    def step(self, action):
        result = super().step(action)
        return result._replace(reward=10.0 ** (self.at - 1))


# Three steps ahead with gamma 1/2, in an episode of five steps that pay 1, 10, 100, 1,000 and 10,000.
SUMS = [1 + 5 + 25, 10 + 50 + 250, 100 + 500 + 2500, 1000 + 5000, 10000]


@pytest.mark.parametrize(
    ("terminal", "alive"),
    [
        (True, [1 / 4, 1 / 4, 0, 0, 0]),  # the last three end in the end, and nothing follows it
        (False, [1 / 4, 1 / 4, 1 / 4, 1 / 2, 1]),  # gamma^(k-1): y = sum + gamma alive Q = sum + gamma^k Q
    ],
)
def test_n_steps_at_an_end_and_at_a_time_limit(terminal, alive):
    loop = make_loop(steps=7, env=Paying(5, terminal=terminal), ahead=(3, 0.5))
    list(loop)
    obs, _, reward, is_alive, next_obs = loop.replay.read(0, 7).T
    np.testing.assert_array_equal(reward, [*SUMS, 1 + 5, 10])  # of the next episode two steps are known
    np.testing.assert_array_equal(is_alive, [*alive, 1 / 2, 1])
    np.testing.assert_array_equal(obs, [0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(next_obs, [3, 4, 5, 5, 5, 2, 2])


def test_n_steps_in_several_environments_are_those_of_each():
    envs = SerialEnvs([Paying(5, terminal=False), Paying(3), Paying(100)])
    loop = make_loop(steps=15, eval_every=15, envs=envs, ahead=(3, 0.5))
    list(loop)
    rows = loop.replay.read(0, 15).reshape(5, 3, -1)
    np.testing.assert_array_equal(rows[:, 0, 2], SUMS)
    np.testing.assert_array_equal(rows[:, 0, 3], [1 / 4, 1 / 4, 1 / 4, 1 / 2, 1])
    np.testing.assert_array_equal(rows[:, 1, 2], [1 + 5 + 25, 10 + 50, 100, 1 + 5, 10])
    np.testing.assert_array_equal(rows[:, 1, 3], [0, 0, 0, 1 / 2, 1])
    np.testing.assert_array_equal(rows[:, 2, 2], SUMS)


def test_n_steps_that_the_ring_no_longer_holds_are_left_alone():
    loop = make_loop(steps=40, replay_size=2, env=Paying(5), ahead=(4, 0.5))
    list(loop)
    np.testing.assert_array_equal(loop.replay.read(38, 40)[:, 2], [1000 + 5000, 10000])


def test_one_step_ahead_is_what_there_is_without_the_field():
    loops = [make_loop(steps=30, replay_size=16, ahead=ahead) for ahead in (None, (1, 0.5))]
    for loop in loops:
        list(loop)
    np.testing.assert_array_equal(*(loop.replay.read(14, 30) for loop in loops))


def test_other_transitions_are_not_continued_by_the_episode_under_way():
    loop = make_loop(steps=20, env=Paying(100), ahead=(3, 0.5))
    for record in loop:
        if record.step == 4:
            break
    rows = np.full((6, 5), 7, np.float32)
    loop.replace_rows(rows)
    loop.advance()
    np.testing.assert_array_equal(loop.replay.read(0, 6), rows)


def test_batch_size_and_replay_size_are_used():
    seen = []
    loop = make_loop(batch_size=6, replay_size=9, steps=20, agent=stub_agent(seen))
    list(loop)
    assert set(seen) == {(6, 1)}
    assert len(loop.replay) == 9


def test_several_updates_a_step_are_several_batches_in_one_dispatch():
    seen = []
    loop = make_loop(batch_size=6, updates_per_step=5, steps=8, warmup=5, agent=stub_agent(seen))
    list(loop)
    assert set(seen) == {(6, 1)}
    assert float(loop.state["updates"]) == 3 * 5


def test_metrics_are_means_over_the_updates_since_the_last():
    records = list(make_loop(steps=2500, warmup=500, eval_every=5000))
    metrics = {record.step: record.metrics for record in records if record.metrics}
    assert list(metrics) == [1000, 2000]
    assert metrics[1000]["train/loss"] == np.mean(range(1, 501))
    assert metrics[2000]["train/loss"] == np.mean(range(501, 1501))
    assert metrics[2000]["train/n_updates"] == 1500
    assert metrics[2000]["rollout/ep_rew_mean"] == 7


@pytest.mark.parametrize("ahead", [None, (3, 0.5)])
@pytest.mark.parametrize("stop", [3, 7, 8, 12, 21])
def test_snapshot_and_restore(stop, ahead):
    """In the warm-up, at an episode's end, after its first step, in its middle, and after the ring has wrapped."""
    whole = make_loop(steps=30, replay_size=16, ahead=ahead)
    list(whole)

    first = make_loop(steps=30, replay_size=16, ahead=ahead)
    for record in first:
        if record.step == stop:
            break
    snapshot = first.snapshot()
    second = make_loop(steps=30, replay_size=16, ahead=ahead)
    second.replay.restore(first.replay.oldest, first.replay.read(first.replay.oldest, first.replay.count))
    assert second.restore(snapshot)
    list(second)
    assert leaves_equal(whole.state, second.state)
    assert whole.evaluations == second.evaluations
    np.testing.assert_array_equal(whole.replay.read(14, 30), second.replay.read(14, 30))


@pytest.mark.parametrize("ahead", [None, (3, 0.5)])
@pytest.mark.parametrize("at", [1, 2, 6, 11, 12])
@pytest.mark.parametrize("what", ["obs", "reward"])
def test_an_environment_that_does_not_repeat_itself_is_noticed(what, at, ahead):
    class Drifting(CountingEnv):
        def step(self, action):
            outcome = super().step(action)
            drift = len(self.seeds) if self.at == at else 0
            return outcome._replace(**{what: getattr(outcome, what) + drift})

    loop = make_loop(steps=30, env=Drifting(50), ahead=ahead)
    for record in loop:
        if record.step == 12:
            break
    assert not loop.restore(loop.snapshot())


def test_an_episode_longer_than_the_ring_is_rebuilt():
    loop = make_loop(steps=40, replay_size=8, env=CountingEnv(100))
    for record in loop:
        if record.step == 30:
            break
    assert loop.restore(loop.snapshot())


def test_a_policy_that_is_no_longer_finite_is_not_sent_to_the_environment():
    env = CountingEnv(7)
    agent = stub_agent()._replace(explore=lambda s, memory, obs, key: (jnp.full((len(obs), 1), jnp.nan), memory))
    with pytest.raises(RunFailure, match=r"step 6: the policy's action became \[nan\]"):
        list(make_loop(env=env, agent=agent))
    assert np.isfinite(env.taken).all()
