"""The benchmark measures what it says; how fast anything is, no test asserts."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.bench import measure, show
from mepg.bench.measure import Contender, column, in_turns
from mepg.bench.multiplications import Multiplier, multiplications
from mepg.bench.peers import prepare
from mepg.cli import main
from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError

CORE = [max(os.sched_getaffinity(0))]
SMALL = {"env": "AntBulletEnv-v0", "set": ["hidden=8,8", "batch_size=8"]}


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


@pytest.mark.parametrize("name", ["redq", "droq", "sunrise-ucb", "ace", "ace-flat"])
def test_every_algorithms_multiplications_can_be_counted(name):
    algorithm, sizes = algorithms()[name], Sizes(28, 8)
    products = multiplications(algorithm.build(algorithm.spec, sizes), sizes, algorithm.spec.batch_size)
    assert len(products.always + products.now_and_then) > 12


def test_contenders_take_turns_on_their_own_cores():
    contenders = {name: Contender({"what": "updates", "algorithm": name, **SMALL}, CORE) for name in ("ddpg", "me-sac")}
    pids = [contender._process.pid for contender in contenders.values()]
    seen = []

    def watch(what, turn, _):
        seen.append((what, turn))
        if turn == 1:
            threads = [int(thread) for pid in pids for thread in os.listdir(f"/proc/{pid}/task")]
            assert all(os.sched_getaffinity(thread) == set(CORE) for thread in threads)

    answers = in_turns("test", contenders, 2, watch)
    assert seen == [("test: starting", 0), ("test", 0), ("test", 1)]
    for turns in answers.values():
        assert (column(turns, "seconds") > 0).all()
        assert (column(turns, "multiplications") > 0).all()
        assert turns[0]["megabytes"] > 50
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_loop_is_measured_beside_what_it_cannot_avoid():
    task = {"what": "loop", "algorithm": "me-ddpg", "env": "HopperBulletEnv-v0", "set": ["hidden=8,8", "batch_size=8"]}
    turns = in_turns("test", {"me-ddpg": Contender(task, CORE)}, 1, lambda *_: None)["me-ddpg"]
    assert turns[0]["seconds"] > turns[0]["environment"] > 0
    assert turns[0]["multiplications"] > 0


def test_a_contender_that_fails_says_why():
    broken = Contender({"what": "updates", "algorithm": "ddpg", **SMALL, "set": ["hidden=8,8", "nonsense=1"]}, CORE)
    with pytest.raises(RunFailure, match="nonsense"):
        in_turns("test", {"ddpg": broken}, 1, lambda *_: None)


def test_an_unknown_library_is_refused(tmp_path, capsys):
    with pytest.raises(UsageError, match="did you mean 'sbx'"):
        prepare("sb4", tmp_path, print)
    assert main(["bench", "--against", "torch", "--out", str(tmp_path)]) == 2
    assert "torch" in capsys.readouterr().err


def some_results():
    update = {
        "mflop": 100.0, "milliseconds": 5.0, "multiplications_milliseconds": 4.0,
        "ratio": 1.25, "ratio_of_minima": 1.2, "relative_to_me_sac": 1.0,
    }  # fmt: skip
    names = [*measure.MAIN, *(f"{name} mixed" for name in measure.MAIN)]
    speeds = {"me-sac": 200, "me-ddpg": 210, "ddpg": 150, "td3": 140, "sac": 100, "redq-ours": 30, "sunrise": 20}
    speeds |= {"me-sac all cores": 300, "td3 in sbx": 70, "sac as peers": 90, "sac in sb3": 45}
    loops = {name: {"steps_per_second": float(speed), "megabytes": 500.0} for name, speed in speeds.items()}
    return {
        "about": {
            "date": "2026-11-16", "processor": "a processor", "cores": 2, "versions": {"jax": "1"}, "commit": "abc",
            "peers": {"sbx": {"jax": "2"}},
        },
        "updates": dict.fromkeys(names, update),
        "loops": dict.fromkeys(measure.LOOP_ENVS, loops),
        "two_runs": {"throughput_against_one": 1.95},
        "evaluation": {"seconds": 8.0, "steps": 10_000, "adds": 0.25},
        "first_step": {"first_start": 12.0, "second_start": 4.5},
        "growth": {"critics": {"1": 5.0, "2": 9.0}},
    }  # fmt: skip


def test_goals_are_compared_with_what_was_measured():
    goals = {goal.what: goal for goal in show.goals(some_results())}
    assert goals["update / multiplications, me-sac"].text == "1.25"
    assert goals["the same with precision=mixed, td3"].text == "1.25"
    assert goals["loop against sbx, td3"].text == "2.00"
    assert goals["loop against sb3, sac"].text == "2.00"  # its targets move as theirs do: 90 / 45
    assert goals["loop against sb3, td3"].text == "not measured"
    assert goals["time of ME-DDPG / TD3 (the paper: 0.82)"].text == "0.67"
    assert goals["time of ME-SAC / SAC (the paper: 0.96)"].text == "0.50"
    assert goals["one run on all cores / on one, ME-SAC"].text == "1.50"
    assert goals["ten evaluation episodes every 5,000 steps add"].text == "0.25"


def test_tables_and_picture(tmp_path):
    text = show.to_markdown(some_results())
    assert "| ME-DDPG | 0.81 | 0.67 |" in text  # the paper's Table 3, mean over tasks of the ratio to TD3
    assert "| SUNRISE |" in text
    show.draw(some_results(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000
