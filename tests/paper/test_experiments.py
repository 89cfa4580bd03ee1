"""The paper's experiments as data."""

import csv
from argparse import Namespace
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.core.spec import Dropout
from mepg.errors import UsageError
from mepg.paper.experiments import EXPERIMENTS, FAMILIES, NOT_IN_PAPER, PLANS, canonical, jobs, select, select_several

RESULTS = Path("results")
RETURNS = ("table1", "table2", "table6", "table8", "table9", "table11", "table12")
PUBLISHED = list(csv.DictReader((resources.files("mepg.paper") / "published" / "results.csv").read_text().splitlines()))


def test_a_run_that_several_tables_need_is_run_once():
    asked, distinct = 0, set()
    for name in RETURNS:
        selection = select(name, "paper")
        experiment = selection.experiment
        asked += len(experiment.rows) * len(experiment.envs) * len(selection.seeds)
        distinct |= {job.folder for job in jobs(selection, RESULTS)}
    assert (asked, len(distinct)) == (2080, 1480)


def test_what_means_the_same_has_one_name():
    sweep = {row.dropout_p: canonical(row) for row in EXPERIMENTS["table11"].rows}
    assert sweep[0.1] == ("me-ddpg", ())
    assert sweep[0.0] == ("me-ddpg-do", ())
    assert sweep[0.3] == ("me-ddpg", ("dropout.p=0.3",))


def test_every_published_number_has_its_cell():
    cells = {
        (name, row.label if row.dropout_p is None else "", row.dropout_p, env)
        for name, experiment in EXPERIMENTS.items()
        for row in experiment.rows
        for env in experiment.envs
    }
    for number in PUBLISHED:
        p = float(number["dropout_p"]) if number["dropout_p"] else None
        table, label = number["table"].partition("-")[0], number["algorithm"] if p is None else ""
        assert (table, label, p, number["env"]) in cells, number


def test_plans_are_never_mistaken_for_each_other():
    folders, configs = {}, set()
    for plan in PLANS:
        for job in jobs(select("table1", plan), RESULTS):
            folders[job.folder] = plan
            configs.add(job.config)
    shorter = jobs(select("table1", "desk", steps=1000), RESULTS)
    assert not {job.folder for job in shorter} & set(folders)
    assert not {job.config for job in shorter} & configs
    tuned = jobs(select("table6", "desk", tuned=True), RESULTS)
    assert {job.folder.parent for job in tuned} == {RESULTS / "desk-tuned"}
    assert {job.config.spec.target_rate for job in tuned} == {0.02}
    assert select("table6", "desk", steps=1000, tuned=True).folder_name == "desk-1000-tuned"
    assert "tuned settings" in select("table6", "paper", tuned=True).plan.difference
    assert len(configs) == len(folders)


def test_configs_are_those_of_the_jobs():
    for name in ("table2", "table12"):
        selection = select(name, "desk")
        assert selection.all_configs() == {job.config for job in jobs(selection, RESULTS)}


def test_narrowed_down():
    selection = select("table1", "paper", only=["me-sac", "sac"], envs=["HopperBulletEnv-v0"], seeds=[0, 1, 2])
    assert {job.config.algorithm for job in jobs(selection, RESULTS)} == {"me-sac", "sac"}
    assert len(jobs(selection, RESULTS)) == 6
    assert len(jobs(select("table11", "paper", only=["me-ddpg"], seeds=[0]), RESULTS)) == 96


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "tabel1"}, "did you mean 'table1'"),
        ({"name": "table1", "plan": "desks"}, "did you mean 'desk'"),
        ({"name": "table1", "only": ["me-sacc"]}, "did you mean 'me-sac'"),
        ({"name": "table1", "envs": ["ReacherBulletEnv-v0"]}, "unknown environment of table1"),
        ({"name": "table1", "seeds": []}, "nothing is left"),
    ],
)
def test_bad_selections_say_what_is_wrong(arguments, says):
    with pytest.raises(UsageError, match=says):
        select(**arguments)


def test_beyond_the_paper_each_family_has_its_own_tasks():
    """Each on three tasks; no row on a task it cannot use."""
    wanted = [job for name in FAMILIES for job in jobs(select(name, "smoke"), RESULTS)]
    tasks = {}
    for job in wanted:
        tasks.setdefault(replace(job.config, env="", seed=0), set()).add(job.config.env)
    assert len(tasks) == 23
    assert {len(there) for there in tasks.values()} == {3}
    assert len(wanted) == 23 * 3 * 2
    for config, there in tasks.items():
        name = config.algorithm
        assert ("CartPole-v1" in there) == ("dqn" in name or "discrete" in name), name
    assert not set(NOT_IN_PAPER) & set(default_names())


def test_mujoco_is_beyond_the_paper_and_ends_with_the_dearest_task():
    wanted = jobs(select("mujoco"), RESULTS)
    names = ("sac", "me-sac", "td3", "me-ddpg", "crossq", "me-crossq")
    assert {job.config.algorithm for job in wanted} >= set(names)
    assert {(job.config.steps, job.config.seed) for job in wanted} == {(300_000, seed) for seed in range(3)}
    tasks = list(dict.fromkeys(job.config.env for job in wanted))
    assert tasks == ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5"]
    assert "mujoco" in NOT_IN_PAPER
    assert "mujoco" not in FAMILIES


@pytest.mark.parametrize("family", ["dqn", "qr-dqn", "sac-discrete", "tqc", "crossq"])
def test_beyond_the_paper_each_family_is_compared_with_itself(family):
    """One mask, none, two, and one on one side only: nothing else differs. And the algorithm as it is published."""
    specs = {job.config.spec for job in jobs(select(f"any-{family}", "desk"), RESULTS)}
    masked = algorithms()[f"me-{family}"].spec
    for dropout in (masked.dropout, None, Dropout(masks="independent"), Dropout(masks="online")):
        assert replace(masked, dropout=dropout) in specs, dropout
    assert algorithms()[family].spec in specs


def default_names():
    from mepg.commands.reproduce import _selections

    arguments = Namespace(experiments=[], plan="smoke", only=None, envs=None, seeds=None, steps=None, tuned=False)
    return [selection.name for selection in _selections(arguments)]


def test_of_several_each_has_what_it_has():
    """And what none of them has is an error, as is what they do not have together."""
    some = select_several(FAMILIES, "smoke", only=["me-dqn", "me-crossq-do"], envs=["CartPole-v1", "HopperBulletEnv"])
    assert {selection.name: (len(selection.experiment.rows), selection.experiment.envs) for selection in some} == {
        "any-dqn": (2, ("CartPole-v1",)),
        "any-crossq": (1, ("HopperBulletEnv-v0",)),
    }
    assert [selection.name for selection in select_several(["table1", "table2"], only=["me-sac-r"])] == ["table2"]
    with pytest.raises(UsageError, match="none of these experiments has 'nonsense'"):
        select_several(FAMILIES, only=["me-dqn", "nonsense"])
    with pytest.raises(UsageError, match="none of these experiments has 'me-tqc', or not together with the rest"):
        select_several(FAMILIES, only=["me-dqn", "me-tqc"], envs=["CartPole-v1"])
    for names, only in ((FAMILIES, ["nonsense"]), (["any-dqn"], ["me-dqn", "nonsense"])):
        with pytest.raises(UsageError, match="unknown row 'nonsense'"):
            select_several(names, only=only)
    with pytest.raises(UsageError, match="unknown experiment 'tabel1'; did you mean 'table1'"):
        select_several(["tabel1"])
