"""The multiplications of an update, counted."""

from dataclasses import replace

import pytest

from mepg.algos import algorithms
from mepg.bench.measure import OTHERS
from mepg.bench.multiplications import Multiplier, multiplications
from mepg.core.types import Sizes


def test_multiplications_of_a_critic_and_a_policy():
    """ME-DDPG by hand: S = 3, A = 2, H = 4 and 6, B = 5."""
    spec = replace(algorithms()["me-ddpg"].spec, hidden=(4, 6), batch_size=5)
    critic_update, policy_update = multiplications(algorithms()["me-ddpg"].build(spec, Sizes(3, 2)), Sizes(3, 2), 5)
    actor, critic = [(5, 3, 4), (5, 4, 6), (5, 6, 2)], [(5, 5, 4), (5, 4, 6), (5, 6, 1)]
    to_critic = [(5, 5, 4), (4, 5, 6), (1, 5, 6)]
    assert sorted(critic_update) == sorted(
        [*actor, *critic, *critic, *to_critic, (5, 6, 4), (5, 1, 6)]  # targets; forward; weights; inputs
    )
    to_actor = [(3, 5, 4), (4, 5, 6), (6, 5, 2), (5, 6, 4), (5, 2, 6)]
    assert sorted(policy_update) == sorted([*actor, *to_actor, *critic, (5, 6, 4), (5, 1, 6), (5, 4, 5)])
    Multiplier(critic_update)()


def test_multiplications_of_discrete_actions():
    """DQN by hand: S = 3, four actions, H = 5, B = 6. The double estimate asks the online network about s' too."""
    spec, sizes = replace(algorithms()["me-dqn"].spec, hidden=(5,), batch_size=6), Sizes(3, 4, "discrete")
    always, delayed = multiplications(algorithms()["me-dqn"].build(spec, sizes), sizes, 6)
    forward, backward = [(6, 3, 5), (6, 5, 4)], [(3, 6, 5), (5, 6, 4), (6, 4, 5)]
    assert sorted(always) == sorted(3 * forward + backward)
    assert delayed == []


@pytest.mark.parametrize("name", ["redq", "droq", "sunrise-ucb", "ace", "ace-flat", *OTHERS])
def test_every_algorithms_multiplications_can_be_counted(name):
    algorithm = algorithms()[name]
    sizes = Sizes(28, 8) if "box" in algorithm.actions else Sizes(28, 8, "discrete")
    products = multiplications(algorithm.build(algorithm.spec, sizes), sizes, algorithm.spec.batch_size)
    assert len(products.always + products.delayed) > 12
