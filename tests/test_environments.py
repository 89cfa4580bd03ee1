"""Environments beyond the paper's: MuJoCo for real, a user's own, and life without PyBullet."""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

import mepg
from mepg.envs.env import Env
from mepg.envs.simulators import GYMNASIUM_TASKS, MUJOCO_TASKS, how_to_get_pybullet
from mepg.paper.tasks import PAPER_TASKS
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


WITHOUT = ["pybullet", "pybullet_envs_gymnasium", "pybullet_data"]


def test_without_pybullet_everything_else_works(tmp_path):
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "100", "--eval-every", "50", "--out", "run", *TINY]
    look = [["list"], ["params"], ["show", "me-sac"], ["eval", "run", "--episodes", "1"], ["report", "run"]]
    done = run_mepg(*argv, cwd=tmp_path, hide=WITHOUT, then=[*look, ["plot", "run"]])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("hidden", "offered", "next_one"),
    [([], PAPER_TASKS, "HopperBulletEnv-v0"), (WITHOUT, MUJOCO_TASKS, "Hopper-v5"),
     ([*WITHOUT, "mujoco"], GYMNASIUM_TASKS, "Pendulum-v1")],
)  # fmt: skip
def test_only_what_is_there_is_offered(tmp_path, hidden, offered, next_one):
    pytest.importorskip("mujoco")
    if not hidden:
        pytest.importorskip("pybullet")
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "60", "--eval-every", "60", "--out", "run", *TINY]
    done = run_mepg(*argv, cwd=tmp_path, hide=hidden, then=[["list"], ["list", "--json"]])
    assert f"train me-ddpg --env {next_one}\n" in done.stdout
    *_, data = done.stdout.splitlines()
    assert list(json.loads(data)["environments"]) == list(offered)
    named = re.findall(r"^  ([\w-]+-v\d+) ", done.stdout, re.MULTILINE)
    assert named == list(offered)
    for paper in PAPER_TASKS:
        assert (paper in done.stdout) == (not hidden)
    if hidden:
        (line,) = re.findall(r"^Those of the paper need (.*)\.$", done.stdout, re.MULTILINE)
        failed = run_mepg("train", "me-sac", "--env", "HopperBulletEnv-v0", cwd=tmp_path, hide=hidden)
        assert (failed.returncode, failed.stderr.strip()) == (2, f"mepg: HopperBulletEnv-v0 needs {line}")
        assert ("pip install 'mepg[mujoco]'" in line) == ("mujoco" in hidden), "what is there is not to be installed"


@pytest.mark.parametrize("tasks", [MUJOCO_TASKS, GYMNASIUM_TASKS])
def test_sizes_of_what_is_offered(tasks):
    if tasks is MUJOCO_TASKS:
        pytest.importorskip("mujoco")
    for name, sizes in tasks.items():
        env = Env(name)
        assert env.sizes == sizes, name
        env.close()


PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14)]


