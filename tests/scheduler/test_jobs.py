"""A run that is wanted."""

import pytest

from mepg.errors import UsageError
from mepg.scheduler.jobs import Progress
from mepg.storage.folder import Folder
from tests.conftest import SPACES
from tests.scheduler.runs import job


def test_a_folder_with_another_run_is_refused(tmp_path):
    Folder(tmp_path / "a").claim(job(tmp_path / "a", seed=5).config, SPACES).close()
    with pytest.raises(UsageError, match="another run"):
        job(tmp_path / "a").finished()


def test_progress_is_whole_or_nothing(tmp_path):
    wanted = job(tmp_path)
    assert wanted.progress() == Progress(0, None)
    wanted.write_progress(Progress(120, -3.5))
    assert wanted.progress() == Progress(120, -3.5)
    assert [path.name for path in tmp_path.iterdir()] == [".progress"], "nothing is left beside it"
    for damage in ("", "[1", "[1]", '["x", null]', "7", "[1e999, null]", "[" * 100_000):
        wanted.progress_file.write_text(damage)
        assert wanted.progress() == Progress(0, None)


def test_what_cannot_be_said_is_no_reason_to_stop(tmp_path):
    job(tmp_path / "nowhere").write_progress(Progress(1, None))
    assert not (tmp_path / "nowhere").exists()


def test_it_is_finished_when_its_result_is_there(tmp_path):
    wanted = job(tmp_path / "a")
    assert not wanted.finished()
    Folder(wanted.folder).claim(wanted.config, SPACES).close()
    assert not wanted.finished()
    Folder(wanted.folder).finish(wanted.config, {"final_return": 1.0})
    assert wanted.finished()
