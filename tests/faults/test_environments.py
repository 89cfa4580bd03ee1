"""Environments that lie, break or hang: each is named, with the step, and mended it goes on as if nothing had been."""

import signal
import sys

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.cli import main
from mepg.envs.env import Env
from mepg.envs.vector import SerialEnvs, make_envs
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError
from mepg.run.inspection import steps_until_negligible
from mepg.training import evaluate
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.replay import Replay
from tests.faults import hostile
from tests.run.processes import assert_same_run, checkpoints, run
from tests.run.stubs import CountingEnv, make_loop

SAYS = {
    "nan observation": "Hostile-v0 returned an observation with nan at index 1",
    "infinite observation": "returned an observation with -inf at index 1",
    "observation too large": "an observation with 1e+300 at index 1, which is more than float32 holds: scale it down",
    "short observation": "returned an observation of shape (2,), not (3,)",
    "deep observation": "returned an observation of shape (1, 3), not (3,)",
    "single number": "returned an observation of shape (), not (3,)",
    "text observation": "returned a list as an observation, not real numbers",
    "no observation": "returned None as an observation, not real numbers",
    "objects": "returned object[3] as an observation, not real numbers",
    "complex observation": "returned complex64[3] as an observation, not real numbers",
    "ragged observation": "returned a list as an observation, not real numbers",
    "dict observation": "returned a dict as an observation, not real numbers",
    "nan reward": "returned a reward of nan",
    "infinite reward": "returned a reward of -inf",
    "reward too large": "returned a reward of 1e+300, which is more than float32 holds: scale it down",
    "text reward": "returned a str as a reward, not a real number",
    "no reward": "returned None as a reward, not a real number",
    "rewards": "returned float64[1] as a reward, not a real number",
    "complex reward": "returned a complex as a reward, not a real number",
    "four values": "Hostile-v0's step returned 4 values, not 5",
    "a list": "step returned a list, not 5 values",
    "nothing": "step returned None, not 5 values",
    "terminated none": "returned None as 'terminated', not true or false",
    "terminated array": "returned bool[2] as 'terminated', not true or false",
    "truncated text": "returned a str as 'truncated', not true or false",
    "terminated 2": "returned 2 as 'terminated', not true or false",
    "no info": "returned None as info, not a dict",
    "exception": "Hostile-v0's step raised RuntimeError: the simulator is [31mgone",
    "exit": "Hostile-v0's step raised SystemExit: 0",
    "panic": "Hostile-v0's step raised Panic: at the disco",
    "wordless": "Hostile-v0's step raised NoWords: (no message)",
}
TINY = ["--set", "hidden=8", "--set", "batch_size=8", "--eval-episodes", "1"]
# Nothing is learned, so nothing has to be compiled.
RANDOM = [*TINY, "--set", "warmup=1000", "--checkpoint-every", "30"]


def train(out, *more, settings=RANDOM):
    return main(["train", "me-ddpg", "--env", hostile.ID, "--out", str(out), *settings, *more])


def assert_one_line(err, *says):
    assert err.startswith("mepg: "), err
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    for text in says:
        assert text in err


def test_every_fault_is_expected_to_say_something():
    assert set(SAYS) == {*hostile.OBSERVATIONS, *hostile.STEPS, *hostile.RAISES} - set(hostile.HANGS)


@pytest.mark.parametrize("fault", SAYS)
def test_in_training_it_is_named_with_the_step(fault, monkeypatch):
    monkeypatch.setenv("HOSTILE", f"{fault}@train 70")
    with pytest.raises(RunFailure) as failure:
        list(make_loop(steps=120, warmup=1000, eval_every=500, env=Env(hostile.ID)))
    assert_one_line(f"mepg: {failure.value}\n", f"mepg: step 70: {hostile.ID}", SAYS[fault])


