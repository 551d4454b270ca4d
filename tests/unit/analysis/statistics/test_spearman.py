import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import ranks
from analysis.statistics.correlation import partial_spearman, spearman_intervals, spearman_p


def sample(rng, size, weight):
    """Two sides of a normal distribution; rounded, so that values repeat."""
    x = rng.normal(size=size)
    return x.round(1), (weight * x + math.sqrt(1 - weight**2) * rng.normal(size=size)).round(1)


def test_an_interval_is_that_of_items_drawn_one_by_one():
    x, y = sample(np.random.default_rng(0), 50, 0.6)
    ((low, high),) = spearman_intervals(x, y[None], np.random.default_rng(1), draws=200)
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


def test_what_is_not_defined_is_nan():
    rng = np.random.default_rng(0)
    assert np.isnan(spearman_intervals(np.arange(3), np.arange(3)[None], rng, 9)).all()
    assert np.isnan(spearman_intervals(np.arange(9), np.ones((1, 9)), rng, 9)).all()
    assert math.isnan(spearman_p(math.nan, 9))
    assert math.isnan(spearman_p(0.5, 2))
    assert spearman_p(1.0, 9) == 0


def test_one_order_twice_has_no_room_for_error():
    x = np.arange(20.0)
    ((low, high),) = spearman_intervals(x, x[None], np.random.default_rng(0), 50)
    assert low > 0.999
    assert high <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("size", "weight"), [(30, 0.5), (300, 0.35), (300, 0.0)])
def test_intervals_hold_the_correlation_at_their_rate(size, weight):
    rng = np.random.default_rng(7)
    truth, held = 6 / math.pi * math.asin(weight / 2), 0
    for _ in range(200):
        x = rng.normal(size=size)
        y = weight * x + math.sqrt(1 - weight**2) * rng.normal(size=size)
        ((low, high),) = spearman_intervals(x, y[None], rng, draws=200)
        held += low <= truth <= high
    assert 180 <= held <= 199


def drawn(size=80):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, size))
    return 0.6 * z[0] + rng.normal(size=size), z.sum(axis=0) + rng.normal(size=size), z


def test_nothing_held_is_scipys_spearman():
    x, y, _ = drawn()
    expected = scipy.stats.spearmanr(np.round(x), y)
    assert partial_spearman(np.round(x), y, np.empty((0, 80))) == pytest.approx(tuple(expected))


def test_one_thing_held_is_the_formula_of_three_correlations():
    x, y, z = drawn()
    xy, xz, yz = (scipy.stats.spearmanr(a, b).statistic for a, b in ((x, y), (x, z[0]), (y, z[0])))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, z[:1])[0] == pytest.approx(expected)


def test_what_only_the_held_things_share_is_no_correlation():
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        z = rng.normal(size=60)
        x, y = z + rng.normal(size=60), z + rng.normal(size=60)
        found.append(
            (partial_spearman(x, y, np.empty((0, 60)))[1], partial_spearman(x, y, z[None])[1])
        )
    alone, held = (np.array(found) < 0.05).mean(axis=0)
    assert alone > 0.9
    assert held == pytest.approx(0.05, abs=0.035)


@pytest.mark.parametrize("x", [np.ones(10), np.arange(10.0)])
def test_a_constant_or_fully_held_side_has_none(x):
    y = np.random.default_rng(0).normal(size=10)
    assert all(map(math.isnan, partial_spearman(x, y, np.arange(10.0)[None])))
    assert all(map(math.isnan, partial_spearman(x[:3], y[:3], np.arange(3.0)[None])))