@pytest.mark.parametrize("machine", [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")])
@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_said_about_pybullet_is_what_the_lock_has(monkeypatch, machine, python):
    """The package, its fork, or that there is none."""
    monkeypatch.setattr(sys, "version_info", (*python, 0, "final", 0))
    monkeypatch.setattr(sys, "platform", machine[0])
    monkeypatch.setattr(platform, "machine", lambda: machine[1])
    there = {"python_full_version": f"{python[0]}.{python[1]}.0", "sys_platform": machine[0]}
    there["platform_machine"] = machine[1]
    lines = re.findall(r"^pybullet\S*==.*(?= \\$)", (ROOT / "requirements-train.lock").read_text(), re.MULTILINE)
    wanted = {one.name for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate(there)}
    said = how_to_get_pybullet()
    assert ("pip install 'mepg[bullet]'" in said) == ("pybullet" in wanted)
    assert ("pip install pybullet-arm64, then" in said) == ("pybullet-arm64" in wanted)
    assert ("has no package for Python" in said) == (wanted == set())


def test_pendulum_is_filmed_without_a_screen(tmp_path, monkeypatch):
    """What `make train` does where there is no PyBullet, with fewer steps."""
    pytest.importorskip("pygame")
    for screen in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(screen, raising=False)
    argv = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "60", "--eval-every", "60", "--out", "run", *TINY]
    film = ["eval", "run", "--episodes", "1", "--video", "film.gif"]
    done = run_mepg(*argv, cwd=tmp_path, hide=WITHOUT, then=[film])
    assert (done.returncode, done.stderr) == (0, "")
    with Image.open(tmp_path / "film.gif") as pictures:
        assert pictures.n_frames > 50
        assert np.asarray(pictures.convert("RGB")).std() > 0


def test_one_environment_can_be_drawn_when_another_is_gone():
    """PyBullet's camera asks the process's first client, even for the second."""
    pytest.importorskip("pybullet")
    code = """
from mepg.envs.env import Env
first, second = Env("ReacherBulletEnv-v0"), Env("ReacherBulletEnv-v0", "rgb_array")
second.reset(0)
before = second.render()
first.close()
assert (second.render() == before).all()
assert before.std() > 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_worked_example_of_the_docs(tmp_path):
    """docs/own-environment.md: its module, and every command that it prints."""
    text = (ROOT / "docs" / "own-environment.md").read_text()
    for name, module in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(module)
    commands = re.findall(r"^mepg .*$", text, re.MULTILINE)
    assert len(commands) >= 2
    briefly = {"--steps 3000 --eval-every 1000": "--steps 540 --eval-every 270 --set hidden=16,16 --eval-episodes 2"}
    for long, short in briefly.items():
        assert long in text
        commands = [command.replace(long, short) for command in commands]
    first, *rest = ([*command.partition("#")[0].split()[1:]] for command in commands)
    done = run_mepg(*first, cwd=tmp_path, then=rest)
    assert done.returncode == 0, (commands, done.stderr)
    blocks = re.findall(r"```python\n(import .*?)```", text, re.DOTALL)
    briefly = {
        "learn(600)": "learn(320)",
        "learn(3_000)": "learn(20)",
        "learn(60_000,": "learn(20,",
        "range(100)": "range(2)",
        "range(3)": "range(1)",
    }
    for long, short in briefly.items():
        assert any(long in block for block in blocks)
        blocks = [block.replace(long, short) for block in blocks]
    alone = "\n".join(f"exec({block!r}, {{'__name__': '__main__'}})" for block in blocks)
    done = subprocess.run([sys.executable, "-c", alone], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_robot_with_a_goal(tmp_path):
    """Gymnasium-Robotics' FetchReach: a Dict, and a policy that needs no achieved_goal."""
    pytest.importorskip("gymnasium_robotics", reason="pip install gymnasium-robotics 'mujoco<4'")
    try:
        gymnasium.make("FetchReach-v4").close()
    except AssertionError:  # its version 1.4.2 does not know MuJoCo 4
        pytest.skip("pip install gymnasium-robotics 'mujoco<4'")
    fetch = ["--env", "gymnasium_robotics:FetchReach-v4"]
    briefly = [
        "--steps",
        "120",
        "--set",
        "warmup=100",
        "--eval-every",
        "60",
        "--eval-episodes",
        "1",
        "--set",
        "hidden=16,16",
    ]
    seen = ["--actor-obs", "observation,desired_goal", "--normalize-obs"]
    commands = [["eval", "run", *fetch, "--episodes", "1"], ["export", "run", *fetch, "--c", "policy.h"]]
    done = run_mepg("train", "me-sac", *fetch, *briefly, *seen, "--out", "run", cwd=tmp_path, then=commands)
    assert done.returncode == 0, done.stderr
    header = (tmp_path / "policy.h").read_text()
    assert "#define POLICY_OBS_DESIRED_GOAL 0 /* desired_goal: 3 numbers */" in header
    assert "#define POLICY_OBS_OBSERVATION 3 /* observation: 10 numbers */" in header
