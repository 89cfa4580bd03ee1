"""Published curves, and what their methods are estimated to cost."""

import csv
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from mepg.algos import find
from mepg.bench.multiplications import multiplications
from mepg.core.types import Sizes
from mepg.paper.experiments import MUJOCO_TASKS
from mepg.paper.others import GFLOPS, METHODS, TASKS, published_curves, published_rows, sources

LINES = list(csv.DictReader((resources.files("mepg.paper") / "published" / "mujoco.csv").read_text().splitlines()))


def test_every_curve_has_a_source_a_task_and_a_method():
    assert {line["algorithm"] for line in LINES} == METHODS.keys()
    assert {line["env"] for line in LINES} == TASKS.keys()
    assert {env for env, _ in TASKS.values()} == set(MUJOCO_TASKS)
    assert all(line["repository"] and line["commit"] and line["licence"] for line in LINES)
    assert sources("mujoco") == "SimbaV2 86899c2 (Apache-2.0), FlashSAC 87edc90 (MIT), xqc 9a6832b (MIT)"


def test_curves_end_where_ours_do_and_have_their_mean_and_deviation():
    curves = published_curves("mujoco", 300_000)
    assert {curve.steps[-1] for curve in curves} == {300_000}
    pair = [curve for curve in curves if (curve.label, curve.env) == ("SAC, v4", "Ant-v5")]
    line = next(line for line in LINES if (line["algorithm"], line["env"], line["step"]) == ("SAC", "Ant-v4", "50000"))
    values = [curve.means[0] for curve in pair]
    assert np.mean(values) == pytest.approx(float(line["mean"]))
    assert np.std(values) == pytest.approx(float(line["std"]))
    assert (np.diff(pair[0].hours) > 0).all()
    assert published_curves("mujoco", 300) == []


def test_rows_are_at_the_same_number_of_steps():
    rows = {row.label: row for row in published_rows("mujoco", 300_000, MUJOCO_TASKS)}
    assert len(rows) == len(METHODS)
    line = next(
        line for line in LINES if (line["algorithm"], line["env"], line["step"]) == ("PPO", "Hopper-v4", "300000")
    )
    cell = rows["PPO, v4"].cells[MUJOCO_TASKS.index("Hopper-v5")]
    assert (cell.final, cell.final_std) == (pytest.approx(float(line["mean"])), pytest.approx(float(line["std"])))
    assert (cell.ours, cell.found, cell.wanted) == (None, 0, 0)
    assert "FlashSAC, v4" not in {row.label for row in published_rows("mujoco", 50_000, MUJOCO_TASKS)}


@pytest.mark.parametrize(("name", "method"), [("sac", "SAC"), ("redq-utd20", "REDQ UTD20")])
def test_the_formula_agrees_with_what_jax_multiplies(name, method):
    """To a few percent: the formula also counts gradients that nobody asks for, of the inputs of a critic's update."""
    sizes, spec = Sizes(obs=28, action=8), find(name).spec
    always, delayed = multiplications(find(name).build(spec, sizes), sizes, spec.batch_size)
    total = sum(m * k * n for m, k, n in always) + sum(m * k * n for m, k, n in delayed) / spec.actor_every
    assert METHODS[method].multiply_adds(sizes) / spec.updates_per_step == pytest.approx(total, rel=0.1)


def test_the_speed_is_what_the_benchmark_measured():
    update = json.loads((Path(__file__).parents[2] / "docs" / "bench.json").read_text())["updates"]["sac"]
    assert pytest.approx(update["mflop"] / update["native_milliseconds"], abs=0.05) == GFLOPS


def test_the_documentation_has_these_estimates():
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    rows = [row.split(" | ") for row in text.splitlines()]
    sizes = [TASKS[env][1] for env in ("HalfCheetah-v4", "Humanoid-v4")]
    for name, method in METHODS.items():
        (row,) = [row for row in rows if row[0] == f"| {name}" and len(row) == 8]
        hours = [f"{method.core_hours(size, 300_000):.2f}" for size in sizes]
        assert row[5:] == [f"{method.multiply_adds(sizes[0]) / 1e6:,.1f}", hours[0], f"{hours[1]} |"], name
    assert f"{GFLOPS:g} GFLOPS" in text