@pytest.mark.parametrize("fault", ["observation too large", "exit"])
def test_a_run_that_failed_has_its_checkpoints(fault, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTILE", f"{fault}@train 70")
    assert train(tmp_path / "a", "--steps", "120") == 1
    assert_one_line(capsys.readouterr().err, "mepg: step 70: ", SAYS[fault])
    assert checkpoints(tmp_path / "a") == {"000000030.json", "000000060.json"}


@pytest.mark.parametrize("fault", ["terminated array", "exit"])
def test_in_an_evaluation(fault, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTILE", f"{fault}@evaluation")
    assert train(tmp_path / "a", "--steps", "120", "--eval-every", "40") == 1
    assert_one_line(capsys.readouterr().err, "step 40: after 0 steps of an evaluation episode: ", SAYS[fault])
    monkeypatch.delenv("HOSTILE")
    assert train(tmp_path / "a", "--steps", "120", "--eval-every", "40") == 0
    monkeypatch.setenv("HOSTILE", f"{fault}@evaluation")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "a"), "--json"]) == 1
    assert_one_line(capsys.readouterr().err, "mepg: after 0 steps of an evaluation episode: ", SAYS[fault])


@pytest.mark.parametrize("fault", ["nan observation", "text reward", "no reward", "terminated none", "exception"])
def test_with_several_environments(fault, tmp_path, monkeypatch, capsys):
    """Gymnasium's own vector environments would take the text for a number, and None for NaN or false."""
    monkeypatch.setenv("HOSTILE", f"{fault}@train 30")
    assert train(tmp_path / "a", "--steps", "120", "--envs", "3", "--eval-every", "120") == 1
    assert_one_line(capsys.readouterr().err, "mepg: step 90: ", SAYS[fault])


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("nan observation", "returned an observation with nan"),
        ("short observation", "of shape (2,), not (3,)"),
        ("exception", "Hostile-v0's reset raised RuntimeError: the simulator is"),
        ("four values", "Hostile-v0's reset returned 4 values, not 2"),
        ("nothing", "reset returned None, not 2 values"),
    ],
)
def test_at_a_reset(fault, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTILE", f"{fault}@first reset")
    assert train(tmp_path / "a", "--steps", "120") == 1
    assert_one_line(capsys.readouterr().err, "mepg: first reset: ", says)
    assert not (tmp_path / "a").exists()
    monkeypatch.setenv("HOSTILE", f"{fault}@later reset")
    assert train(tmp_path / "a", "--steps", "120") == 1
    assert_one_line(capsys.readouterr().err, "mepg: step 0: ", says)


MENDED = [*TINY, "--set", "warmup=40", "--steps", "1020", "--eval-every", "510", "--checkpoint-every", "120"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of one environment, and one of three, in which nothing went wrong."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(folder / "1", settings=MENDED) == 0
    assert train(folder / "3", "--envs", "3", settings=MENDED) == 0
    return folder


@pytest.mark.parametrize(
    ("fault", "envs"),
    [
        ("nan observation@train 605", 1),
        ("no reward@evaluation", 3),
        pytest.param("exception@evaluation", 1, marks=pytest.mark.faults),
        pytest.param("exit@train 201", 3, marks=pytest.mark.faults),
    ],
)
def test_mended_it_ends_with_the_bits_of_a_run_that_never_failed(fault, envs, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTILE", fault)
    assert train(tmp_path / "a", "--envs", str(envs), settings=MENDED) == 1
    assert checkpoints(tmp_path / "a")
    monkeypatch.delenv("HOSTILE")
    capsys.readouterr()
    assert train(tmp_path / "a", "--envs", str(envs), settings=MENDED) == 0
    assert "resumed at step" in capsys.readouterr().out
    assert_same_run(whole / str(envs), tmp_path / "a")


def test_a_real_process_ends_with_1_and_one_line(tmp_path, monkeypatch):
    argv = [
        "-m",
        "mepg",
        "train",
        "me-ddpg",
        "--env",
        hostile.ID,
        "--out",
        str(tmp_path / "a"),
        "--steps",
        "120",
        *RANDOM,
    ]
    monkeypatch.setenv("HOSTILE", "exit@train 70")
    failed = run([sys.executable, *argv])
    assert failed.returncode == 1
    assert_one_line(failed.stderr, "step 70: ", SAYS["exit"])
    monkeypatch.delenv("HOSTILE")
    mended = run([sys.executable, *argv])
    assert mended.returncode == 0, mended.stderr
    assert "resumed at step 60" in mended.stdout


class Odd(gymnasium.Env):
    """Right, but not as most do it."""

    action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self, obs=(0.0, 0.0), reward=0.0, terminated=False, space=None):
        self.observation_space = space or gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.answer = obs, reward, terminated

    def reset(self, *, seed=None, options=None):
        return self.answer[0], {}

    def step(self, action):
        obs, reward, terminated = self.answer
        return obs, reward, terminated, False, {}


@pytest.mark.parametrize(
    "obs", [[5, -7], (1e6, -1e6), np.array([2.0, 3.0]), np.array([True, False]), np.array([1, 2], np.uint8)]
)
@pytest.mark.parametrize("reward", [1, True, np.float32(2), np.array(3)])
@pytest.mark.parametrize("terminated", [np.bool_(True), 1, 0.0, np.array(True)])
def test_what_is_common_and_harmless_is_taken(obs, reward, terminated):
    """Out of the bounds of its space, of another type, lists, and ends that are numbers."""
    env = Env(Odd(obs, reward, terminated))
    outcome = env.step(env.reset(0))
    np.testing.assert_array_equal(outcome.obs, np.array(obs, np.float32))
    assert outcome.obs.dtype == np.float32
    assert outcome.reward == float(reward)
    assert outcome.done == bool(terminated) == outcome.terminated


def test_an_array_that_the_environment_writes_into_again():
    shared = np.zeros(2, np.float32)
    env = Env(Odd(shared))
    first = env.reset(0)
    shared[:] = 7
    np.testing.assert_array_equal(first, [0, 0])
    np.testing.assert_array_equal(env.step(first).obs, [7, 7])


def test_bounds_that_change_are_those_of_the_beginning():
    inner = Odd()
    inner.action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)
    env = Env(inner)
    inner.action_space.low[:] = -100
    inner.action_space = gymnasium.spaces.Box(-50, 50, (2,), np.float32)
    np.testing.assert_array_equal(env.spaces.scale(np.array([-1.0, 0.5], np.float32)), [-2, 1])
    assert env.spaces.to_json()["action_bounds"] == {"low": [-2.0, -2.0], "high": [2.0, 2.0]}


def test_a_space_that_lies_is_found_out_before_anything_is_built():
    with pytest.raises(RunFailure, match=r"first reset: Odd returned an observation of shape \(2,\), not \(1000000,\)"):
        Env(Odd(space=gymnasium.spaces.Box(-1, 1, (10**6,), np.int8)))


def test_an_environment_that_ends_the_program_as_it_is_made(monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "Gone-v0", gymnasium.envs.registration.EnvSpec("Gone-v0", lambda: sys.exit(0))
    )
    with pytest.raises(UsageError, match="environment 'Gone-v0' cannot be made: SystemExit: 0"):
        Env("Gone-v0")


def test_an_environment_that_is_another_each_time(tmp_path, monkeypatch, capsys):
    made = []

    def another():
        made.append(len(made) + 2)
        space = gymnasium.spaces.Box(-1, 1, (made[-1],), np.float32)
        return Odd(np.zeros(made[-1]), space=space)

    monkeypatch.setitem(gymnasium.registry, "Another-v0", gymnasium.envs.registration.EnvSpec("Another-v0", another))
    for envs in ("1", "3"):
        argv = ["train", "me-ddpg", "--env", "Another-v0", "--steps", "30", "--eval-every", "30", "--envs", envs]
        assert main([*argv, "--out", str(tmp_path / "a"), *RANDOM]) == 2
        assert_one_line(
            capsys.readouterr().err, "is not the same each time that it is made: it had observations of size"
        )
        assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("what", "space", "says"),
    [
        ("observation_space", gymnasium.spaces.Box(-1, 1, (4,), np.float32), "observations of size 3, and"),
        ("action_space", gymnasium.spaces.Box(-2, 3, (2,), np.float32), "actions to [2.0, 2.0], and"),
    ],
)
def test_an_environment_that_changed_between_two_sessions(what, space, says, tmp_path, monkeypatch, capsys):
    """Not a damaged checkpoint, and no reason to begin anew: what is there stays."""
    monkeypatch.setenv("HOSTILE", "exception@train 70")
    assert train(tmp_path / "a", "--steps", "120") == 1
    capsys.readouterr()
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    monkeypatch.delenv("HOSTILE")
    with monkeypatch.context() as changed:
        changed.setattr(hostile.Hostile, what, space)
        changed.setitem(hostile.OBSERVATIONS, "", lambda obs: np.resize(obs, hostile.Hostile.observation_space.shape))
        assert train(tmp_path / "a", "--steps", "120") == 2
    assert_one_line(capsys.readouterr().err, "Hostile-v0 has changed since this run began: it had " + says)
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
    assert train(tmp_path / "a", "--steps", "120") == 0


