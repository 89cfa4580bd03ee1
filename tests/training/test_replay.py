import numpy as np
import pytest

from mepg.core.types import Sizes
from mepg.training.replay import MixedReplay, Replay, row_width, unpack

SIZES = Sizes(obs=2, action=1)


def filled(capacity, count):
    replay = Replay(capacity, SIZES)
    for i in range(count):
        replay.add([i, i], [i / 100], i, i % 2 == 0, [i + 1, i + 1])
    return replay


def test_rows_come_back_as_they_went_in():
    batch = unpack(filled(10, 4).read(0, 4), np.arange(4), SIZES)
    np.testing.assert_array_equal(batch.obs[3], [3, 3])
    np.testing.assert_allclose(batch.action[3], [0.03])
    assert batch.reward[3] == 3
    np.testing.assert_array_equal(batch.discount, [1, 0, 1, 0])
    np.testing.assert_array_equal(batch.next_obs[3], [4, 4])


@pytest.mark.parametrize("sizes", [Sizes(3, 2), Sizes(3, 2, "discrete"), Sizes(1, 1), Sizes(2, 7, "discrete")])
def test_what_is_packed_is_unpacked(sizes):
    replay, rng = Replay(5, sizes), np.random.default_rng(0)
    obs, next_obs = rng.random((2, sizes.obs)).astype(np.float32)
    action = rng.random(sizes.action_width).astype(np.float32)
    replay.add(obs, action, 3.5, False, next_obs)
    assert replay.read(0, 1).shape == (1, row_width(sizes))
    for part, expected in zip(replay.transition(0), (obs, action, 3.5, 0, next_obs, 0), strict=True):
        np.testing.assert_array_equal(part[0], expected)


def test_the_ring_forgets_the_oldest():
    replay = filled(10, 25)
    assert (len(replay), replay.oldest, replay.count) == (10, 15, 25)
    np.testing.assert_array_equal(replay.read(15, 25)[:, 3], range(15, 25))
    with pytest.raises(AssertionError):
        replay.read(14, 25)


def test_samples_are_uniform_over_what_is_there():
    for capacity, count in [(10, 25), (10, 10), (10, 3), (10, 30)]:
        rows, numbers = filled(capacity, count).sample(np.random.default_rng(0).random(100_000))
        batch = unpack(rows, numbers, SIZES)
        values, counts = np.unique(batch.reward, return_counts=True)
        there = range(max(0, count - capacity), count)
        np.testing.assert_array_equal(values, there)
        assert np.abs(counts * len(there) / 100_000 - 1).max() < 0.05
        np.testing.assert_array_equal(batch.number, batch.reward)  # here the reward is the number of the row


@pytest.mark.parametrize("pieces", [[(15, 25)], [(15, 18), (18, 25)], [(0, 12), (12, 25)], [(9, 20), (20, 25)]])
def test_restored_from_pieces(pieces):
    whole = filled(10, 25)
    everything = filled(100, 25)
    replay = Replay(10, SIZES)
    for start, stop in pieces:
        replay.restore(start, everything.read(start, stop))
    assert replay.count == 25
    np.testing.assert_array_equal(replay.read(15, 25), whole.read(15, 25))


def test_a_million_ant_transitions_take_at_most_300_mb():
    assert row_width(Sizes(obs=28, action=8)) * 4 * 1_000_000 < 300e6
    assert Replay(1000, Sizes(28, 8))._rows.nbytes == 1000 * row_width(Sizes(28, 8)) * 4


def test_it_can_begin_with_rows_and_begin_again():
    first = filled(10, 4).read(0, 4)
    replay = Replay(10, SIZES, first)
    assert (len(replay), replay.count, replay.dirty_from) == (4, 4, 0), "a checkpoint has to store them"
    for i in range(12):
        replay.add([9, 9], [0], i, True, [9, 9])
    assert replay.oldest == 6
    replay.clear()
    assert (replay.count, replay.dirty_from) == (4, 0)
    np.testing.assert_array_equal(replay.read(0, 4), first)


@pytest.mark.parametrize("count", [1, 5, 25])
def test_a_part_of_each_batch_is_of_the_data(count):
    """Fractions that are 0 or nearly 1 reach the first and the last of both."""
    data = filled(7, 7).read(0, 7) + 100
    replay = MixedReplay(10, SIZES, data, batch_size=4, from_data=1)
    for i in range(count):
        replay.add([i, i], [i / 100], i, i % 2 == 0, [i + 1, i + 1])
    batches = np.array([[0, 0, 0.5, 1 - 1e-9], [1 - 1e-9, 0, 0, 0]])
    rows, numbers = replay.sample(batches.ravel())
    assert rows.shape == (8, replay.width)
    places = [0, 4]
    np.testing.assert_array_equal(rows[places], data[[0, 6]])
    np.testing.assert_array_equal(numbers[places], [0, 6])
    own = [1, 2, 3, 5, 6, 7]
    assert ((numbers[own] >= 7 + replay.oldest) & (numbers[own] < 7 + count)).all()
    np.testing.assert_array_equal(rows[own, 3], numbers[own] - 7.0)
    np.testing.assert_array_equal(replay.read(replay.oldest, count)[:, 3], range(replay.oldest, count))
