"""Gymnasium's wrappers around an environment by its id: a run that is cut off ends with the same bits, or says so."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from mepg.run.session import Session
from mepg.training.config import Config, SessionOptions

pytestmark = pytest.mark.faults

BOUNDED = gymnasium.spaces.Box(-8, 8, (3,), np.float32)
REPEATABLE = {
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 20),
    "FlattenObservation, FrameStackObservation": lambda env: wrappers.FlattenObservation(
        wrappers.FrameStackObservation(env, 4)
    ),
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "RescaleAction": lambda env: wrappers.RescaleAction(env, np.float32(0), np.float32(5)),
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda obs: obs * 2.0, BOUNDED),
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 2),
    "TimeAwareObservation": wrappers.TimeAwareObservation,
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(env, 2),
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.3),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float16),
}
WITH_STATISTICS = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
}


def make(wrap, **kwargs):
    return wrap(wrappers.TimeLimit(PendulumEnv(**kwargs), 50))


def ids(group):
    return {name: f"Wrapped{index}{group}-v0" for index, name in enumerate(globals()[group])}


for group in ("REPEATABLE", "WITH_STATISTICS"):
    for name, env_id in ids(group).items():
        gymnasium.register(env_id, entry_point=partial(make, globals()[group][name]))


def train(env_id, folder, envs, cuts=()):
    """A run that is cut off at these steps, without a word; gives what was noted."""
    settings = ["warmup=60", "hidden=8,8", "batch_size=8"]
    config = Config.make("me-sac", settings, env=env_id, steps=240, eval_every=120, eval_episodes=1, envs=envs)
    notes = []
    for cut in (*cuts, None):
        with Session(config, folder, SessionOptions(checkpoint_every=36)) as session:
            for record in session:
                if cut is not None and record.step >= cut:
                    break
            notes += session.notes
    return " ".join(notes)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("name", REPEATABLE)
def test_cut_off_and_resumed(name, envs, tmp_path):
    env_id = ids("REPEATABLE")[name]
    train(env_id, tmp_path / "whole", envs)
    notes = train(env_id, tmp_path / "cut", envs, (81, 147, 201))
    assert "resumed at step 144" in notes
    assert "does not repeat an episode" not in notes
    for file in ("policy.safetensors", "best.safetensors", "evaluations.npz"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_statistics_that_are_not_saved_are_noted(name, tmp_path):
    notes = train(ids("WITH_STATISTICS")[name], tmp_path / "cut", 1, (81,))
    assert f"is wrapped in {name}" in notes
    assert "does not repeat an episode from its seed" in notes
