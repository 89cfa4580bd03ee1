"""What was measured, as it is shown."""

from mepg.bench import measure, show


def some_results():
    update = {
        "mflop": 100.0, "milliseconds": 5.0, "multiplications_milliseconds": 4.0,
        "ratio": 1.25, "ratio_of_minima": 1.2, "relative_to_me_sac": 1.0,
        "native_milliseconds": 3.0, "native_ratio": 0.75, "native_gain": 1.67, "native_threads_gain": 1.8,
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
        "loops": dict.fromkeys((measure.HOPPER, measure.ANT), loops),
        "beyond": dict.fromkeys(("dqn", "me-dqn", "tqc", "me-tqc", "crossq", "me-crossq"), loops["sac"])
        | {"tqc in sbx": {"steps_per_second": 50.0, "megabytes": 900.0}},
        "two_runs": {"me-ddpg": {"steps_per_second": 600.0}},
        "pendulum": {"sac": 300.0, "me-sac": 200.0, "sac in rltools": 250.0},
        "simulators": {"HopperBulletEnv-v0": {"as_it_comes": 300.0, "here": 150.0, "ratio": 0.5}},
        "evaluation": {"seconds": 8.0, "steps": 10_000, "adds": 0.25},
        "memory": {"me-sac": 500.0},
        "first_step": {"first_start": 12.0, "second_start": 4.5},
    }  # fmt: skip


def test_the_summary_by_hand():
    found = show.summary(some_results())
    assert found["update / its products in OpenBLAS, me-sac"] == "0.75"
    assert found["the same with precision=mixed, td3"] == "0.75"
    assert found["two runs of me-ddpg on two cores, steps/s (the paper's GPU: 397)"] == "600.00"
    assert found["processor time of me-sac / RLtools' SAC, Pendulum, 64,64"] == "0.80"
    assert found["a step of HopperBulletEnv-v0 here / as it comes"] == "0.50"
    assert found["loop against sbx, td3"] == "2.00"
    assert found["loop against sb3, sac"] == "2.00"  # its targets are updated as theirs are: 90 / 45
    assert found["loop against sb3, td3"] == "not measured"
    assert found["time of ME-DDPG / TD3 (the paper: 0.82)"] == "0.67"
    assert found["time of ME-SAC / SAC (the paper: 0.96)"] == "0.50"
    assert found["ten evaluation episodes every 5,000 steps add"] == "0.25"


def test_tables_and_picture(tmp_path):
    text = show.to_markdown(some_results())
    assert "| loop against sbx, td3 | 2.00 |" in text
    assert "| ME-DDPG | 0.81 | 0.67 |" in text  # the paper's Table 3, mean over tasks of the ratio to TD3
    assert "| SUNRISE |" in text
    assert "| tqc on HopperBulletEnv-v0 | 100 | 100 | 50 | 2.00 |" in text
    assert "| dqn on CartPole-v1 | 100 | 100 |  |  |" in text, "no other library was asked for"
    show.draw(some_results(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000
