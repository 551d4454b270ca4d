import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import effect_sizes

SAMPLES = st.lists(st.integers(-5, 5), min_size=2, max_size=12)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def auc_of_single_words(x, y):
    return effect_sizes.auc(x, y, np.arange(len(x)), np.arange(len(y)))


@given(SAMPLES, SAMPLES)
def test_auc_is_the_written_out_double_loop(x, y):
    wins = [(a > b) + (a == b) / 2 for a in x for b in y]
    found, low, high, _ = auc_of_single_words(np.array(x, float), np.array(y, float))
    assert found == pytest.approx(np.mean(wins))
    assert 0 <= low <= found <= high <= 1


def test_the_error_of_auc_is_delongs_written_out(rng):
    x, y = rng.normal(0.5, size=40), rng.normal(size=30)
    wins = (x[:, None] > y).astype(float)
    error = math.sqrt(wins.mean(1).var(ddof=1) / 40 + wins.mean(0).var(ddof=1) / 30)
    found, low, high, p = auc_of_single_words(x, y)
    assert (low, high) == pytest.approx((found - 1.959964 * error, found + 1.959964 * error))
    assert p == pytest.approx(2 * scipy.stats.norm.sf(abs(found - 0.5) / error))


def test_the_error_of_auc_takes_a_word_said_twice_for_one(rng):
    x, y = rng.normal(0.5, size=20), rng.normal(size=15)
    words, others = np.arange(20), np.arange(15)
    once = effect_sizes.auc(x, y, words, others)
    twice = effect_sizes.auc(*(np.repeat(side, 2) for side in (x, y, words, others)))
    assert twice == pytest.approx(once)


def test_one_word_on_a_side_has_no_interval_of_auc(rng):
    found = effect_sizes.auc(rng.normal(size=4), rng.normal(size=4), np.zeros(4), np.arange(4))
    assert all(math.isnan(number) for number in found)


def test_cohens_d_divides_by_the_pooled_deviation():
    x, y = np.array([2.0, 4.0, 6.0]), np.array([1.0, 1.0, 4.0])
    assert effect_sizes.cohens_d(x, y) == pytest.approx(2.0 / math.sqrt((2 * 4 + 2 * 3) / 4))
    assert math.isnan(effect_sizes.cohens_d(x[:1], y))
    assert math.isnan(effect_sizes.cohens_d(np.ones(3), np.ones(3)))
