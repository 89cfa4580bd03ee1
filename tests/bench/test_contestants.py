"""The race's data: nothing is asked for that does not exist."""

from pathlib import Path

import pytest

from mepg.algos import algorithms
from mepg.bench.contestants import CONTESTANTS, TASKS, ZOO
from mepg.bench.peers import PACKAGES
from mepg.settings import apply_settings


def test_the_thresholds_stay_as_they_were_fixed_before_the_first_race():
    assert {env: (task.threshold, task.eval_every) for env, task in TASKS.items()} == {
        "Pendulum-v1": (-200, 500),
        "HopperBulletEnv-v0": (1_500, 2_500),
        "AntBulletEnv-v0": (1_500, 2_500),
        "HalfCheetah-v5": (5_000, 2_500),
        "Hopper-v5": (2_000, 2_500),
        "Walker2d-v5": (2_000, 2_500),
    }


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_exists(name):
    contestant = CONTESTANTS[name]
    if contestant.library:
        assert contestant.library in PACKAGES
        assert set(ZOO[contestant.algorithm]) == set(TASKS)
    else:
        apply_settings(algorithms()[contestant.algorithm].spec, contestant.settings)


@pytest.mark.sb3
def test_the_zoo_publishes_these_settings():
    """Only how it calls an environment, a policy or a kind of noise is left out, and what is the library's default."""
    import rl_zoo3
    import yaml

    elsewhere = {"policy", "noise_type", "normalize", "env_wrapper"}
    defaults = {"ent_coef": "auto", "train_freq": 1, "gradient_steps": 1}
    for algorithm, by_task in ZOO.items():
        path = Path(rl_zoo3.__file__).parent / "hyperparams" / f"{algorithm}.yml"
        published = yaml.safe_load(path.read_text())
        for env, ours in by_task.items():
            theirs = {
                name: value for name, value in published[env.replace("-v5", "-v4")].items() if name not in elsewhere
            }
            if isinstance(theirs.get("policy_kwargs"), str):
                theirs["policy_kwargs"] = eval(theirs["policy_kwargs"], {"dict": dict})
            if not str(theirs.get("learning_rate", "")).startswith("lin_"):
                del theirs["n_timesteps"]  # as long as the race lasts
            differing = {name: value for name, value in theirs.items() if ours.get(name) != value}
            assert differing.items() <= defaults.items(), (algorithm, env)
            assert ours.keys() <= theirs.keys(), (algorithm, env)
