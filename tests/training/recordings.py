"""Transitions of random play, as they stand in an .npz, and Minari's datasets of the same."""

import gymnasium
import numpy as np

from tests.envs import own  # noqa: F401


def entries(name, obs):
    """An observation's arrays by their column."""
    if isinstance(obs, dict):
        return {column: array for key in obs for column, array in entries(f"{name}.{key}", obs[key]).items()}
    if isinstance(obs, tuple):
        return {
            column: array for key, each in enumerate(obs) for column, array in entries(f"{name}.{key}", each).items()
        }
    return {name: obs}


def record(env, episodes=3, seed=0):
    """Columns of so many episodes."""
    env = gymnasium.make(env) if isinstance(env, str) else env
    env.action_space.seed(seed)
    rows = []
    for episode in range(episodes):
        obs, over = env.reset(seed=seed + episode)[0], False
        while not over:
            action = env.action_space.sample()
            row = {**entries("observations", obs), "actions": action}
            obs, row["rewards"], row["terminations"], row["truncations"], _ = env.step(action)
            rows.append({**row, **entries("next_observations", obs)})
            over = row["terminations"] or row["truncations"]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def collect(env, dataset_id, episodes=3, seed=0):
    """The same episodes as a dataset that Minari's own collector writes."""
    from minari import DataCollector

    spec = gymnasium.make(env).spec
    if not isinstance(spec.entry_point, str):  # as which it can be written down
        spec.entry_point = f"{spec.entry_point.__module__}:{spec.entry_point.__name__}"
    collector = DataCollector(gymnasium.make(spec))
    folders = [collector._tmp_dir]
    collector.action_space.seed(seed)
    for episode in range(episodes):
        collector.reset(seed=seed + episode)
        over = False
        while not over:
            *_, terminated, truncated, _ = collector.step(collector.action_space.sample())
            over = terminated or truncated
    about = {"code_permalink": "-", "author": "-", "author_email": "-", "description": "-", "eval_env": spec}
    collector.create_dataset(dataset_id, algorithm_name="random", **about)
    folders.append(collector._tmp_dir)
    collector.close()
    for folder in folders:
        folder.cleanup()  # it leaves that to the garbage collector, which warns
