"""What was measured, as it is shown."""

from mepg.bench import measure, show


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
