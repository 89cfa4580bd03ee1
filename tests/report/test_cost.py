"""Core-hours, and where they come from."""

import json

import pytest

from mepg.errors import UsageError
from mepg.report.cost import describe_sources, find_speeds, with_hours
from mepg.report.figures import make_curves
from mepg.report.runs import collect

from .by_hand import make, write_run

ROWS = ["1000,100,36", "2000,50,72", "4000,100,144"]
OLD = ["1000,100,", "2000,50,", "4000,100,"]
BENCH = {"loops": {"Pendulum-v1": {"me-sac": {"steps_per_second": 200.0}}}, "about": {"date": "today", "cores": 2}}


def bench(folder, data=BENCH):
    (folder / "bench.json").write_text(json.dumps(data))
    return find_speeds([folder / "nowhere", folder])


def hours_of(folder, benchmark):
    runs, problems = collect([folder])
    assert problems == []
    return with_hours(runs, benchmark)


def test_recorded_processor_time_comes_first(tmp_path):
    write_run(tmp_path / "run", make(), rows=ROWS)
    runs = hours_of(tmp_path, bench(tmp_path))
    assert runs[0].hours.tolist() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert describe_sources(runs, None) == "Of 1 run: processor time on all cores, evaluations aside."


def test_of_older_runs_learning_steps_count_at_the_benchmarks_speed(tmp_path):
    write_run(tmp_path / "a", make(steps=45_000, eval_every=15_000), rows=OLD)  # learns from 25,000 on
    write_run(tmp_path / "b", make(settings=["dropout.p=0.3"]), rows=OLD)
    benchmark = bench(tmp_path)
    listed, other = hours_of(tmp_path, benchmark)
    assert listed.hours.tolist() == pytest.approx([0.0, 5_000 / 200 / 3600, 20_000 / 200 / 3600])
    assert (other.hours, other.hours_from) == (None, None)
    words = describe_sources([listed, other], benchmark)
    assert "speed of the benchmark (today), in steps/s: me-sac 200 on Pendulum-v1" in words
    assert "Not drawn over core-hours: 1 run whose" in words


def test_without_a_benchmark_the_time_that_passed_with_a_remark(tmp_path):
    write_run(tmp_path / "a", make(), rows=OLD)
    write_run(tmp_path / "b", make(seed=1))
    assert find_speeds([tmp_path]) is None
    timed, other = hours_of(tmp_path, None)
    assert timed.hours.tolist() == pytest.approx([10 / 3600, 30 / 3600, 40 / 3600, 50 / 3600])
    assert other.hours is None
    assert "time that passed, waiting and evaluations too" in describe_sources([timed, other], None)
    assert describe_sources([other], None) == ""


@pytest.mark.parametrize(
    "data", [[], {}, {"loops": {}}, {"loops": {"a": {"b": {"steps_per_second": 0}}}, "about": {}}, {"loops": 3}]
)
def test_a_bench_json_of_another_form_is_refused(tmp_path, data):
    with pytest.raises(UsageError, match=r"bench\.json is not what mepg bench writes"):
        bench(tmp_path, data)


def test_curves_over_hours_never_turn_back(tmp_path):
    """A seed that is dear and stops early does not take the others' hours with it."""
    write_run(tmp_path / "a", make(), rows=ROWS)
    write_run(tmp_path / "b", make(seed=1), rows=["1000,1,3600", "2000,1,7200"], finished=False, share=0.5)
    runs = hours_of(tmp_path, None)
    (curve,) = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"]).panels["Pendulum-v1"]
    assert curve.hours == pytest.approx([0.505, 1.01, 1.02, 1.03], rel=1e-4)
    known = make_curves("name", "title", {"row": runs}, envs=["Pendulum-v1"])
    assert known.over_hours is not None
    without = make_curves("name", "title", {"row": [runs[0]._replace(hours=None), runs[1]]}, envs=["Pendulum-v1"])
    assert without.panels["Pendulum-v1"][0].hours is None
    assert without.over_hours is None
