import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis import resampling

SAMPLES = st.lists(st.integers(-5, 5), min_size=2, max_size=12)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_q_is_scipys(p):
    expected = scipy.stats.false_discovery_control(p)
    np.testing.assert_allclose(resampling.benjamini_hochberg(np.array(p)), expected)


def test_a_test_that_was_not_made_does_not_count():
    found = resampling.benjamini_hochberg(np.array([0.01, math.nan, 0.04]))
    assert found[[0, 2]].tolist() == pytest.approx([0.02, 0.04])
    assert math.isnan(found[1])


def auc_of_single_words(x, y):
    return resampling.auc(x, y, np.arange(len(x)), np.arange(len(y)))


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
    once = resampling.auc(x, y, words, others)
    twice = resampling.auc(*(np.repeat(side, 2) for side in (x, y, words, others)))
    assert twice == pytest.approx(once)


def test_one_word_on_a_side_has_no_interval_of_auc(rng):
    found = resampling.auc(rng.normal(size=4), rng.normal(size=4), np.zeros(4), np.arange(4))
    assert all(math.isnan(number) for number in found)


def test_cohens_d_divides_by_the_pooled_deviation():
    x, y = np.array([2.0, 4.0, 6.0]), np.array([1.0, 1.0, 4.0])
    assert resampling.cohens_d(x, y) == pytest.approx(2.0 / math.sqrt((2 * 4 + 2 * 3) / 4))
    assert math.isnan(resampling.cohens_d(x[:1], y))
    assert math.isnan(resampling.cohens_d(np.ones(3), np.ones(3)))


def test_the_interval_of_a_mean_holds_it_at_its_rate_even_for_six(rng):
    held = 0
    for _ in range(400):
        low, high = resampling.bootstrap_mean(rng.normal(2.0, 1.0, size=6), rng, draws=1000)
        held += low <= 2.0 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_one_value_has_no_interval(rng):
    assert all(math.isnan(end) for end in resampling.bootstrap_mean(np.array([1.0]), rng))


def test_permuting_inside_strata_is_the_enumeration(rng):
    values = np.array([3.0, 1.0, 2.0, 0.5, 5.0, 4.0, 1.5])
    labels = np.array([1, 0, 0, 0, 1, 0, 0], dtype=bool)
    strata = np.array([0, 0, 0, 0, 1, 1, 1])

    def statistic(chosen):
        return sum(
            sum(values[i] for i in part) - len(part) * np.mean([values[j] for j in rest])
            for part, rest in chosen
        )

    def split(rows, one):
        return [one], [i for i in rows if i != one]

    found = statistic([split(range(4), 0), split((4, 5, 6), 4)])
    every = [
        statistic([split(range(4), a), split((4, 5, 6), b)])
        for a, b in itertools.product(range(4), (4, 5, 6))
    ]
    exact = np.mean(np.abs(every) >= abs(found) - 1e-12)
    difference, p = resampling.stratified_test(values[:, None], labels, strata, rng, draws=20_000)
    assert difference[0] == pytest.approx(found / 2)  # of two labelled things
    assert p[0] == pytest.approx(exact, abs=0.01)


def test_without_their_like_nothing_can_be_compared(rng):
    labels, strata = np.array([True, False]), np.array(["plural", "adjective"])
    both = resampling.stratified_test(np.array([[1.0], [2.0]]), labels, strata, rng, draws=99)
    assert np.isnan(both).all()


def test_things_of_another_stratum_change_nothing(rng):
    values = np.array([[5.0], [1.0], [1.1], [0.9], [99.0]])
    labels = np.array([True, False, False, False, False])
    strata = np.array(["a", "a", "a", "a", "b"])
    with_other = resampling.stratified_test(values, labels, strata, np.random.default_rng(1), 999)
    without = resampling.stratified_test(
        values[:4], labels[:4], strata[:4], np.random.default_rng(1), 999
    )
    np.testing.assert_allclose(with_other, without)
