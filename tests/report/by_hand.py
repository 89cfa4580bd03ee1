"""Run folders with the package's own writers and made-up numbers: no training, and no result of anything."""

from html.parser import HTMLParser

import numpy as np

from mepg.run.inspection import LEVELS, Inspection, ResidualVariances, Trace
from mepg.run.session import summary
from mepg.storage.checkpoint import TimeSpent
from mepg.storage.files import checksum, read_sealed, write_sealed
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.training.evaluate import Episode
from tests.conftest import SPACES


def write_run(folder, config, *, level=1000.0, finished=True, share=1.0, seconds=600.0, eval_seconds=120.0, rows=None):
    """A run that rises to `level`; `share` of its evaluations are there. `rows` are those of its metrics.csv."""
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
    files.claim(config, SPACES).close()
    files.write_evaluations(config, evaluations)
    if rows is not None:
        files.metrics_file.write_text("\n".join(["time/total_timesteps,time/fps,time/processor_seconds", *rows, ""]))
    if finished:
        files.finish(config, summary(evaluations, TimeSpent(seconds, eval_seconds, seconds - eval_seconds)))
    return folder


def alter(path, **changes):
    """Change what a sealed file says, and seal it again, as someone would who means harm."""
    data = {**read_sealed(path), **changes}
    write_sealed(path, {name: value for name, value in data.items() if value is not ...})


def write_arrays(folder, **arrays):
    """Other evaluations, with everything around them as if they were the run's own."""
    files = Folder(folder)
    whose = np.frombuffer(bytes.fromhex(files.config().fingerprint), np.uint8)
    np.savez(files.evaluations_file, config=whose, **arrays)
    if files.result_file.exists():
        seals = {**read_sealed(files.result_file)["files"], "evaluations.npz": checksum(files.evaluations_file)}
        alter(files.result_file, files=seals)


def make(algorithm="me-sac", env="Pendulum-v1", seed=0, steps=4000, eval_every=1000, eval_episodes=2, settings=()):
    return Config.make(
        algorithm, settings, env=env, seed=seed, steps=steps, eval_every=eval_every, eval_episodes=eval_episodes
    )


def make_inspection(**changes):
    trace = Trace([1.0, 2.0], [0.5, 0.5], [1.0, 3.0])
    found = Inspection(
        run="mine", algorithm="me-sac", env="Pendulum-v1", seed=0, step=10, episodes=1, steps=2, left_out=3, bias=-0.5,
        error=0.7, spread=0.5, coverage=[0.5] * len(LEVELS), first=trace, some=trace,
        noise=ResidualVariances([10], [2.0], [5.0]), followed=2.0, beta=None,
    )  # fmt: skip
    return found._replace(**changes)


def cell_of(table, label, env):
    (row,) = [row for row in table.rows if row.label == label]
    (cell,) = [cell for cell in row.cells if cell.env == env]
    return cell


class Tags(HTMLParser):
    """Every tag, and the text in and around them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data
