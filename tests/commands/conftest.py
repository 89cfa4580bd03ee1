"""Each test in a folder of its own, and a run for all of them."""

import pytest

from tests.commands.runs import TINY, train
from tests.run import stubs  # noqa: F401


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A short run that has ended."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert train("me-ddpg", "--env", "StubScaled-v0", "--steps", "60", "--out", str(folder), *TINY) == 0
    return folder
