"""Checkpoints in one process: what is kept, and what happens to damaged ones."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from mepg.errors import RunFailure, UsageError
from mepg.storage.checkpoint import Checkpoint, Checkpoints, TimeSpent
from mepg.storage.files import Damaged
from mepg.training.config import Config
from mepg.training.replay import Replay
from tests.conftest import leaves_equal
from tests.run.stubs import SIZES, make_loop

RUN, SPENT = Config.make("ddpg", env="StubPlain-v0"), TimeSpent(1.5, 0.5, 2.25)


def go(loop, upto):
    for record in loop:
        if record.step == upto:
            return


@pytest.fixture
def saved(tmp_path):
    """A run with a ring of 16, saved at steps 10, 20, 30 and 40."""
    return run_and_save(tmp_path)


def run_and_save(tmp_path, ahead=None):
    loop = make_loop(steps=50, replay_size=16, ahead=ahead)
    checkpoints = Checkpoints(tmp_path, RUN)
    for step in (10, 20, 30, 40):
        go(loop, step)
        checkpoints.save(Checkpoint(loop.snapshot(), SPENT, None), loop.replay)
    return loop, tmp_path


def load(folder, step, replay_size=16, ahead=None):
    loop = make_loop(steps=50, replay_size=replay_size, ahead=ahead)
    saved = Checkpoints(folder, RUN).load(step, loop.snapshot(), loop.replay)
    assert saved.spent == SPENT
    assert loop.restore(saved.snapshot)
    return loop


def test_two_are_kept_each_with_its_ring(saved):
    loop, folder = saved
    assert Checkpoints(folder, RUN).steps() == [40, 30]
    last, before = load(folder, 40), load(folder, 30)
    assert leaves_equal(last.state, loop.state)
    np.testing.assert_array_equal(last.replay.read(24, 40), loop.replay.read(24, 40))
    assert (before.replay.oldest, before.replay.count) == (14, 30)
    go(before, 40)
    assert leaves_equal(before.state, loop.state)
    assert before.evaluations == loop.evaluations
    np.testing.assert_array_equal(before.replay.read(24, 40), loop.replay.read(24, 40))


def test_transitions_that_look_further_ahead_since_are_saved_again(tmp_path):
    """The step after a checkpoint lets up to three before it look further; at 30 the episode is two steps old."""
    loop, folder = run_and_save(tmp_path, ahead=(4, 0.5))
    names = sorted(path.name for path in (folder / "replay").iterdir())
    assert names == [f"{a:09d}-{b:09d}.safetensors" for a, b in [(7, 20), (17, 30), (28, 40)]]
    last, before = (load(folder, step, ahead=(4, 0.5)) for step in (40, 30))
    np.testing.assert_array_equal(last.replay.read(24, 40), loop.replay.read(24, 40))
    go(before, 40)
    np.testing.assert_array_equal(before.replay.read(24, 40), loop.replay.read(24, 40))
    assert leaves_equal(before.state, loop.state)


def test_pieces_that_the_ring_has_passed_are_removed(saved):
    _, folder = saved
    names = sorted(path.name for path in (folder / "replay").iterdir())
    assert names == [f"{a:09d}-{b:09d}.safetensors" for a, b in [(10, 20), (20, 30), (30, 40)]]


def test_going_on_from_the_older_one_replaces_the_newer(saved):
    loop, folder = saved
    checkpoints = Checkpoints(folder, RUN)
    again = make_loop(steps=50, replay_size=16)
    again.restore(checkpoints.load(30, again.snapshot(), again.replay).snapshot)
    go(again, 37)  # where a signal might stop it
    checkpoints.save(Checkpoint(again.snapshot(), SPENT, None), again.replay)
    go(again, 40)
    checkpoints.save(Checkpoint(again.snapshot(), SPENT, None), again.replay)
    assert leaves_equal(load(folder, 40).state, loop.state)
    assert load(folder, 37).step == 37


def test_damaged_ones_ahead_do_not_push_out_what_is_saved_now(saved):
    """Both kept checkpoints are damaged, the run begins anew: what it saves on the way must stay."""
    _, folder = saved
    for step in (30, 40):
        (folder / "checkpoints" / f"{step:09d}.json").write_text("")
    again = make_loop(steps=50, replay_size=16)
    checkpoints = Checkpoints(folder, RUN)
    for step in (5, 8):
        go(again, step)
        checkpoints.save(Checkpoint(again.snapshot(), SPENT, None), again.replay)
        assert checkpoints.steps()[0] == step
        assert load(folder, step).step == step
    assert checkpoints.steps() == [8, 5]


def test_a_checkpoint_interval_longer_than_the_ring(tmp_path):
    loop = make_loop(steps=50, replay_size=7)
    checkpoints = Checkpoints(tmp_path, RUN)
    for step in (20, 45):
        go(loop, step)
        checkpoints.save(Checkpoint(loop.snapshot(), SPENT, None), loop.replay)
    for step in (20, 45):
        assert load(tmp_path, step, replay_size=7).replay.count == step


@pytest.mark.parametrize("victim", ["checkpoints/000000040.json", "checkpoints/000000040.safetensors", "replay/"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "missing", "swap"])
def test_damage_is_noticed(saved, victim, damage):
    _, folder = saved
    path = folder / victim
    if path.is_dir():
        path = max(path.iterdir())
    content = bytearray(path.read_bytes())
    match damage:
        case "cut":
            path.write_bytes(content[:-7])
        case "flip":
            content[len(content) // 2] ^= 4
            path.write_bytes(content)
        case "empty":
            path.write_bytes(b"")
        case "missing":
            path.unlink()
        case "swap":
            path.write_bytes((folder / "checkpoints" / f"000000030{path.suffix}").read_bytes())
    with pytest.raises(Damaged):
        load(folder, 40)


def test_a_checkpoint_of_another_algorithm_is_refused(saved):
    loop, folder = saved
    other = loop.snapshot()._replace(state={"other": jax.numpy.zeros(1)})
    with pytest.raises(Damaged, match=r"agent\.other is missing"):
        Checkpoints(folder, RUN).load(40, other, Replay(16, SIZES))
    with pytest.raises(Damaged, match=r"not float32\[2\]"):
        Checkpoints(folder, RUN).load(40, other._replace(state={"updates": jax.numpy.zeros(2)}), Replay(16, SIZES))


def test_a_checkpoint_of_another_run_is_refused(saved):
    """The same algorithm and shapes, but another seed, say."""
    loop, folder = saved
    with pytest.raises(Damaged, match="belongs to another run"):
        Checkpoints(folder, replace(RUN, seed=1)).load(40, loop.snapshot(), Replay(16, SIZES))


def test_nothing_is_removed_where_a_link_leads(saved, tmp_path_factory):
    loop, folder = saved
    elsewhere = tmp_path_factory.mktemp("home")
    (elsewhere / "000000001-000000002.safetensors").write_text("dear to me")
    for path in (folder / "replay").iterdir():
        path.unlink()
    (folder / "replay").rmdir()
    (folder / "replay").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        Checkpoints(folder, RUN).save(Checkpoint(loop.snapshot(), SPENT, None), loop.replay)
    Checkpoints(folder, RUN).drop_replay()
    assert [path.read_text() for path in elsewhere.iterdir()] == ["dear to me"]


def test_nothing_that_is_not_finite_is_saved(saved):
    loop, folder = saved
    bad = loop.snapshot()._replace(state={"updates": jax.numpy.float32(np.nan), "last": jax.numpy.float32(0)})
    with pytest.raises(RunFailure, match=r"agent\.updates is no longer finite"):
        Checkpoints(folder, RUN).save(Checkpoint(bad._replace(step=41), SPENT, None), loop.replay)
    assert Checkpoints(folder, RUN).steps() == [40, 30]
