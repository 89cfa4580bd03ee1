"""Callbacks: plain functions, or objects as Stable-Baselines3 has them."""

import pytest

import mepg
from tests.api.models import make, states_equal
from tests.run.test_ownership import Scribbles, Tidy


class Counter:
    """A callback with Stable-Baselines3's method names, and nothing of Stable-Baselines3."""

    def __init__(self, stop=None):
        self.said, self.stop, self.steps = [], stop, []

    def init_callback(self, model):
        self.model = model

    def on_training_start(self, locals_, globals_):
        self.said.append("start")

    def on_step(self):
        self.steps.append(self.model.num_timesteps)
        return len(self.steps) != self.stop

    def on_training_end(self):
        self.said.append("end")


def test_callbacks_are_functions_or_objects():
    seen = []

    def function(variables, _):
        seen.append((variables["rewards"].shape, variables["dones"].tolist(), variables["self"].num_timesteps))

    first, second = Counter(), Counter(stop=12)
    model = make(learning_starts=8).learn(30, callback=[first, function, second])
    assert model.num_timesteps == 12, "one of them said stop"
    assert first.steps == second.steps == list(range(1, 13))
    assert first.said == ["start", "end"]
    assert seen[-1] == ((1,), [False], 12)
    with pytest.raises(mepg.UsageError, match="a callback is a function of"):
        model.learn(1, callback="loud")


def test_what_a_callback_gets_is_its_own():
    def scribble(variables, _):
        for name in "actions", "new_obs", "rewards":
            variables[name] *= 0.5
        for info in variables["infos"]:
            if "terminal_observation" in info:
                info["terminal_observation"][:] = 7
            info.clear()

    model = make(env=Scribbles()).learn(60, callback=scribble)
    assert states_equal(model, make(env=Tidy()).learn(60))
