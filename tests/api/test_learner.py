"""A model that learns in one thread can be asked, saved and copied from others, and from its own callbacks."""

import copy
import io
import threading

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.api.files import read_archive
from tests.api.models import OBS, make
from tests.conftest import leaves_equal
from tests.run.stubs import Box

STEPS = 1_500


class Learning:
    """`learn` in a thread of its own; what goes wrong there is raised here."""

    def __init__(self, model, steps=STEPS, **arguments):
        self._error = None
        self._thread = threading.Thread(target=self._learn, args=(model, steps), kwargs=arguments)

    def _learn(self, model, steps, **arguments):
        try:
            model.learn(steps, **arguments)
        except BaseException as error:
            self._error = error

    def __enter__(self):
        self._thread.start()
        return self

    @property
    def goes_on(self):
        return self._thread.is_alive()

    def __exit__(self, *_):
        self._thread.join()
        if self._error is not None:
            raise self._error


def ask(model, action):
    """Everything that reads a model's state."""
    yield lambda: model.predict(OBS)
    yield lambda: model.predict(np.tile(OBS, (5, 1)), deterministic=True)
    yield lambda: model.q_posterior(OBS, action)
    yield lambda: model.q_covariance(OBS, action)
    yield lambda: model.q_samples(OBS, action, n=3)
    yield lambda: model.get_parameters()
    yield lambda: model.save(io.BytesIO())
    yield lambda: model.save_replay_buffer(io.BytesIO())
    yield lambda: model.ep_info_buffer


def test_a_model_answers_while_it_learns():
    model = make()
    model.learn(40)
    action, _ = model.predict(OBS)
    for question in ask(model, action):
        question()  # compiled before, so that there is time for many
    asked = 0
    with Learning(model) as learning:
        while learning.goes_on:
            for question in ask(model, action):
                question()
                asked += 1
    assert asked > 30


def test_it_learns_the_same_while_it_is_asked():
    alone, asked = make().learn(400), make()
    with Learning(asked, 400) as learning:
        while learning.goes_on:
            asked.predict(OBS)
            asked.save(io.BytesIO())
    assert leaves_equal(asked._learner.state, alone._learner.state)


def test_what_is_saved_meanwhile_is_of_one_step():
    """A file's counter is that of its networks: as a run has them that stops there."""
    model, files = make(), []
    with Learning(model, 400) as learning:
        while learning.goes_on:
            files.append(io.BytesIO())
            model.save(files[-1])
    again, states = make(), {}
    again.learn(
        400, callback=lambda variables, _: states.update({again._learner.training.step: again.get_parameters()})
    )
    found = [read_archive(file) for file in files]
    steps = [about["steps"] for about, _ in found]
    assert len({step for step in steps if step > 30}) > 3, "after the warm-up each has other networks"
    for (_, arrays), step in zip(found, steps, strict=True):
        if step:
            w = states[step]["actor"]["params"]["0"]["w"]
            np.testing.assert_array_equal(arrays["agent.actor.params.0.w"], w)


class Slow(Box):
    """Waits in its step until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.inside, self.go_on = threading.Event(), threading.Event()

    def step(self, action):
        self.inside.set()
        assert self.go_on.wait(60)
        return super().step(action)


def test_an_environment_that_takes_its_time_holds_nobody_up():
    env = Slow()
    model = make(env=env)
    with Learning(model, 40):
        env.inside.wait()
        model.predict(OBS)
        model.save(io.BytesIO())
        env.go_on.set()


def test_an_environment_may_ask_the_model():
    class SelfPlay(Box):
        model = None

        def step(self, action):
            opponent = self.model.predict(OBS)[0]
            thread = threading.Thread(target=self.model.predict, args=(OBS,))
            thread.start()
            thread.join()
            return super().step((action + opponent) / 2)

    env = SelfPlay()
    env.model = make(env=env)
    env.model.learn(40)


def test_a_second_learn_is_refused_and_the_first_goes_on():
    env = Slow()
    model = make(env=env)
    with Learning(model, 40) as learning:
        env.inside.wait()
        for _ in range(20):
            with pytest.raises(mepg.UsageError, match="learning already, in another thread: wait for its end") as error:
                model.learn(10)
            assert "\n" not in str(error.value)
        with pytest.raises(mepg.UsageError, match="learning already, in another thread"):
            model.set_env(Box())
        with pytest.raises(mepg.UsageError, match="another thread is learning with this model: save it, or copy it in"):
            copy.deepcopy(model)
        with pytest.raises(mepg.UsageError, match="its environments are in use; make others to evaluate in"):
            model.get_env().reset()
        assert learning.goes_on
        env.go_on.set()
    assert model.num_timesteps == 40
    model.learn(10)


def test_many_at_once_and_only_one_learns():
    model, refused = make(), []
    start = threading.Barrier(8)

    def try_it():
        start.wait()
        try:
            model.learn(200)
        except mepg.UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert model._learner.training.step == 200


def test_a_callback_may_do_all_but_learn(tmp_path):
    model, other, said = make(), gymnasium.make("StubScaled-v0"), []

    def callback(variables, _):
        if model.num_timesteps % 20 == 0:
            for question in ask(model, model.predict(OBS)[0]):
                question()
            obs, _ = other.reset(seed=0)
            other.step(model.predict(obs, deterministic=True)[0])
            copied = copy.deepcopy(model)
            assert copied.num_timesteps == model.num_timesteps
            with pytest.raises(mepg.UsageError) as error:
                model.learn(1)
            said.append(str(error.value))

    model.learn(60, callback=callback)
    assert len(said) == 3
    assert said[0].startswith("this model is learning already, in the call that this callback is part of")
    assert leaves_equal(model._learner.state, make().learn(60)._learner.state), "and learns just the same"


def test_a_learn_that_fails_can_be_followed_by_another():
    def stop(variables, _):
        raise RuntimeError("not today")

    model = make()
    with pytest.raises(RuntimeError, match="not today"):
        model.learn(10, callback=stop)
    model.learn(40)
