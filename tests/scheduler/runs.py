"""Small runs for an engine, and someone who looks on."""

import os
import subprocess

from mepg.scheduler.jobs import Job
from mepg.scheduler.schedule import run_jobs
from mepg.training.config import Config
from tests.conftest import HOPPER

SMALL = ["hidden=16,16", "batch_size=16", "warmup=50"]


def job(folder, env=HOPPER, steps=1200, seed=0, algorithm="me-ddpg"):
    config = Config.make(algorithm, SMALL, env=env, steps=steps, eval_every=200, eval_episodes=1, seed=seed)
    return Job(config, folder)


def carry_out(jobs, engine, logs, looking, should_stop):
    """Run all jobs while `looking` looks on; gives those that failed."""
    failures = []
    for status in run_jobs(jobs, engine, logs, should_stop):
        looking.show(*status)
        failures = status.failures
    return failures


class Looking:
    """Remembers what it saw, and acts once all runs that go on have got somewhere."""

    def __init__(self, act=lambda running: None):
        self.act, self.seen, self.acted = act, [], False

    def show(self, running, finished, failures):
        self.seen.append((len(running), finished, len(failures)))
        saved = [any((job.folder / "checkpoints").glob("*.json")) for job in running]
        if not self.acted and saved and all(saved):
            self.act(running)
            self.acted = True


def workers():
    out = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "mepg.scheduler.worker"], capture_output=True, text=True
    )
    return [int(pid) for pid in out.stdout.split()]
