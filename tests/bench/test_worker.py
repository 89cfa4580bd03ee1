"""A contender: the process that is measured."""

import os

from mepg.bench.measure import Contender, in_turns

CORE = [max(os.sched_getaffinity(0))]
SMALL = ["hidden=8,8", "batch_size=8"]


def test_a_loop_is_measured_beside_what_it_cannot_avoid():
    task = {
        "measurement": "loop",
        "algorithm": "me-ddpg",
        "env": "HopperBulletEnv-v0",
        "set": SMALL,
    }
    turns = in_turns("test", {"me-ddpg": Contender(task, CORE)}, 1, lambda *_: None)["me-ddpg"]
    assert turns[0]["seconds"] > turns[0]["environment"] > 0
    assert turns[0]["multiplications"] > 0


def test_an_environment_is_measured_as_it_comes_and_through_ours():
    task = {"measurement": "simulator", "env": "Pendulum-v1"}
    turns = in_turns("test", {"Pendulum-v1": Contender(task, CORE)}, 1, lambda *_: None)["Pendulum-v1"]
    assert min(turns[0]["seconds"], turns[0]["environment"]) > 0


def test_memory_is_that_of_a_full_replay_buffer():
    task = {"measurement": "memory", "algorithm": "me-ddpg", "env": "Pendulum-v1", "backend": "xla"}
    _, small, large = (  # the first one may compile, which takes memory too
        in_turns("test", {"": Contender({**task, "set": [*SMALL, f"replay_size={size}"]}, CORE)}, 1, lambda *_: None)
        for size in (1_000, 1_000, 2_000_000)
    )
    added = 2_000_000 * 4 * (3 + 1 + 1 + 1 + 3) / 2**20  # s, a, r, discount, s'
    assert large[""][0]["resident"] - small[""][0]["resident"] > 0.8 * added
