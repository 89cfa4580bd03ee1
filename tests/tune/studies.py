"""Studies whose runs are not carried out."""

from mepg.algos import algorithms
from mepg.scheduler.schedule import run_jobs
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.tune.objective import Objective
from mepg.tune.space import parse_space
from mepg.tune.study import Study
from tests.conftest import SPACES

ME_SAC = algorithms()["me-sac"].spec


class Quick:
    """An engine whose runs only write what they measure: an evaluation at every poll."""

    def __init__(self, returns, fail=lambda config: False):
        self.returns, self.fail, self.launched = returns, fail, []

    def capacity(self):
        return 2

    def launch(self, job, log):
        self.launched.append(job)
        Folder(job.folder).claim(job.config, SPACES).close()
        return QuickRun(self, job)


class QuickRun:
    def __init__(self, engine, job):
        self.engine, self.job, self.stopped, self.seen = engine, job, False, {}

    def poll(self):
        if self.stopped:
            return 143
        if self.engine.fail(self.job.config):
            return 1
        step = 100 * (len(self.seen) + 1)
        self.seen[step] = [Episode(self.engine.returns(self.job.config, step), 10)]
        Folder(self.job.folder).write_evaluations(self.job.config, self.seen)
        if step < self.job.config.steps:
            return None
        Folder(self.job.folder).finish(self.job.config, {"final_return": 0.0})
        return 0

    def stop(self):
        self.stopped = True


def objective(**changes):
    about = {"settings": ("warmup=10",), "space": parse_space(ME_SAC, ["dropout.p=0.01:0.5"]), "seeds": 2, **changes}
    run = {"algorithm": "me-sac", "env": "Pendulum-v1", "steps": 800, "eval_every": 100, "eval_episodes": 1}
    run |= {name: about.pop(name) for name in changes if name in run}
    return Objective(run=Config.make(settings=about["settings"], **run), **about)


def tune(folder, engine, trials, **changes):
    folder.mkdir(exist_ok=True)
    finished = []
    study = Study(objective(**changes), folder, trials, finished.append)
    for status in run_jobs(study.jobs(), engine, folder / "logs", lambda: False, study.has_ended):
        study.update(status.failures)
    study.report()
    return study, finished


def rising_to(config, step):
    """The more is dropped, the lower it ends; seeds differ by 2."""
    return 100 * (1 - config.spec.dropout.p) * step / config.steps + 2 * config.seed
