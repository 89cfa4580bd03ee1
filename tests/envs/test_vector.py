"""Environments stepped together: whichever way their episodes begin, no transition crosses an end."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

from mepg.envs.env import Env
from mepg.envs.vector import SerialEnvs, make_envs
from mepg.errors import RunFailure, UsageError
from mepg.storage.checkpoint import Checkpoint, Checkpoints, TimeSpent
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.replay import Replay
from tests.conftest import PENDULUM, all_but_slow, leaves_equal
from tests.envs.own import Numbered, Talks, Tidy
from tests.run.stubs import make_loop


class LikeStableBaselines:
    """What its VecEnv is like, from the outside; the real one is in test_stable_baselines.py."""

    num_envs = 3
    observation_space, action_space = Numbered.observation_space, Numbered.action_space

    def __init__(self):
        self.envs = [Numbered() for _ in range(3)]

    def seed(self, seed):
        self.seeded = seed

    def reset(self):
        return np.stack([env.reset()[0] for env in self.envs])

    def step(self, actions):
        obs, rewards, ends, infos = [], [], [], []
        for env, action in zip(self.envs, actions, strict=True):
            s, r, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                info = {**info, "terminal_observation": s, "TimeLimit.truncated": truncated and not terminated}
                s, _ = env.reset()
            obs, rewards, ends, infos = [*obs, s], [*rewards, r], [*ends, terminated or truncated], [*infos, info]
        return np.stack(obs), np.array(rewards), np.array(ends), infos

    step_async = step_wait = close = lambda self: None


KINDS = {
    "disabled": lambda: SyncVectorEnv([Numbered] * 3, autoreset_mode=AutoresetMode.DISABLED),
    "next step": lambda: SyncVectorEnv([Numbered] * 3),  # Gymnasium's default
    "same step": lambda: SyncVectorEnv([Numbered] * 3, autoreset_mode=AutoresetMode.SAME_STEP),
    "processes": lambda: AsyncVectorEnv([Numbered] * 3, context="spawn"),
    "wrapped": lambda: gymnasium.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv([Numbered] * 3)),
    "like Stable-Baselines3": LikeStableBaselines,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_transition_crosses_the_end_of_an_episode(kind):
    envs = make_envs(KINDS[kind]())
    loop = make_loop(steps=90, warmup=6, envs=envs, eval_every=900)
    episodes = [episode for record in loop for episode in record.episodes]
    envs.close()
    rows = loop.replay.read(0, 90).reshape(30, 3, -1)  # [round, place, ...]
    for place in range(3):
        (number, at), _, reward, alive, (next_number, next_at) = np.split(rows[:, place].T, [2, 3, 4, 5])
        np.testing.assert_array_equal(next_number, number)
        np.testing.assert_array_equal(next_at, at + 1)
        np.testing.assert_array_equal(reward[0], next_at)
        begins = np.flatnonzero(at == 0)
        np.testing.assert_array_equal(
            begins[1:] - 1, np.flatnonzero(next_at == np.where(number % 2, 5, 8))[: len(begins) - 1]
        )
        np.testing.assert_array_equal(alive[0], ~((number % 2 == 1) & (next_at == 5)))
    assert len(episodes) >= 3 * 4
    assert {length for _, length in episodes} == {5, 8}
    assert all(total == length * (length + 1) / 2 for total, length in episodes)


def test_as_many_updates_for_each_transition_however_many_environments():
    loop = make_loop(steps=60, warmup=30, updates_per_step=2, envs=make_envs(KINDS["disabled"]()), eval_every=900)
    list(loop)
    assert float(loop.state["updates"]) == loop.updates == (60 - 30) * 2
    assert loop.replay.count == 60


def test_every_episode_has_a_seed_of_its_own():
    vector = KINDS["next step"]()
    list(make_loop(steps=90, envs=make_envs(vector), eval_every=900))
    seeds = [seed for env in vector.envs for seed in env.seeds[1:]]  # after the one that is burned
    assert len(seeds) >= 3 * 4
    assert None not in seeds
    assert len(set(seeds)) == len(seeds)


def rounds(envs):
    """What each environment returned in 13 steps, begun anew at every end; lengths are 4, 5 and 6."""
    for place in range(3):
        envs.begin(place, place)
    found = []
    for _ in range(13):
        results = envs.step(np.zeros((3, 1), np.float32))
        for place, result in enumerate(results):
            if result.done:
                envs.begin(place, place)
        found.append(results)
    envs.close()
    return found


TALKING = [partial(Talks, length) for length in (4, 5, 6)]
IN_ONE_PROCESS = {f"{mode.name}": partial(SyncVectorEnv, TALKING, autoreset_mode=mode) for mode in AutoresetMode}
VECTORS = IN_ONE_PROCESS | {
    "not copied": partial(SyncVectorEnv, TALKING, copy=False),
    **{
        f"statistics, {name}": lambda make=make: wrappers.RecordEpisodeStatistics(make())
        for name, make in IN_ONE_PROCESS.items()
    },
    **{f"a list, {name}": lambda make=make: wrappers.DictInfoToList(make()) for name, make in IN_ONE_PROCESS.items()},
    **{
        f"processes, {mode.name}": partial(AsyncVectorEnv, TALKING, autoreset_mode=mode, context="spawn")
        for mode in AutoresetMode
    },
    "processes that send": partial(
        AsyncVectorEnv, TALKING, autoreset_mode=AutoresetMode.DISABLED, context="spawn", shared_memory=False
    ),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_all_that_an_environment_says_is_the_same_in_a_vector(kind):
    """Nothing is lost, nothing is another's, and at an end it is the last step's, not the next reset's."""
    alone = rounds(SerialEnvs([Env(make()) for make in TALKING]))
    together = rounds(make_envs(VECTORS[kind]()))
    for expected, found in zip(alone, together, strict=True):
        for one, other in zip(expected, found, strict=True):
            assert (one.obs, one.reward, one.terminated, one.done) == (
                other.obs,
                other.reward,
                other.terminated,
                other.done,
            )
            info = dict(other.info)
            if info.pop("episode", None) is not None:  # of gymnasium.wrappers.vector.RecordEpisodeStatistics
                assert one.done
            assert info == one.info


