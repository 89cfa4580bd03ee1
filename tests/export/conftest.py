"""Each test in a folder of its own, and runs for all of them."""

import pytest

from mepg.cli import main
from tests.export.policies import TINY
from tests.run import stubs  # noqa: F401  (registers environments)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Of each kind of policy, on an environment whose actions are not in [-1, 1]."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in {
        "me-sac": ["--normalize-obs"],
        "sunrise": [],
        "ace": [],
        "ace-flat": ["--set", "precision=mixed"],
    }.items():
        argv = ["train", name, "--env", "StubScaled-v0", "--steps", "60", "--out", str(folder / name), *TINY, *more]
        assert main(argv) == 0
    return folder
