"""Environments beyond the paper's: MuJoCo for real, a user's own, and life without PyBullet."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mepg
from tests.run.processes import run_mepg

ROOT = Path(__file__).parent.parent
TINY = ["--set", "hidden=16,16", "--set", "batch_size=16", "--set", "warmup=50", "--eval-episodes", "1"]


def test_mujoco(tmp_path):
    """Hopper-v5 through a whole run, then from Python."""
    pytest.importorskip("mujoco")
    argv = ["train", "me-sac", "--env", "Hopper-v5", "--steps", "200", "--eval-every", "100", "--out", "run", *TINY]
    done = run_mepg(*argv, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["steps"] == 200
    assert result["final_return"] > 0, "a hopper is paid for standing"
    model = mepg.load(tmp_path / "run", env="Hopper-v5")
    action, _ = model.predict(np.zeros(11))
    assert model.action_space.contains(action)
    model.learn(20)


def test_without_mujoco_it_says_what_to_install(tmp_path):
    done = run_mepg("train", "me-sac", "--env", "Hopper-v5", cwd=tmp_path, hide=["mujoco"])
    assert done.returncode == 2
    assert done.stderr.strip() == "mepg: Hopper-v5 needs MuJoCo, which is not installed: pip install 'mepg[mujoco]'"


def test_without_pybullet_everything_else_works(tmp_path):
    hide = ["pybullet", "pybullet_envs_gymnasium", "pybullet_data"]
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "100", "--eval-every", "50", "--out", "run", *TINY]
    look = [["list"], ["params"], ["show", "me-sac"], ["eval", "run", "--episodes", "1"], ["report", "run"]]
    done = run_mepg(*argv, cwd=tmp_path, hide=hide, then=[*look, ["plot", "run"]])
    assert done.returncode == 0, done.stderr
    way_out = "PyBullet, which is not installed: pip install 'mepg[bullet]'; or take a MuJoCo task such as Hopper-v5 "
    way_out += "(pip install 'mepg[mujoco]'), or one of Gymnasium's own, Pendulum-v1"
    assert f"These need {way_out}." in done.stdout
    done = run_mepg("train", "me-sac", "--env", "HopperBulletEnv-v0", cwd=tmp_path, hide=hide)
    assert done.returncode == 2
    assert done.stderr.strip() == f"mepg: HopperBulletEnv-v0 needs {way_out}"
    assert "Traceback" not in done.stderr


def test_one_environment_can_be_drawn_when_another_is_gone():
    """PyBullet's camera asks the process's first client, even for the second."""
    pytest.importorskip("pybullet")
    code = """
from mepg.envs.env import Env
first, second = Env("ReacherBulletEnv-v0"), Env("ReacherBulletEnv-v0", "rgb_array")
second.reset(0)
before = second.picture()
first.close()
assert (second.picture() == before).all()
assert before.std() > 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_worked_example_of_the_docs(tmp_path):
    """docs/own-environment.md: its module, and every command that it prints."""
    text = (ROOT / "docs" / "own-environment.md").read_text()
    (module,) = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL)
    (tmp_path / module[0]).write_text(module[1])
    commands = re.findall(r"^mepg .*$", text, re.MULTILINE)
    assert len(commands) >= 2
    briefly = {"--steps 3000 --eval-every 1000": "--steps 540 --eval-every 270 --set hidden=16,16 --eval-episodes 2"}
    for long, short in briefly.items():
        assert long in text
        commands = [command.replace(long, short) for command in commands]
    first, *rest = ([*command.partition("#")[0].split()[1:]] for command in commands)
    done = run_mepg(*first, cwd=tmp_path, then=rest)
    assert done.returncode == 0, (commands, done.stderr)
    (python,) = re.findall(r"```python\nimport (.*?)```", text, re.DOTALL)
    assert "learn(600)" in python
    python = python.replace("learn(600)", "learn(320)")
    done = subprocess.run([sys.executable, "-c", "import " + python], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
