"""Two lock files: what `make train` installs, and what `make test` adds."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def locked(name):
    """Each package's version and hashes, without what says where it is needed; one version for all machines."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    found = {re.match(r"[\w.-]+", entry)[0]: re.sub(r" ;.*", " \\\\", entry) for entry in entries}
    assert len(found) == len(entries)
    return found


def test_make_test_adds_to_what_make_train_installs():
    train, everything = locked("requirements-train.lock"), locked("requirements.lock")
    assert train.items() < everything.items()
    assert all("--hash=sha256:" in entry for entry in everything.values())


def test_make_train_installs_what_training_and_filming_need_and_no_more():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["bullet"], *extras["link"]]
    train = locked("requirements-train.lock")
    for one in wanted:
        assert re.match(r"[\w-]+", one)[0].lower().replace("_", "-") in train, one
    for name in ("ray", "onnx", "onnxruntime", "optuna", "wandb", "mkdocs", "pytest", "mypy", "playwright"):
        assert name not in train


MACHINES = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize(("system", "machine"), MACHINES)
def test_where_there_is_no_pybullet_there_is_something_else_to_train_and_film(python, system, machine):
    """Exactly one of PyBullet, its fork, and MuJoCo with pygame, for each machine."""
    there = {"python_full_version": f"{python}.2", "python_version": python}
    there |= {"sys_platform": system, "platform_machine": machine, "platform_python_implementation": "CPython"}
    lines = re.findall(r"^\S+==.*(?= \\$)", (ROOT / "requirements-train.lock").read_text(), re.MULTILINE)
    wanted = [Requirement(line) for line in lines]
    names = {one.name for one in wanted if one.marker is None or one.marker.evaluate(there)}
    simulators = names & {"pybullet", "pybullet-arm64", "mujoco"}
    assert len(simulators) == 1
    assert ("pybullet-envs-gymnasium" in names) == (simulators != {"mujoco"})
    assert ("pygame-ce" in names) == (simulators == {"mujoco"})
