"""Studies whose runs are not carried out."""

from mepg.algos import algorithms
from mepg.scheduler.schedule import carry_out
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from mepg.tune.space import parse_space
from mepg.tune.study import Question, Study
from tests.conftest import SPACES

ME_SAC = algorithms()["me-sac"].spec


class Quick:
    """An engine whose runs only write what they measure: an evaluation at every look."""

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


def question(**changes):
    asked = {"settings": ("warmup=10",), "space": parse_space(ME_SAC, ["dropout.p=0.01:0.5"]), "seeds": 2, **changes}
    run = {"algorithm": "me-sac", "env": "Pendulum-v1", "steps": 800, "eval_every": 100, "eval_episodes": 1}
    run |= {name: asked.pop(name) for name in changes if name in run}
    return Question(run=Config.make(settings=asked["settings"], **run), **asked)


def tune(folder, engine, trials, **changes):
    folder.mkdir(exist_ok=True)
    outcomes = []
    asked = Study(question(**changes), folder, trials, outcomes.append)
    carry_out(asked.jobs(), engine, folder / "logs", asked, lambda: False, asked.unwanted)
    asked.look()
    return asked, outcomes


def rising_to(config, step):
    """The more is dropped, the lower it ends; seeds differ by 2."""
    return 100 * (1 - config.spec.dropout.p) * step / config.steps + 2 * config.seed
