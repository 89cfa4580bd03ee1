"""Folders of runs, whole and otherwise."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.report.runs import collect, read_run
from mepg.storage.files import read_sealed, write_sealed_arrays
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from tests.conftest import SPACES

from .by_hand import alter, make, write_arrays, write_run


def only_reason(path):
    runs, problems = collect([path])
    assert runs == []
    (problem,) = problems
    return problem.reason


def test_a_finished_run(tmp_path):
    config = make()
    run = read_run(write_run(tmp_path / "run", config, seconds=90.0, eval_seconds=30.0))
    assert run.config == config
    assert run.finished
    assert run.steps.tolist() == [1000, 2000, 3000, 4000]
    assert run.returns.shape == (4, 2)
    assert run.mean_of_five_best == read_sealed(tmp_path / "run" / "result.json")["mean_of_five_best"]
    assert (run.seconds, run.train_seconds) == (90.0, 60.0)
    assert "python" in run.versions


def test_the_five_best_evaluations_by_hand(tmp_path):
    run = read_run(write_run(tmp_path / "run", make()))
    assert run._replace(returns=np.array([[1.0, 9.0, 2.0, 8.0, 3.0, 7.0]]).T).mean_of_five_best == 29 / 5
    assert run._replace(returns=np.array([[4.0], [6.0]])).mean_of_five_best == 5


def test_the_last_evaluation_may_come_early(tmp_path):
    run = read_run(write_run(tmp_path / "run", make(steps=2500)))
    assert run.steps.tolist() == [1000, 2000, 2500]
    assert run.finished


def test_an_unfinished_run_is_kept_and_marked(tmp_path):
    run = read_run(write_run(tmp_path / "run", make(), finished=False, share=0.5))
    assert not run.finished
    assert run.steps.tolist() == [1000, 2000]
    assert run.seconds is run.train_seconds is None


def test_a_run_that_has_just_begun(tmp_path):
    Folder(tmp_path / "run").claim(make(), SPACES).close()
    run = read_run(tmp_path / "run")
    assert run.returns.shape == (0, 2)
    assert not run.finished


def test_runs_at_any_depth_each_once(tmp_path):
    for i, place in enumerate(["a", "b/c/d", "b/e"]):
        write_run(tmp_path / place, make(seed=i))
    runs, problems = collect([tmp_path, tmp_path / "b" / "e"])
    assert sorted(run.config.seed for run in runs) == [0, 1, 2]
    assert problems == []


def test_links_are_followed_to_a_run_and_named_otherwise(tmp_path):
    elsewhere = write_run(tmp_path / "elsewhere" / "run", make(seed=1)).parent
    runs = tmp_path / "runs"
    write_run(runs / "own", make(seed=0))
    for name, target in {
        "a": elsewhere / "run",  # of which there is no other here
        "latest": runs / "own",  # which is there by its own name
        "folder": elsewhere,
        "circle": runs,
        "gone": tmp_path / "gone",
    }.items():
        (runs / name).symlink_to(target)
    found, problems = collect([runs])
    assert {run.path.name: run.config.seed for run in found} == {"own": 0, "a": 1}
    reasons = {problem.path.name: problem.reason for problem in problems}
    assert reasons == {
        "folder": "is a link to a folder of others: name that folder itself",
        "circle": "is a link to a folder of others: name that folder itself",
        "gone": "is a link that leads nowhere",
    }
    assert len(collect([runs / "folder"])[0]) == 1


def test_the_same_run_twice_counts_once(tmp_path):
    write_run(tmp_path / "a", make())
    write_run(tmp_path / "b", make())
    runs, (problem,) = collect([tmp_path])
    assert [run.path.name for run in runs] == ["a"]
    assert problem.path.name == "b"
    assert "the same run as" in problem.reason


def test_another_number_of_threads_is_another_run(tmp_path):
    write_run(tmp_path / "a", make())
    write_run(tmp_path / "b", replace(make(), threads=2))
    assert len(collect([tmp_path])[0]) == 2


def test_folders_without_runs(tmp_path):
    assert only_reason(tmp_path) == "holds no run"
    assert only_reason(tmp_path / "missing") == "is not a folder"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"format": 1}', b"[" * 100_000])
def test_a_damaged_run_json(tmp_path, content):
    folder = write_run(tmp_path / "run", make())
    (folder / "run.json").write_bytes(content)
    assert only_reason(tmp_path)


def test_a_run_json_that_is_gone(tmp_path):
    folder = write_run(tmp_path / "run", make())
    (folder / "run.json").unlink()
    assert "no run.json" in only_reason(tmp_path)


def test_another_versions_run(tmp_path):
    folder = write_run(tmp_path / "run", make())
    alter(folder / "run.json", format=99)
    assert "another version" in only_reason(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "<script>"},
        {"seed": -1},
        {"steps": 10**30, "eval_every": 1},
        {"eval_episodes": 10**30},
        {"env": 7},
    ],
)
def test_a_config_that_means_nothing_or_something_else(tmp_path, change):
    folder = write_run(tmp_path / "run", make())
    data = json.loads((folder / "run.json").read_text())
    alter(folder / "run.json", config={**data["config"], **change})
    assert only_reason(tmp_path)


def test_evaluations_that_are_cut_short(tmp_path):
    folder = write_run(tmp_path / "run", make())
    content = (folder / "evaluations.npz").read_bytes()
    (folder / "evaluations.npz").write_bytes(content[: len(content) // 2])
    assert "evaluations that cannot be read: evaluations.npz" in only_reason(tmp_path)


def test_evaluations_that_would_run_code(tmp_path):
    folder = write_run(tmp_path / "run", make())
    code = np.array([os.system], dtype=object)
    write_arrays(folder, timesteps=code, results=code, ep_lengths=code)
    assert "cannot be read" in only_reason(tmp_path)


@pytest.mark.parametrize("name", ["evaluations.npz", "result.json"])
def test_a_finished_run_that_lost_a_file(tmp_path, name):
    folder = write_run(tmp_path / "run", make())
    (folder / name).unlink()
    assert only_reason(tmp_path) == f"holds a finished run without its {name}"


@pytest.mark.parametrize(
    ("steps", "returns", "reason"),
    [
        ([1000, 2000, 3000], np.ones((3, 2)), "3 of 4 evaluations"),
        ([1000, 3000, 2000, 4000], np.ones((4, 2)), "other steps"),
        ([1000, 2000, 3000, 4000, 5000], np.ones((5, 2)), "other steps"),
        ([1000, 2000, 3000, 4000], np.ones((4, 3)), "episodes"),
        ([1000, 2000, 3000, 4000], np.full((4, 2), np.nan), "not finite"),
        ([1000, 2000, 3000, 4000], np.full((4, 2), "x"), "cannot be read"),
        ([1000, 2000, 3000, 4000], np.ones((4, 2)), "does not agree"),
    ],
)
def test_evaluations_that_are_not_the_runs(tmp_path, steps, returns, reason):
    folder = write_run(tmp_path / "run", make())
    write_arrays(folder, timesteps=steps, results=returns, ep_lengths=np.ones(returns.shape))
    with pytest.raises(UsageError, match=reason):
        read_run(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": "long"},
        {"seconds": -1},
        {"eval_seconds": 1e9},
        {"eval_seconds": ...},
        {"final_return": None},
        {"steps": 1},
    ],
)
def test_a_result_that_cannot_be(tmp_path, change):
    folder = write_run(tmp_path / "run", make())
    alter(folder / "result.json", **change)
    assert "result.json" in only_reason(tmp_path)


def test_a_result_that_is_not_an_object(tmp_path):
    folder = write_run(tmp_path / "run", make())
    (folder / "result.json").write_text("[]")
    assert "not a JSON object" in only_reason(tmp_path)


def test_reading_changes_nothing(tmp_path):
    folder = write_run(tmp_path / "run", make())
    before = {path: path.read_bytes() for path in folder.iterdir()}
    collect([tmp_path])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert len(Folder(folder).evaluations(make())) == 4


ROWS = ["1000,100,8.0", "2000,50,24.0", "4000,100,44.0"]


def seconds(run):
    return pytest.approx((3600 * run.hours).tolist())


def test_core_hours_at_each_evaluation_are_read_off_the_metrics(tmp_path):
    run = read_run(write_run(tmp_path / "run", make(), rows=ROWS))
    assert seconds(run) == [8.0, 24.0, 34.0, 44.0]


@pytest.mark.parametrize("rows", [[], ["1000,,"], ["1000,1,2.0", "2000,1,1.0"], ["1000,nan,nan"], ["1000,1,inf"]])
def test_processor_time_that_is_not_known_throughout_is_not_known(tmp_path, rows):
    assert read_run(write_run(tmp_path / "run", make(), rows=rows)).hours is None


def test_a_row_that_is_half_written_is_passed_over(tmp_path):
    run = read_run(write_run(tmp_path / "run", make(), rows=[*ROWS[:2], "30"], finished=False, share=0.5))
    assert seconds(run) == [8.0, 24.0]


def test_an_unfinished_run_can_do_without_its_metrics(tmp_path):
    run = read_run(write_run(tmp_path / "run", make(), rows=["one,two,three"], finished=False, share=0.5))
    assert run.hours is None


def test_a_published_folder_with_a_file_missing_altered_or_of_another_run(tmp_path):
    """Each is named and left out; a folder that is whole stays."""
    other = write_run(tmp_path / "other", make(seed=9), rows=ROWS)
    policy(other, make(seed=9))

    def lose(name):
        return lambda folder: (folder / name).unlink()

    def alter_a_digit(name):
        def act(folder):
            content = bytearray((folder / name).read_bytes())
            place = content.index(b"1", len(content) // 2) if name.endswith((".csv", ".json")) else len(content) // 2
            content[place] ^= 1
            (folder / name).write_bytes(content)

        return act

    def take_from_another(name):
        return lambda folder: (folder / name).write_bytes((other / name).read_bytes())

    names = ("run.json", "result.json", "evaluations.npz", "metrics.csv", "policy.safetensors")
    harms = {
        f"{harm.__name__}-{name}": harm(name)
        for harm in (lose, alter_a_digit, take_from_another)
        for name in names
        if (harm, name) not in ((lose, "policy.safetensors"), (take_from_another, "run.json"))
    }  # a policy is published for some runs only; another run's run.json makes everything else another run's
    for seed, (name, act) in enumerate(harms.items()):
        act(policy(write_run(tmp_path / "runs" / name, make(seed=seed), rows=["1000,11,1.5"]), make(seed=seed)))
    policy(write_run(tmp_path / "runs" / "whole", make(seed=99), rows=ROWS), make(seed=99))
    runs, problems = collect([tmp_path / "runs"])
    assert [run.path.name for run in runs] == ["whole"]
    assert {problem.path.name for problem in problems} == harms.keys()
    for problem in problems:
        assert problem.reason
        assert "\n" not in problem.reason


def policy(folder, config):
    write_sealed_arrays(folder / "policy.safetensors", {"agent.w": np.ones(64)}, Identity(config, SPACES).to_json())
    return folder
