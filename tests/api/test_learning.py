"""`model.learn`: how many steps it takes, what it tells meanwhile, and where it stops."""

import copy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mepg
from tests.api.models import OBS, TINY, make
from tests.conftest import leaves_equal

ROOT = Path(__file__).parent.parent.parent


def test_n_steps_ahead():
    """In the middle of an episode a transition holds three rewards, and gamma^2 as `discount`; a copy goes on alike."""
    one, three = make().learn(45), make(n_steps=3).learn(45)
    assert three.spec == replace(one.spec, n_step=3)
    gamma, (_, _, reward, discount, next_obs, _) = one.gamma, three.replay_buffer.transition(10)
    singly = [one.replay_buffer.transition(10 + k) for k in range(3)]  # in the warm-up, where both act alike
    np.testing.assert_allclose(reward, sum(gamma**k * each.reward for k, each in enumerate(singly)), rtol=1e-6)
    np.testing.assert_allclose(discount, gamma**2)
    np.testing.assert_array_equal(next_obs, singly[2].next_obs)
    twin = copy.deepcopy(three)
    assert leaves_equal(three.learn(25)._learner.state, twin.learn(25)._learner.state)


def test_to_learn_twice_is_to_go_on():
    once, twice = make().learn(70), make().learn(45).learn(25)
    assert leaves_equal(once._learner.state, twice._learner.state)
    assert (once.num_timesteps, twice.num_timesteps) == (70, 25)
    thrice = make().learn(45).learn(25, reset_num_timesteps=False)
    assert thrice.num_timesteps == 70


def test_ctrl_c_waits_for_the_step_and_leaves_the_model_whole(tmp_path):
    """In a process of its own: the networks are given away while they are updated."""
    code = f"""
import signal, mepg, tests.run.stubs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
model = mepg.ME_SAC("MlpPolicy", "StubScaled-v0", **{TINY!r})
model.learn(40)

def tell(variables, _):
    if variables["self"].num_timesteps == 5:
        print("learning", flush=True)

for _ in range(3):
    try:
        model.learn(10_000_000, callback=tell)
    except KeyboardInterrupt:
        model.save({str(tmp_path / "kept")!r})
        print("saved", model.num_timesteps > 0, model.predict([0.0, 0.0, 0.0])[0].shape, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for _ in range(3):
        assert process.stdout.readline() == "learning\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "saved True (2,)\n"
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert mepg.ME_SAC.load(tmp_path / "kept").predict(OBS)[0].shape == (2,)


def test_to_end_before_the_first_update_is_said():
    with pytest.warns(UserWarning, match="nothing has been learned yet: the first 30 actions are random"):
        make().learn(20)


def test_infos_are_those_of_a_vec_env():
    ends = []

    def look(variables, _):
        if variables["dones"][0]:
            ends.append((variables["infos"][0], variables["new_obs"][0]))

    model = make().learn(60, callback=look)
    ((info, new_obs),) = ends  # an episode has 50 steps
    assert info["episode"]["l"] == 50
    rewards = model.replay_buffer.read(0, 50)[:, 5]
    assert info["episode"]["r"] == pytest.approx(rewards.sum(), rel=1e-4)
    np.testing.assert_array_equal(info["terminal_observation"], model.replay_buffer.read(49, 50)[0, 7:])
    np.testing.assert_array_equal(new_obs, model.replay_buffer.read(50, 51)[0, :3])
    assert info["TimeLimit.truncated"]


def test_a_progress_bar(capsys):
    make().learn(35, progress_bar=True)
    assert "learning" in capsys.readouterr().out


@pytest.mark.parametrize("steps", [-1, "100", 1.5, None, True, float("nan"), float("inf"), [100], np.array([3, 4])])
def test_so_many_steps_there_are_not(trained, steps):
    before = trained.num_timesteps
    with pytest.raises(mepg.UsageError, match="total_timesteps must be a whole number, at least 0, not") as error:
        trained.learn(steps)
    assert "\n" not in str(error.value)
    assert trained.num_timesteps == before


@pytest.mark.parametrize("steps", [1e2, np.int64(100), np.float32(100), 100])
def test_a_whole_number_is_one_however_it_is_written(steps):
    assert make().learn(steps).num_timesteps == 100


@pytest.mark.parametrize(
    ("argument", "value"), [("log_interval", 0), ("log_interval", "4"), ("log_interval", -1), ("log_interval", 0.5)]
)
def test_a_log_interval_is_a_number_of_episodes(trained, argument, value):
    with pytest.raises(mepg.UsageError, match=f"{argument} must be a whole number"):
        trained.learn(10, **{argument: value})
