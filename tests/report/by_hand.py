"""Run folders with the package's own writers and made-up numbers: no training, and no result of anything."""

import numpy as np

from mepg.run.checkpoint import Spent
from mepg.run.config import Config
from mepg.run.evaluate import Episode
from mepg.run.files import write_json
from mepg.run.folder import Folder, write_evaluations
from mepg.run.session import summary


def write_run(folder, config, *, level=1000.0, finished=True, share=1.0, seconds=600.0, eval_seconds=120.0):
    """A run that rises to `level`; `share` of its evaluations are there."""
    rng = np.random.default_rng([config.seed, len(config.algorithm), len(config.env)])
    count = max(1, round(share * -(-config.steps // config.eval_every)))
    steps = [min((i + 1) * config.eval_every, config.steps) for i in range(count)]
    rise = 1 - np.exp(-3 * np.array(steps) / config.steps)
    means = level * rise * (1 + 0.08 * rng.standard_normal()) + 0.05 * abs(level) * rng.standard_normal(count)
    evaluations = {
        step: [Episode(float(total), 1000) for total in rng.normal(mean, 0.03 * abs(level), config.eval_episodes)]
        for step, mean in zip(steps, means, strict=True)
    }
    files = Folder(folder)
    files.claim(config).close()
    write_evaluations(files.evaluations_file, evaluations)
    if finished:
        write_json(files.result_file, summary(evaluations, Spent(seconds, eval_seconds)))
    return folder


def make(algorithm="me-sac", env="Pendulum-v1", seed=0, steps=4000, eval_every=1000, eval_episodes=2, settings=()):
    return Config.make(
        algorithm, settings, env=env, seed=seed, steps=steps, eval_every=eval_every, eval_episodes=eval_episodes
    )
