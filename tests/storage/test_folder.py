"""A run's folder."""

import pytest

from mepg.errors import UsageError
from mepg.storage import files
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from tests.conftest import SPACES


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 1}', '{"format": 99, "config": {}}', "\x00"])
def test_a_damaged_run_file_is_a_clear_error(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UsageError, match=r"run\.json|damaged"):
        Folder(tmp_path).config()


CONFIG = Config.make("me-sac", env="Pendulum-v1")


def test_a_folder_is_claimed_by_one_only(tmp_path):
    folder = Folder(tmp_path / "run")
    assert not folder.in_use()
    with folder.claim(CONFIG, SPACES):
        assert folder.in_use()
        with pytest.raises(UsageError, match="another process is training there"):
            folder.claim(CONFIG, SPACES)
        (tmp_path / "run" / ".lock").unlink()  # it looks like litter
        with pytest.raises(UsageError, match="another process is training there"):
            folder.claim(CONFIG, SPACES)
    assert not folder.in_use()
    folder.claim(CONFIG, SPACES).close()


def test_who_only_looks_is_in_nobodys_way(tmp_path, monkeypatch):
    folder = Folder(tmp_path)
    folder.claim(CONFIG, SPACES).close()
    looking = files.acquire(folder.config_file.open(), shared=True)  # what `in_use` does for a moment
    assert not folder.in_use()
    monkeypatch.setattr(files.time, "sleep", lambda _: looking.close())
    with folder.claim(CONFIG, SPACES):
        assert folder.in_use()
    assert not folder.in_use()


def test_only_this_very_run_may_go_on_in_it(tmp_path):
    folder = Folder(tmp_path / "run")
    folder.require_same_config(CONFIG)
    folder.claim(CONFIG, SPACES).close()
    folder.require_same_config(CONFIG)
    with pytest.raises(
        UsageError, match=r"holds another run \(spec\.discount=0\.99 there, 0\.9 here, seed=0 there, 3 "
    ):
        folder.require_same_config(Config.make("me-sac", ["discount=0.9"], env="Pendulum-v1", seed=3))
    folder.config_file.rename(tmp_path / "run" / "thesis.txt")
    with pytest.raises(UsageError, match="holds other files"):
        folder.require_same_config(CONFIG)


def test_a_result_is_this_runs_and_seals_what_was_measured(tmp_path):
    folder = Folder(tmp_path)
    folder.claim(CONFIG, SPACES).close()
    assert folder.result(CONFIG) is None
    evaluations = {100: [Episode(1.5, 10), Episode(2.5, 20)], 200: [Episode(3.0, 10), Episode(4.0, 10)]}
    folder.write_evaluations(CONFIG, evaluations)
    assert folder.evaluations(CONFIG) == evaluations
    folder.finish(CONFIG, {"final_return": 3.5})
    assert folder.summary_if_finished(CONFIG) == {"final_return": 3.5}
    other = Config.make("me-sac", env="Pendulum-v1", seed=1)
    with pytest.raises(UsageError, match="it is another run's"):
        folder.result(other)
    folder.write_evaluations(CONFIG, {100: evaluations[100]})  # since it was finished
    with pytest.raises(UsageError, match=r"evaluations\.npz does not match its checksum"):
        folder.evaluations(CONFIG)
