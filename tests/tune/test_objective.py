"""The score of a trial."""

from mepg.scheduler.jobs import Job
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.tune.objective import intermediate_scores
from tests.conftest import SPACES


def test_scores_count_only_what_all_runs_have_reached(tmp_path):
    config = Config.make("me-sac", env="Pendulum-v1")
    jobs = [Job(config, tmp_path / name) for name in "ab"]
    for job, count in zip(jobs, (7, 6), strict=True):
        Folder(job.folder).claim(config, SPACES).close()
        evaluations = {step: [Episode(step, 1), Episode(step + 2, 1)] for step in range(count)}
        Folder(job.folder).write_evaluations(config, evaluations)
    assert intermediate_scores(jobs) == {0: 1.0, 1: 1.5, 2: 2.0, 3: 2.5, 4: 3.0, 5: 4.0}
    assert intermediate_scores([*jobs, Job(config, tmp_path / "c")]) == {}
