import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from mepg.core.masks import draw_masks, random_bits16
from mepg.core.spec import Dropout, Spec

KEY = jax.random.key(0)


def last(mask):
    return np.asarray(mask[-1])


def test_no_dropout_no_mask():
    assert draw_masks(Spec(), 4, KEY) == (None, None)


def test_consistent_is_one_draw_independent_is_two_online_is_one_sided():
    spec = Spec(hidden=(8, 64), dropout=Dropout(p=0.5))
    m, m_target = draw_masks(spec, 32, KEY)
    assert np.array_equal(last(m), last(m_target))
    m, m_target = draw_masks(replace(spec, dropout=Dropout(p=0.5, masks="independent")), 32, KEY)
    assert 0.4 < (last(m) != last(m_target)).mean() < 0.6
    m, m_target = draw_masks(replace(spec, dropout=Dropout(p=0.5, masks="online")), 32, KEY)
    assert m is not None
    assert m_target is None


def test_every_critic_and_sample_has_a_row_of_its_own():
    m, _ = draw_masks(Spec(critics=2, hidden=(8, 65), dropout=Dropout(p=0.5)), 16, KEY)
    assert m[0] is None
    assert last(m).shape == (2, 16, 65)  # an odd width too
    rows = last(m).reshape(32, 65)
    assert all(not np.array_equal(a, b) for a, b in itertools.combinations(rows, 2))


def test_a_row_for_the_batch_and_masks_on_all_layers():
    m, _ = draw_masks(Spec(hidden=(8, 6), dropout=Dropout(rows="batch", layers="all")), 16, KEY)
    assert [layer.shape for layer in m] == [(1, 1, 8), (1, 1, 6)]


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.95, 0.999, 1 - 1e-9])
def test_a_unit_is_dropped_with_probability_p_and_the_mean_is_one(p):
    m, _ = draw_masks(Spec(hidden=(1000,), dropout=Dropout(p=p)), 1000, KEY)
    kept = last(m) > 0
    scale = last(m).max()
    n = kept.size
    keep = max(1 - p, 2**-16)
    assert abs(kept.mean() - keep) < 5 * np.sqrt(keep * (1 - keep) / n) + 2**-17
    if kept.any():
        # the two values a unit can take average to exactly 1 under the drawn probability
        drawn = round(65536 / scale)
        assert scale * drawn / 65536 == pytest.approx(1, abs=1e-6)
        assert scale == pytest.approx(1 / keep, rel=2**-16 / keep)


def test_low_and_high_halves_of_a_random_word_are_independent():
    m, _ = draw_masks(Spec(hidden=(512,), dropout=Dropout(p=0.5)), 4096, KEY)
    kept = last(m)[0] > 0
    assert abs(np.corrcoef(kept[:, :256].ravel(), kept[:, 256:].ravel())[0, 1]) < 0.005
    assert abs(np.corrcoef(kept[:-1].ravel(), kept[1:].ravel())[0, 1]) < 0.005


def test_a_new_key_is_a_new_mask():
    spec = Spec(hidden=(64,), dropout=Dropout(p=0.5))
    assert not np.array_equal(last(draw_masks(spec, 4, KEY)[0]), last(draw_masks(spec, 4, jax.random.key(1))[0]))


def test_16_bit_numbers_are_uniform_and_independent_of_their_neighbours():
    numbers = np.asarray(random_bits16(KEY, (256, 255)), np.float64) / 2**16
    assert numbers.shape == (256, 255)
    assert numbers.mean() == pytest.approx(0.5, abs=0.005)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.002)
    for one, other in (
        (numbers[:, 1:], numbers[:, :-1]),
        (numbers[1:], numbers[:-1]),
        (numbers[:, 128:], numbers[:, :127]),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
