"""A contender: the process that is measured."""

import os

from mepg.bench.measure import Contender, in_turns

CORE = [max(os.sched_getaffinity(0))]


def test_a_loop_is_measured_beside_what_it_cannot_avoid():
    task = {
        "measurement": "loop",
        "algorithm": "me-ddpg",
        "env": "HopperBulletEnv-v0",
        "set": ["hidden=8,8", "batch_size=8"],
    }
    turns = in_turns("test", {"me-ddpg": Contender(task, CORE)}, 1, lambda *_: None)["me-ddpg"]
    assert turns[0]["seconds"] > turns[0]["environment"] > 0
    assert turns[0]["multiplications"] > 0


def test_an_environment_is_measured_as_it_comes_and_through_ours():
    task = {"measurement": "simulator", "env": "Pendulum-v1"}
    turns = in_turns("test", {"Pendulum-v1": Contender(task, CORE)}, 1, lambda *_: None)["Pendulum-v1"]
    assert min(turns[0]["seconds"], turns[0]["environment"]) > 0
