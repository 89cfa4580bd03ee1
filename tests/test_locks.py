"""Two lock files: what `make train` installs, and what `make test` adds."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def locked(name):
    """Each package's version and hashes."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    return {re.match(r"[\w.-]+", entry)[0]: entry for entry in entries}


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
    for name in ("ray", "onnx", "onnxruntime", "optuna", "wandb", "mujoco", "mkdocs", "pytest", "mypy", "playwright"):
        assert name not in train