@pytest.mark.parametrize("what", ["observation_space", "action_space"])
def test_an_environment_without_spaces(what):
    inner = Odd()
    setattr(type(inner), what, property(lambda self: hostile._raise(RuntimeError("later"))))
    try:
        with pytest.raises(UsageError, match="Odd has no usable observation_space and action_space: RuntimeError"):
            Env(inner)
    finally:
        delattr(Odd, what)
        Odd.action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)


def test_closing_is_done_once_and_hides_nothing():
    closed = []
    inner = Odd()
    inner.close = lambda: (closed.append(True), hostile._raise(RuntimeError("cannot")))
    env = Env(inner)
    env.close()
    env.close()
    assert closed == [True]


class Crooked(gymnasium.vector.VectorEnv):
    """A vector environment of the user's that returns what a test asks for."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    single_action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self, **answer):
        right = {
            "obs": np.zeros((2, 2)),
            "rewards": np.zeros(2),
            "ends": [False] * 2,
            "limits": [False] * 2,
            "infos": {},
        }
        self.answer = right | answer

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 2)), {}

    def step(self, actions):
        return tuple(self.answer.values())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"obs": None}, "Crooked returned something that has no entry for each of 2"),
        ({"obs": np.zeros((1, 2))}, "no entry for each of 2"),
        ({"rewards": 0.0}, "no entry for each of 2"),
        ({"rewards": ["1", "2"]}, "a str as a reward"),
        ({"ends": None}, "no entry for each of 2"),
        ({"ends": [None, None]}, "None as 'terminated'"),
        ({"infos": None}, "no entry for each of 2"),
        ({"obs": np.full((2, 2), np.nan)}, "an observation with nan"),
    ],
)
def test_a_vector_environment_of_the_users(answer, says):
    envs = make_envs(Crooked(**answer))
    with pytest.raises(RunFailure) as failure:
        envs.step(np.zeros((2, 2), np.float32))
    assert says in str(failure.value)


# Episodes that never end, or at once


def test_an_evaluation_does_not_wait_for_ever(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "MAX_EPISODE_STEPS", 200)
    says = f"it has not ended, and {hostile.ID} has no time limit: give it one with gymnasium.register("
    monkeypatch.setenv("HOSTILE", "no end@evaluation")
    assert train(tmp_path / "a", "--steps", "120", "--eval-every", "40") == 1
    assert_one_line(capsys.readouterr().err, "step 40: after 200 steps of an evaluation episode: ", says)
    monkeypatch.delenv("HOSTILE")
    assert train(tmp_path / "a", "--steps", "120", "--eval-every", "40") == 0
    capsys.readouterr()
    monkeypatch.setenv("HOSTILE", "no end@evaluation")
    assert main(["eval", str(tmp_path / "a"), "--json"]) == 1
    assert_one_line(capsys.readouterr().err, "after 200 steps of an evaluation episode: ", says)


def test_a_time_limit_is_believed_however_long_it_is(monkeypatch):
    monkeypatch.setattr(evaluate, "MAX_EPISODE_STEPS", 20)
    gymnasium.register("Long-v0", entry_point=Odd, max_episode_steps=60)
    try:
        assert evaluate.play(lambda obs: obs, Env("Long-v0"), 0).length == 60
    finally:
        del gymnasium.registry["Long-v0"]


@pytest.mark.parametrize("discount", [0.99999, 0.9999999, 1.0])
def test_an_inspection_does_not_wait_for_what_is_too_far_ahead(discount):
    ahead = steps_until_negligible(discount)
    assert ahead is None or ahead <= evaluate.MAX_EPISODE_STEPS


def test_a_training_episode_may_go_on_for_ever_and_is_resumed():
    """Its actions are kept as bytes, four for each number, however long it lasts."""
    loop = make_loop(steps=3000, warmup=5000, replay_size=100, eval_every=5000, env=CountingEnv(None))
    for record in loop:
        assert not record.episodes
    assert sum(map(len, loop._episode_actions)) == 4 * 3000
    snapshot = loop.snapshot()
    again = make_loop(steps=3000, warmup=5000, replay_size=100, eval_every=5000, env=CountingEnv(None))
    again.replay.restore(2900, loop.replay.read(2900, 3000))
    assert again.restore(snapshot)
    np.testing.assert_array_equal(again.snapshot().episode_actions[0], snapshot.episode_actions[0])
    np.testing.assert_array_equal(again.obs, loop.obs)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("envs", [1, 3])
def test_episodes_that_end_at_once(terminal, envs):
    class AtOnce(Odd):
        def step(self, action):
            return self.answer[0], 1.0, terminal, not terminal, {}

    loop = make_loop(steps=60, warmup=100, eval_every=600, envs=SerialEnvs([Env(AtOnce()) for _ in range(envs)]))
    episodes = [episode for record in loop for episode in record.episodes]
    assert episodes == [(1.0, 1)] * 60
    np.testing.assert_array_equal(loop.replay.read(0, 60)[:, 2 + 2 + 1], not terminal)
    snapshot = loop.snapshot()
    assert loop.restore(snapshot)
    assert evaluate.play(lambda obs: obs, Env(AtOnce()), 1) == (1.0, 1)


# Steps that hang


@pytest.mark.parametrize(
    "how", ["sleeps", *(pytest.param(how, marks=pytest.mark.faults) for how in ("keeps the interpreter", "is deaf"))]
)
def test_a_step_that_hangs_is_given_up(how, tmp_path, monkeypatch):
    argv = [sys.executable, "-m", "mepg", "train", "me-ddpg", "--env", hostile.ID, "--out", str(tmp_path / "a")]
    argv += ["--steps", "120", *RANDOM, "--step-timeout", "2.5"]
    monkeypatch.setenv("HOSTILE", f"{how}@train 70")
    failed = run(argv)
    late = "did not return within 2.5 s"
    if how == "sleeps":
        assert failed.returncode == 1
        assert_one_line(failed.stderr, f"step 70: {hostile.ID}'s step {late} (--step-timeout)")
    else:
        assert failed.returncode == -signal.SIGKILL
        assert_one_line(failed.stderr, f"step 70: {hostile.ID} {late}, nor when it was interrupted: the process was k")
    assert checkpoints(tmp_path / "a") == {"000000030.json", "000000060.json"}
    monkeypatch.delenv("HOSTILE")
    assert train(tmp_path / "a", "--steps", "120") == 0


@pytest.mark.parametrize(
    ("how", "when"), [("sleeps", "first reset"), ("spins", "later reset"), ("spins", "evaluation")]
)
def test_hanging_elsewhere(how, when, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTILE", f"{how}@{when}")
    watchdogs: list[Watchdog] = []
    start = Watchdog.__init__
    monkeypatch.setattr(Watchdog, "__init__", lambda self, *args: (watchdogs.append(self), start(self, *args))[1])
    assert train(tmp_path / "a", "--steps", "120", "--eval-every", "40", "--step-timeout", "2") == 1
    where = {"first reset": "first reset", "later reset": "step 0", "evaluation": "step 40"}[when]
    assert_one_line(capsys.readouterr().err, f"mepg: {where}: ", "did not return within 2 s")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert watchdogs
    for watchdog in watchdogs:
        assert watchdog._process.returncode is not None  # it has ended and was waited for


def test_hanging_before_there_is_an_algorithm(tmp_path, monkeypatch, capsys):
    """Which one is recommended depends on the environment, so that is made and reset once more."""
    monkeypatch.setenv("HOSTILE", "sleeps@first reset")
    assert main(["train", "--env", hostile.ID, "--out", str(tmp_path / "a"), "--step-timeout", "2"]) == 1
    assert_one_line(capsys.readouterr().err, "mepg: first reset: ", "did not return within 2 s")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_timeout_changes_nothing_else(whole, tmp_path):
    assert train(tmp_path / "a", settings=[*MENDED, "--step-timeout", "60"]) == 0
    assert_same_run(whole / "1", tmp_path / "a")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_timeout_that_is_none(seconds, tmp_path, capsys):
    assert train(tmp_path / "a", "--step-timeout", seconds) == 2
    assert_one_line(capsys.readouterr().err, "step-timeout must be a number of seconds above 0, not")


# Numbers that go wrong


class Huge(Odd):
    """Observations and rewards of a size, now of this sign and now of that."""

    def __init__(self, obs, reward):
        super().__init__()
        self.size, self.sign = (obs, reward), 1.0

    def reset(self, *, seed=None, options=None):
        return self.sign * self.size[0] * np.ones(2), {}

    def step(self, action):
        self.sign = -self.sign
        return self.sign * self.size[0] * np.ones(2), self.sign * self.size[1], False, False, {}


def learn_from(obs, reward, *, steps=1000, algorithm="me-ddpg", settings=(), **config):
    """A loop that has gone through so many steps, the first ten at random."""
    settings = ["hidden=8", "batch_size=8", "warmup=10", *settings]
    config = Config.make(algorithm, settings, env="Huge-v0", steps=steps, eval_every=10**6, **config)
    envs = SerialEnvs([Env(Huge(obs, reward))])
    loop = Loop(config, Program(config, config.build(envs.sizes), envs.sizes), envs, None, Replay(1000, envs.sizes))
    for _ in loop:
        pass
    return loop


def test_a_loss_that_overflows_is_named_with_its_step():
    with pytest.raises(RunFailure, match="step 1000: critic_loss became inf in the update of step 11"):
        learn_from(1.0, 1e30)


def test_moments_that_overflow_while_every_metric_is_finite():
    """Adam divides by the root of an infinite moment: the network stands still, and nobody would notice."""
    with pytest.raises(
        RunFailure, match=r"step 1000: critic\.moments\..*nu.* became infinite or NaN between steps 0 and 1000"
    ):
        learn_from(1e3, 1e18)


def test_a_variance_that_overflows_while_every_metric_is_finite():
    with pytest.raises(RunFailure, match="step 1000: variance became infinite or NaN between steps 0 and 1000"):
        learn_from(1e25, 1.0, normalize_obs=True)


def test_a_snapshot_is_never_of_numbers_that_went_wrong():
    loop = learn_from(1e3, 1e18, steps=60)
    with pytest.raises(RunFailure, match=r"step 60: critic\.moments\..*nu.* between steps 0 and 60"):
        loop.snapshot()


def test_a_policy_that_is_not_finite_is_not_played():
    taken = []
    env = Env(Odd())
    env.step = taken.append
    with pytest.raises(RunFailure, match=r"evaluation episode: the policy's action became \[nan nan\]"):
        evaluate.play(lambda obs: obs * np.nan, env, 0)
    assert not taken


def test_from_python_a_model_that_is_not_finite_is_neither_returned_nor_saved(tmp_path):
    small = {"learning_starts": 10, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}
    model = mepg.ME_DDPG("MlpPolicy", Huge(1e3, 1e18), **small, seed=0)
    with pytest.raises(RunFailure, match="became infinite or NaN between steps 0 and 40"):
        model.learn(40, log_interval=None)
    with pytest.raises(RunFailure, match="became infinite or NaN"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
