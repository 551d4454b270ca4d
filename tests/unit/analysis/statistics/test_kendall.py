import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import kendall
from analysis.statistics.inference import clustered_error
from analysis.statistics.kendall import Order, contributions, sum_interval, tau_b, tau_b_matrix

# Few different values, so that ties are the rule.
PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=40)


@given(PAIRS)
def test_tau_is_scipys(pairs):
    x, y = np.array(pairs, dtype=np.float32).T
    expected = scipy.stats.kendalltau(x, y).statistic
    assert tau_b(x, y) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_tau_of_many_values_with_and_without_ties_is_scipy_to_the_last_bit(rng):
    common = rng.normal(size=3000)
    exact, rounded = (common + rng.normal(size=3000) for _ in range(2))
    rounded = np.round(2 * rounded)
    columns = [exact, rounded, np.round(exact), -exact]
    matrix = tau_b_matrix(columns)
    for i, x in enumerate(columns):
        for j, y in enumerate(columns[: i + 1]):
            assert matrix[i, j] == tau_b(x, y) == scipy.stats.kendalltau(x, y).statistic
    assert matrix[3, 0] == -1.0


@pytest.mark.parametrize("times", [1, 1_000])  # few and many things are counted in two ways
def test_tau_is_not_defined_for_a_constant_a_nan_or_a_single_value(times):
    columns = np.tile([[1.0, 1.0], [1.0, math.nan], [1.0, 2.0]], times)
    constant, unknown, varied = columns
    assert math.isnan(tau_b(constant, varied)) and math.isnan(tau_b(varied, unknown))
    found = np.isnan(tau_b_matrix(columns))
    assert found.tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    assert tau_b(varied, varied) == 1.0
    single = np.array([1.0])
    assert math.isnan(tau_b(single, single)) and np.isnan(tau_b_matrix([single])).all()


def two_orders(rng, words, spellings, strength):
    """Two orders whose values share a word's part; the second follows the first."""
    word = np.repeat(np.arange(words), spellings)
    own, noise = (rng.normal(size=words)[word] + rng.normal(size=len(word)) for _ in range(2))
    return word, own, strength * own + math.sqrt(1 - strength**2) * noise


def test_bins_change_the_error_little(rng):
    word, x, y = two_orders(rng, 1000, 2, 0.9)
    size = len(x)
    signs = [np.sign(v[:, None] - v[None, :]) for v in (x, y)]
    means = (signs[0] * signs[1]).sum(axis=1) / size
    influence = 2 * (means - means.mean())
    sums = np.bincount(word, weights=influence)
    expected = math.sqrt(1000 / 999 * (sums**2).sum()) / size
    points = kendall.pair_influence(Order.of(x), Order.of(y))
    assert clustered_error(points, word) == pytest.approx(expected, rel=0.01)


def test_few_and_constant_things_prove_nothing(rng):
    order, five, flat = Order.of(np.arange(4)), Order.of(rng.normal(size=5)), Order.of(np.zeros(5))
    _, low, high, _ = kendall.pair_interval(order, order, np.arange(4), 1.0, 1)
    assert low <= 0 < high
    assert math.isnan(kendall.pair_interval(flat, five, np.arange(5), math.nan, 1).low)
    assert math.isnan(kendall.pair_interval(five, five, np.zeros(5, dtype=int), 1.0, 1).low)
    assert np.isnan(sum_interval(np.array([0.5, 0.5]), 1.0, 2)[1:]).all()


def orders(rng, count=4, size=40, levels=0, common=1.0):
    """Orders of `size` things that share a part; with `levels` there are ties."""
    x = common * rng.normal(size=size) + rng.normal(size=(count, size))
    return np.round(x * levels) if levels else x


def test_a_row_without_an_order_has_no_tau_and_changes_no_other():
    x = orders(np.random.default_rng(0))
    x[1], x[2, 3] = 5.0, math.nan
    found = tau_b_matrix(x)
    assert np.isnan(found[1:3]).all() and np.isnan(found[:, 1:3]).all()
    assert found[0, 3] == pytest.approx(scipy.stats.kendalltau(x[0], x[3]).statistic)
    weights = np.zeros((1, 4, 4))
    weights[0, 0, 3] = weights[0, 3, 0] = 0.5
    assert contributions(x, weights).sum() == pytest.approx(found[0, 3])


def test_the_interval_is_the_jackknifes(rng):
    """An independent computation: leave out one thing at a time, with scipy's tau."""
    x = orders(rng, size=100, levels=1)
    weights = rng.normal(size=(1, 4, 4))
    weights = weights + weights.transpose(0, 2, 1)

    def total(y):
        pairs = itertools.combinations(range(4), 2)
        return sum(
            2 * weights[0, i, j] * scipy.stats.kendalltau(y[i], y[j]).statistic for i, j in pairs
        ) + float(np.trace(weights[0]))

    left_out = np.array([total(np.delete(x, i, axis=1)) for i in range(100)])
    error = math.sqrt(99 / 100 * ((left_out - left_out.mean()) ** 2).sum())
    share = contributions(x, weights)[0]
    value = float((weights[0] * tau_b_matrix(x)).sum())
    assert share.sum() == pytest.approx(value, abs=1e-5)
    _, low, high, _ = sum_interval(share, value, 100)
    assert (high - low) / 2 / scipy.stats.t.ppf(0.975, 99) == pytest.approx(error, rel=0.003)


def test_the_interval_of_a_sample_of_the_things_is_that_of_all(rng):
    """Of more things than are compared in one block."""
    weights = (np.ones((1, 4, 4)) - np.eye(4)) / 12
    x = orders(rng, size=1500)
    value = float((weights[0] * tau_b_matrix(x)).sum())
    full = contributions(x, weights)[0]
    assert full.sum() == pytest.approx(value, abs=1e-5)
    some = contributions(x[:, rng.permutation(1500)[:300]], weights)[0]
    whole = np.diff(sum_interval(full, value, 1500)[1:3])
    assert np.diff(sum_interval(some, value, 1500)[1:3]) == pytest.approx(whole, rel=0.15)


@pytest.mark.parametrize(("count", "size"), [(2, 3), (4, 5), (4, 10), (2, 20)])
def test_unrelated_orders_of_a_few_things_rarely_leave_out_0(size, count):
    """At a rate of .05, more than 30 of 400 come once in 70 times."""
    rng = np.random.default_rng(size)
    weights = (np.ones((1, count, count)) - np.eye(count)) / (count * (count - 1))
    left_out = 0
    for _ in range(400):
        x = rng.normal(size=(count, size))
        share = contributions(x, weights)[0]
        _, low, high, _ = sum_interval(share, float(share.sum()), size)
        left_out += not low <= 0 <= high
    assert left_out <= 30


def test_the_error_of_unrelated_orders_is_that_of_draws(rng):
    taus = tau_b_matrix(rng.normal(size=(200, 8)))[np.triu_indices(200, 1)]
    assert kendall.unrelated_error(8) == pytest.approx(np.std(taus), rel=0.05)
