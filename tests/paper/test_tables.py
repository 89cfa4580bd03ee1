"""From made-up runs to the paper's tables."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from mepg.paper.experiments import EXPERIMENTS, NOT_IN_PAPER, PLANS, jobs, select
from mepg.paper.tables import divided_by_best, find_selections, improvements, paper_table, published
from mepg.report.runs import collect
from mepg.report.statistics import interquartile_mean, normalise
from mepg.report.tables import to_csv, to_markdown
from tests.report.by_hand import cell_of, make, write_run

HOPPER, WALKER, REACHER = "HopperBulletEnv-v0", "Walker2DBulletEnv-v0", "ReacherBulletEnv-v0"


def carry_out(selection, folder, **options):
    for job in jobs(selection, folder):
        write_run(job.folder, job.config, **options)
    return collect([folder])[0]


def test_every_row_of_every_table_has_a_published_value():
    for name, experiment in EXPERIMENTS.items():
        if experiment.shown_as == "table" and name not in NOT_IN_PAPER:
            for row in experiment.rows:
                for env in experiment.envs:
                    assert published(name, row, env) is not None, (experiment.title, row, env)


def test_both_rows_of_ddpg_are_kept():
    """D14."""
    values = [cell_of(paper_table(select(name), ()), "DDPG", HOPPER).published.value for name in ("table1", "table6")]
    assert values == [1969, 1918.42]


def test_a_cell_by_hand(tmp_path):
    selection = select("table1", "smoke", only=["me-sac"], envs=[HOPPER])
    runs = carry_out(selection, tmp_path, level=2500.0)
    table = paper_table(selection, runs)
    cell = cell_of(table, "ME-SAC", HOPPER)
    ours = [np.mean(sorted(run.means)[-5:]) for run in runs]
    assert cell.ours == pytest.approx(np.mean(ours))
    assert cell.std == pytest.approx(np.std(ours))
    assert cell.final == pytest.approx(np.mean([run.means[-1] for run in runs]))
    assert cell.published == (2533, 106)
    assert cell.difference == pytest.approx(cell.ours - 2533)
    assert (cell.found, cell.wanted) == (2, 2)
    (row,) = table.rows
    assert cell.iqm == row.iqm  # of the only task
    assert row.iqm.value == pytest.approx(
        interquartile_mean([normalise(np.array([run.means[-1] for run in runs]), HOPPER)])
    )
    assert row.iqm.low <= row.iqm.value <= row.iqm.high
    assert row.iqm_tasks == (HOPPER,)


def test_runs_of_either_backend_fill_a_table(tmp_path):
    selection = select("table1", "smoke", only=["me-sac"], envs=[HOPPER])
    for job, backend in zip(jobs(selection, tmp_path), ("native", "xla"), strict=True):
        write_run(job.folder, replace(job.config, backend=backend))
    runs, _ = collect([tmp_path])
    assert {run.config.backend for run in runs} == {"native", "xla"}
    assert "table1" in [found.name for found in find_selections(runs)]
    assert cell_of(paper_table(selection, runs), "ME-SAC", HOPPER).found == 2


def test_missing_and_unfinished_seeds_are_counted_and_not_averaged(tmp_path):
    selection = select("table1", "desk", only=["td3"], envs=[HOPPER, WALKER])
    first, second, *_ = jobs(selection, tmp_path)
    write_run(first.folder, first.config, level=2000.0)
    write_run(second.folder, second.config, level=9e9, finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    cell = cell_of(paper_table(selection, runs), "TD3", HOPPER)
    assert (cell.found, cell.wanted, cell.unfinished) == (1, 3, 1)
    assert cell.ours < 3000
    assert cell.std is None  # of one run there is none
    nothing = cell_of(paper_table(selection, runs), "TD3", WALKER)
    assert nothing.ours is nothing.difference is nothing.final is None
    assert nothing.published is not None


def test_a_run_of_another_plan_is_not_taken(tmp_path):
    runs = carry_out(select("table1", "smoke", only=["me-sac"], envs=[HOPPER]), tmp_path)
    assert paper_table(select("table1", "desk", envs=[HOPPER]), runs).found == 0
    assert paper_table(select("table1", "smoke", envs=[HOPPER], steps=200), runs).found == 0


def test_whether_the_plan_is_the_papers():
    assert paper_table(select("table1", "paper"), ()).is_papers
    short = paper_table(select("table1", "paper", steps=20_000), ())
    assert not short.is_papers
    assert any("20,000 steps instead of 1,000,000" in note for note in short.notes)
    assert not paper_table(select("table1", "smoke"), ()).is_papers
    assert paper_table(select("table4", "smoke"), ()).is_papers  # counting needs no plan


def test_minutes_are_those_of_training(tmp_path):
    selection = select("table3", "smoke", only=["sac"], envs=[HOPPER])
    runs = carry_out(selection, tmp_path, seconds=660.0, eval_seconds=60.0)
    cell = cell_of(paper_table(selection, runs), "SAC", HOPPER)
    assert (cell.ours, cell.published.value) == (10.0, 72.0)
    assert cell.final is None


@pytest.mark.parametrize("name", ["table4", "table10"])
def test_parameters_need_no_runs_and_agree(name):
    table = paper_table(select(name), ())
    assert {cell.difference for row in table.rows for cell in row.cells} == {0.0}
    assert table.plan is None


def test_one_run_serves_all_rows_that_mean_it(tmp_path):
    """p = 0.1 is ME-SAC itself, and p = 0 is ME-SAC-DO."""
    runs = carry_out(select("table1", "smoke", only=["me-sac"], envs=[HOPPER]), tmp_path)
    sweep = paper_table(select("table12", "smoke"), runs)
    assert cell_of(sweep, "p = 0.1", HOPPER).found == 2
    assert sweep.found == 2
    first = select("table12", "smoke").configs(EXPERIMENTS["table12"].rows[0], HOPPER)[0]
    assert first.algorithm == "me-sac-do"


def test_selections_are_found_from_runs(tmp_path):
    runs = carry_out(select("table9", "smoke", only=["me-sac+cdq"], envs=[REACHER], seeds=[0, 7]), tmp_path)
    found = find_selections(runs)
    assert [(s.name, s.folder_name, s.seeds) for s in found] == [
        ("table9", "smoke", (0, 1, 7)),
        ("figure5", "smoke", (0, 1, 7)),
    ]
    assert find_selections([]) == []


def test_shortened_plans_are_found_and_named(tmp_path):
    runs = carry_out(select("table1", "desk", only=["sac"], envs=[HOPPER], steps=20_000, seeds=[0]), tmp_path)
    assert {s.folder_name for s in find_selections(runs)} == {"desk-20000"}
    runs += carry_out(select("table1", "desk", only=["sac"], envs=[HOPPER], seeds=[0]), tmp_path / "whole")
    assert {s.folder_name for s in find_selections(runs)} == {"desk-20000", "desk"}


def test_the_papers_plan_is_never_taken_for_the_desks(tmp_path):
    plan = PLANS["paper"]
    run = write_run(tmp_path / "run", make("sac", HOPPER, 0, plan.steps, plan.eval_every, plan.eval_episodes))
    assert {s.plan_name for s in find_selections(collect([run])[0])} == {"paper"}


def test_division_by_the_best(tmp_path):
    """Section 5.4."""
    selection = select("table12", "smoke", envs=[HOPPER, REACHER], seeds=[0])
    for i, job in enumerate(jobs(selection, tmp_path)):
        write_run(job.folder, job.config, level=1000.0 + 100 * i if job.config.env == HOPPER else -100.0)
    table = paper_table(selection, collect([tmp_path])[0])
    shares = divided_by_best(table)
    best = max(row.cells[0].ours for row in table.rows)
    assert shares["p = 0.3"][HOPPER] == cell_of(table, "p = 0.3", HOPPER).ours / best
    assert max(row[HOPPER] for row in shares.values()) == 1
    assert all(row[REACHER] is None for row in shares.values())  # a share of a negative best means nothing
    assert divided_by_best(table, of_paper=True)["p = 0.1"][HOPPER] == 1  # 2,533 is the best in Table 12
    nothing = divided_by_best(paper_table(selection, ()))
    assert all(value is None for row in nothing.values() for value in row.values())


def test_csv_has_a_line_for_each_cell(tmp_path):
    selection = select("table1", "smoke", envs=[HOPPER, WALKER])
    table = paper_table(selection, carry_out(select("table1", "smoke", only=["sac"], envs=[HOPPER]), tmp_path))
    lines = list(csv.DictReader(to_csv(table).splitlines()))
    cells = [line for line in lines if line["unit"] == "return"]
    assert len(cells) == len(table.rows) * 2
    (line,) = [line for line in cells if (line["row"], line["env"]) == ("SAC", HOPPER)]
    cell = cell_of(table, "SAC", HOPPER)
    assert float(line["ours"]) == pytest.approx(cell.ours, rel=1e-5)
    assert (line["published"], line["found"], line["wanted"], line["papers_plan"]) == ("2318", "2", "2", "false")
    (line,) = [line for line in lines if line["unit"] == "iqm"]
    assert float(line["low"]) <= float(line["iqm"]) <= float(line["high"])


def test_markdown_says_what_is_missing(tmp_path):
    selection = select("table1", "smoke", only=["sac"], envs=[HOPPER])
    job, _ = jobs(selection, tmp_path)
    write_run(job.folder, job.config)
    text = to_markdown(paper_table(selection, collect([tmp_path])[0]))
    assert "**Table 1: Returns, four tasks**" in text
    assert "which is not the paper's" in text
    assert "1/2 seeds" in text
    assert "(paper 2,318 ± 132)" in text


def test_probability_of_improvement(tmp_path):
    """ME-SAC's runs are all above the others'; one run alone says nothing, nor does an unfinished one."""
    for algorithm, level in (("me-sac", 2500.0), ("me-ddpg", 1000.0), ("sac", 100.0)):
        carry_out(select("table1", "smoke", only=[algorithm], envs=[HOPPER]), tmp_path, level=level)
    runs = carry_out(select("table1", "smoke", only=["td3"], envs=[HOPPER], seeds=[0]), tmp_path)
    found = improvements(select("table1", "smoke"), runs)
    assert [(one.better, one.than, one.probability, one.tasks) for one in found] == [
        ("ME-SAC", "ME-DDPG", (1.0, 1.0, 1.0), (HOPPER,)),
        ("ME-SAC", "SAC", (1.0, 1.0, 1.0), (HOPPER,)),
        ("ME-DDPG", "SAC", (1.0, 1.0, 1.0), (HOPPER,)),
    ]
    assert improvements(select("table1", "smoke"), [run._replace(finished=False) for run in runs]) == []