@pytest.mark.parametrize("mode", IN_ONE_PROCESS)
def test_statistics_of_gymnasiums_wrapper(mode):
    """When one episode begins, the others' returns are not counted from 0 again."""
    env = wrappers.RecordEpisodeStatistics(IN_ONE_PROCESS[mode]())
    rounds(make_envs(env))
    assert list(env.return_queue) == list(env.length_queue) == [4, 5, 6, 4, 5, 4, 6]


def test_what_would_begin_an_episode_twice_or_not_at_all_is_refused():
    sends = AsyncVectorEnv(TALKING, context="spawn", shared_memory=False)
    with pytest.raises(UsageError, match=r"resets twice at the end of an episode; make it with autoreset_mode="):
        make_envs(sends)
    sends.close()
    with pytest.raises(UsageError, match=r"NormalizeObservation cannot begin one of several.*normalize_obs=True"):
        make_envs(wrappers.NormalizeObservation(SyncVectorEnv(TALKING)))
    make_envs(wrappers.NormalizeObservation(SyncVectorEnv(TALKING[:1])))  # the only one can begin

    class Silent(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            return *super().step(actions)[:4], {}

    same_step = Silent(SyncVectorEnv(TALKING, autoreset_mode=AutoresetMode.SAME_STEP))
    with pytest.raises(RunFailure, match="ended an episode by its time limit without 'final_obs' in its infos"):
        rounds(make_envs(same_step))


@pytest.mark.parametrize("name", all_but_slow(["me-sac", "sunrise", "ace"], ["sunrise"]))
def test_from_a_checkpoint_it_ends_with_the_same_bits(name, tmp_path):
    """With three pendulums whose episodes end at different times, a memory of each, and a ring that wraps."""
    settings = ["batch_size=8", "warmup=60", "replay_size=90", "hidden=8,8"]
    env = PENDULUM
    config = Config.make(name, settings, env=env, steps=150, eval_every=75, eval_episodes=1, envs=3)
    envs, eval_env = make_envs(env, 3), Env(env)
    loop = Loop(config, Program(config, config.build(envs.sizes), envs.sizes), envs, eval_env, Replay(90, envs.sizes))
    checkpoints = Checkpoints(tmp_path, config)
    for record in loop:
        if record.step == 99:
            checkpoints.save(Checkpoint(loop.snapshot(), TimeSpent(0.0, 0.0, 0.0), None), loop.replay)
    end, rows = loop.snapshot(), loop.replay.read(60, 150)
    loop.replay.count = 0
    saved = checkpoints.load(99, loop.snapshot(), loop.replay).snapshot
    assert len({len(actions) for actions in saved.episode_actions}) > 1, "the episodes are to be of unequal age"
    assert loop.restore(saved)
    list(loop)
    again = loop.snapshot()
    np.testing.assert_array_equal(loop.replay.read(60, 150), rows)
    for part in ("state", "carry", "episode_actions", "metric_sums", "episode_numbers", "next_actions"):
        assert leaves_equal(getattr(again, part), getattr(end, part)), part
    assert again.evaluations == end.evaluations
    envs.close()
    eval_env.close()


def test_what_cannot_be_stepped_is_refused():
    with pytest.raises(UsageError, match="list is not a kind of environment: give an id"):
        make_envs([1, 2])
    with pytest.raises(UsageError, match="n_envs=2 makes copies"):
        make_envs(gymnasium.make("Pendulum-v1"), 2)
    with pytest.raises(UsageError, match=r"envs must be in \[1, 1000\]"):
        make_envs("Pendulum-v1", 2000)

    class Foreign(gymnasium.vector.VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    with pytest.raises(UsageError, match=r"make it with autoreset_mode=AutoresetMode\.SAME_STEP"):
        make_envs(Foreign())


def test_explorers_differ():
    """Each environment's action is drawn by itself, though the observations are equal."""
    config = Config.make(
        "me-sac", ["hidden=8,8", "batch_size=8", "warmup=0"], env="Pendulum-v1", envs=4, steps=40, eval_every=40
    )
    envs = make_envs("Pendulum-v1", 4)
    loop = Loop(config, Program(config, config.build(envs.sizes), envs.sizes), envs, None, Replay(100, envs.sizes))
    same = np.zeros((4, 3), np.float32)
    actions = loop.program.explore(loop.device_state, loop.carry, same, 1).actions
    assert len(np.unique(actions)) == 4


@pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting")
@pytest.mark.parametrize("place", range(2))
def test_a_process_that_dies_is_reported_and_nobody_waits_for_the_others(place):
    vector = AsyncVectorEnv(TALKING[:2], context="spawn")
    envs = make_envs(vector)
    vector.processes[place].kill()
    with pytest.raises(RunFailure, match="AsyncVectorEnv's step failed: one of its processes has ended"):
        envs.step(np.zeros((2, 1), np.float32))
    envs.close()


def first_of(seed):
    envs = make_envs(SyncVectorEnv([Tidy] * 3, autoreset_mode=AutoresetMode.SAME_STEP), seed=seed)
    return np.stack([envs.begin(place, None) for place in range(3)])


def test_a_vector_that_resets_itself_has_the_models_seed():
    np.testing.assert_array_equal(first_of(5), first_of(5))
    assert not np.array_equal(first_of(5), first_of(6))


class Fails(LikeStableBaselines):
    def reset(self):
        raise RuntimeError("no display")


def test_a_reset_of_stable_baselines_that_raises_is_one_line():
    with pytest.raises(RunFailure, match="Fails's reset raised RuntimeError: no display"):
        make_envs(Fails())


def test_what_is_refused_says_what_works():
    with pytest.raises(UsageError, match=r"vectorization_mode='sync'"):
        make_envs(gymnasium.make_vec("CartPole-v1", 3))
    make_envs(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync"))
    with pytest.raises(UsageError, match=r"leave out gymnasium\.wrappers\.ClipAction"):
        make_envs(gymnasium.wrappers.ClipAction(Numbered()))
