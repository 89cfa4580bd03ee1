"""Long format: written and read back, and refused with line and column."""

import csv

import numpy as np
import pytest

from mepg.errors import UsageError
from mepg.report.long_format import on_environments, read_long_format, to_long_format
from mepg.report.runs import collect

from .by_hand import make, write_run

HEAD = ",exp_name,env_name,seed,metric,env_step,value\n"


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_evaluation_is_written_and_read_back(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"run{seed}", make(seed=seed))
    write_run(tmp_path / "half", make(seed=2), finished=False, share=0.5)
    runs, _ = collect([tmp_path])
    text = to_long_format(runs)
    lines = list(csv.DictReader(text.splitlines()))
    assert text.startswith(HEAD)
    assert [line[""] for line in lines] == [str(number) for number in range(4 + 4 + 2)]
    assert {line["exp_name"] for line in lines} == {"me-sac, eval-every=1000, eval-episodes=2, 4,000 steps"}
    assert {(line["env_name"], line["metric"]) for line in lines} == {("Pendulum-v1", "avg_return")}
    assert [line["seed"] for line in lines] == list("0000111122")
    series = read_long_format(write(tmp_path / "mine.csv", text))
    for one, run in zip(series, sorted(runs, key=lambda run: run.config.seed), strict=True):
        assert one.steps.tolist() == run.steps.tolist()
        assert one.means.tolist() == run.means.tolist()  # to the last bit


def test_as_others_publish_it(tmp_path):
    """With pandas' index or without, steps with a point, other metrics between, seeds in any order."""
    theirs = HEAD + (
        "0,sac_simba,dog_trot,4000,avg_return,50000.0,14.5\n"
        "1,sac_simba,dog_trot,4000,avg_return,0.0,4.25\n"
        "2,sac_simba,dog_trot,4000,avg_length,0.0,1000\n"
        "3,sac_simba,dog_run,4000,avg_return,0,-1e-3\n"
    )
    first, second = read_long_format(write(tmp_path / "simba.csv", theirs))
    assert (first.label, first.env) == ("sac_simba (simba.csv)", "dog_trot")
    assert (first.steps.tolist(), first.means.tolist()) == ([0, 50_000], [4.25, 14.5])
    assert second.means.tolist() == [-0.001]
    short = "exp,env,seed,metric,step,value\r\nsac,dog-run,0,avg_return,0,1.0\r\n\r\n"
    (one,) = read_long_format(write(tmp_path / "short.csv", short))
    assert one.means.tolist() == [1.0]


def test_columns_by_name_in_any_order(tmp_path):
    """Whatever else there is, is ignored."""
    text = "licence,step,algorithm,seeds,env,value,seed\nMIT,5.0,sac,10,Ant-v4,1.5,3\n"
    (one,) = read_long_format(write(tmp_path / "a.csv", text))
    assert (one.label, one.env, one.steps.tolist(), one.means.tolist()) == ("sac (a.csv)", "Ant-v4", [5], [1.5])


def test_a_mean_and_a_standard_deviation_are_two_curves_that_have_them(tmp_path):
    text = "algorithm,env,step,seeds,mean,std\nsac,Ant-v4,50000,10,448.5,282.25\nsac,Ant-v4,100000,10,700,0\n"
    curves = read_long_format(write(tmp_path / "a.csv", text))
    assert {(curve.label, curve.env, *curve.steps) for curve in curves} == {("sac (a.csv)", "Ant-v4", 50_000, 100_000)}
    values = np.array([curve.means for curve in curves])
    assert values.mean(axis=0).tolist() == [448.5, 700]
    assert values.std(axis=0).tolist() == [282.25, 0]


ROW = "0,sac,Ant_v4,0,avg_return,0,1.0\n"
BAD = {
    "": "line 1: the file is empty",
    "step,reward\n1,2\n": "line 1: there is no column algorithm or exp_name or exp",
    HEAD.replace("env_step", "steps"): "line 1: there is no column step or env_step",
    HEAD.replace(",value", ""): "line 1: there is no column value or mean",
    "algorithm,env,step,mean\n": "line 1: there is neither a column seed nor mean and std",
    "algorithm,env,step,mean,std\nsac,Ant,0,1,x\n": "line 2, column std: 'x' is not a finite number",
    "algorithm,env,step,mean,std\nsac,Ant,0,1,2\nsac,Ant,0,1,2\n": "line 3: a second value of 'sac' at step 0",
    HEAD + ROW + "1,sac,Ant_v4\n": "line 3, column 4: 3 cells where the head has 7",
    HEAD + ROW + "1,sac,Ant_v4,0,avg_return,5,1.0,2\n": "line 3, column 8: 8 cells",
    HEAD + "0,sac,Ant_v4,first,avg_return,0,1.0\n": "line 2, column seed: 'first' is not",
    HEAD + "0,sac,Ant_v4,0,avg_return,-5,1.0\n": "line 2, column step: '-5' is not a whole number",
    HEAD + "0,sac,Ant_v4,0,avg_return,0.5,1.0\n": "line 2, column step: '0.5' is not a whole number",
    HEAD + ROW + "1,sac,Ant_v4,0,avg_return,5,nan\n": "line 3, column value: 'nan' is not a finite number",
    HEAD + ROW + "1,sac,Ant_v4,0,avg_return,5,\n": "line 3, column value: '' is not a finite number",
    HEAD: "line 2: there is nothing below the head",
    "algorithm,env,step,mean,std\n": "line 2: there is nothing below the head",
    "algorithm,env,step,mean,std\nsac,Ant,0,1e308,1e308\n": "line 2, column value: '1e308' is not a finite number",
    "algorithm,env,step,mean,std\nsac,Ant,0,1,-2\n": "line 2, column std: '-2' is below 0",
    "algorithm,env,step,mean,mean,std\nsac,Ant,0,1,2,3\n": "line 1: there are 2 columns mean",
    HEAD + ROW + ROW: "line 3: a second value of 'sac', seed 0, at step 0",
    HEAD + ROW.replace("avg_return", "success"): "column metric: there is no avg_return",
    HEAD + '0,"sac,Ant_v4,0,avg_return,0,1.0\n': "line 2: not CSV",
    HEAD.encode() + b"0,\xff": "line 2: not text in UTF-8",
}


@pytest.mark.parametrize("text", BAD, ids=BAD.values())
def test_what_is_not_of_that_form_is_refused_with_line_and_column(tmp_path, text):
    path = write(tmp_path / "theirs.csv", text)
    with pytest.raises(UsageError) as refusal:
        read_long_format(path)
    assert BAD[text] in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_long_format(tmp_path / "nowhere.csv")


def test_environments_go_by_several_names(tmp_path):
    names = ("Ant_v4", "ant-v4", "Hopper", "HopperBulletEnv-v0", "dog_run")
    text = HEAD + "".join(f"{i},sac,{name},{i},avg_return,0,{i}\n" for i, name in enumerate(names))
    rows = on_environments(read_long_format(write(tmp_path / "a.csv", text)), ["Ant-v4", "HopperBulletEnv-v0"])
    assert [one.env for one in rows["sac (a.csv)"]] == ["Ant-v4"] * 2 + ["HopperBulletEnv-v0"] * 2
    assert np.concatenate([one.means for one in rows["sac (a.csv)"]]).tolist() == [0, 1, 2, 3]
