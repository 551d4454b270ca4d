import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import correlation, ranks
from analysis.statistics.correlation import LEAST_CLUSTERS, spearman_intervals, spearman_p
from analysis.statistics.inference import clustered


def three(rng, words, spellings, strength=0.5):
    """Three sides of as many spellings of each word; the first shares `strength` with the others.

    The tails are heavier than normal, where an interval that takes normal pairs is too narrow.
    """
    word = np.repeat(np.arange(words), spellings)
    a, b, c = rng.standard_t(6, size=(3, words))[:, word]
    rest = math.sqrt(1 - strength**2)
    return word, a, strength * a + rest * b, strength * a + rest * c


def influence(a, b):
    return correlation.influence(correlation.standardised(a), correlation.standardised(b))


def interval(a, b, word):
    return correlation.pearson_interval(ranks.pearson(a, b), influence(a, b), word)


def differs(a, b, c, word):
    difference = ranks.pearson(a, b) - ranks.pearson(a, c)
    return clustered(difference, influence(a, b) - influence(a, c), word, LEAST_CLUSTERS)


def test_intervals_are_those_of_a_bootstrap_over_words(rng):
    word, a, b, c = three(rng, 200, 2)
    drawn, gaps = [], []
    for _ in range(800):
        words = rng.integers(0, 200, size=200)
        rows = np.concatenate([2 * words, 2 * words + 1])
        drawn.append(ranks.pearson(a[rows], b[rows]))
        gaps.append(drawn[-1] - ranks.pearson(a[rows], c[rows]))
    _, low, high, _ = interval(a, b, word)
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)
    _, low, high, _ = differs(a, b, c, word)
    assert high - low == pytest.approx(4 * np.std(gaps), rel=0.12)


def sample(rng, size, weight):
    """Two sides of a normal distribution; rounded, so that values repeat."""
    x = rng.normal(size=size)
    return x.round(1), (weight * x + math.sqrt(1 - weight**2) * rng.normal(size=size)).round(1)


def test_an_interval_is_that_of_items_drawn_one_by_one():
    x, y = sample(np.random.default_rng(0), 50, 0.6)
    ((_, low, high, _),) = spearman_intervals(x, y[None], np.random.default_rng(1), draws=200)
    rng, drawn = np.random.default_rng(1), []
    for _ in range(200):
        chosen = rng.integers(0, 50, 50)
        drawn.append(scipy.stats.spearmanr(x[chosen], y[chosen]).statistic)
    half = scipy.stats.t.ppf(0.975, 49) * np.arctanh(drawn).std(ddof=1)
    middle = math.atanh(ranks.spearman(x, y))
    assert (low, high) == pytest.approx((math.tanh(middle - half), math.tanh(middle + half)))


def test_p_is_scipys():
    x, y = sample(np.random.default_rng(0), 30, 0.3)
    expected = scipy.stats.spearmanr(x, y)
    assert spearman_p(ranks.spearman(x, y), 30) == pytest.approx(expected.pvalue)


def test_equal_sides_have_an_interval_that_reaches_one(rng):
    x = np.arange(20.0)
    _, low, high, p = interval(x, x, np.arange(20))
    assert 0.9 < low < high <= 1.0
    assert p < 0.001
    ((_, low, high, _),) = spearman_intervals(x, x[None], rng, 50)
    assert 0.999 < low <= high <= 1
    assert spearman_p(1.0, 9) == 0


def test_a_constant_side_and_three_words_have_nothing(rng):
    x, ones = np.arange(10.0), np.ones(10)
    assert np.isnan(interval(x, ones, np.arange(10))).all()
    assert np.isnan(interval(x[:6], x[:6] ** 2, np.arange(6) // 2)[1:]).all()
    assert np.isnan(spearman_intervals(x[:3], x[None, :3], rng, 9)[0][1:3]).all()
    assert np.isnan(spearman_intervals(x, ones[None], rng, 9)).all()
    assert np.isnan([spearman_p(math.nan, 9), spearman_p(0.5, 2)]).all()
