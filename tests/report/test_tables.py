"""From made-up runs to tables, and from tables to text."""

import csv
from dataclasses import replace

import pytest

from mepg.report.runs import collect
from mepg.report.tables import group_variants, short_name, show, show_with_std, to_csv, to_markdown, variant_tables

from .by_hand import cell_of, make, write_run

HOPPER = "HopperBulletEnv-v0"


def test_own_runs_are_told_apart(tmp_path):
    write_run(tmp_path / "a", make(seed=0))
    write_run(tmp_path / "b", make(seed=1))
    write_run(tmp_path / "c", make(settings=["dropout.p=0.3"]))
    write_run(tmp_path / "d", make(steps=8000))
    write_run(tmp_path / "e", make("sac", HOPPER), finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    groups, shared = group_variants(runs)
    assert {label: len(members) for label, members in groups.items()} == {
        "me-sac, 4,000 steps": 2,
        "me-sac, dropout.p=0.3, 4,000 steps": 1,
        "me-sac, 8,000 steps": 1,
        "sac, 4,000 steps": 1,
    }
    assert shared == "eval-every=1000, eval-episodes=2"
    returns, times = variant_tables(runs)
    assert cell_of(returns, "me-sac, 4,000 steps", "Pendulum-v1").found == 2
    assert all(cell.published is None for row in returns.rows for cell in row.cells)
    assert cell_of(returns, "sac, 4,000 steps", HOPPER).unfinished == 1
    assert times.unit == "minutes"
    assert variant_tables([]) == []


def test_what_a_runs_variant_is_does_not_depend_on_its_seed(tmp_path):
    write_run(tmp_path / "a", make(seed=3))
    (run,) = collect([tmp_path])[0]
    groups, shared = group_variants([run, run._replace(config=replace(run.config, seed=4))])
    assert list(groups) == ["me-sac, eval-every=1000, eval-episodes=2, 4,000 steps"]
    assert shared == ""


def test_numbers_as_they_are_shown():
    assert show(2382.4, "return") == "2,382"
    assert show(24.52, "return") == "24.5"
    assert show(-0.04, "return", signed=True) == "0.0"
    assert show(-151.3, "return", signed=True) == "-151"
    assert show(1_586_123, "parameters") == "1,586"
    assert show(0.123, "minutes") == "0.12"
    assert show(None, "return") == ""
    assert show_with_std(1871.0, 46.4, "return") == "1,871 ± 46"
    assert show_with_std(1871.0, None, "return") == "1,871"


@pytest.mark.parametrize("env", ["<script>alert(1)</script>", "a|b", "=1+1", "line\nbreak", "[x](javascript:1)"])
def test_text_from_a_run_is_neither_markup_nor_formula(tmp_path, env):
    write_run(tmp_path / "run", make(env=env))
    table, _ = variant_tables(collect([tmp_path])[0])
    text = to_markdown(table)
    assert "<script" not in text
    assert "[x]" not in text
    heading, rule, row = text.splitlines()[2:5]
    assert heading.count("|") == rule.count("|") == row.count("|") == 3
    (line,) = csv.DictReader(to_csv(table).splitlines(keepends=True))
    assert line["env"].endswith(env)
    assert not line["env"].startswith("=")


def test_short_names_are_those_of_pybullets_tasks():
    names = ["HopperBulletEnv-v0", "InvertedDoublePendulumBulletEnv-v0", "InvertedPendulumSwingupBulletEnv-v0"]
    assert [short_name(name) for name in names] == ["Hopper", "DoublePendulum", "Swingup"]
    others = ["Hopper-v5", "InvertedDoublePendulum-v5", "BulletEnv-v0 and more"]
    assert [short_name(name) for name in others] == others
