import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import ranks
from analysis.statistics.kendall import tau_b
from analysis.statistics.ranks import rank_biased_overlap, ranking

# Few different values, so that ties are the rule.
TABLES = st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=0, max_size=30)
PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=40)


def columns(pairs):
    x, y = np.array(pairs, dtype=np.float32).T
    return x, y


@given(PAIRS.filter(lambda p: all(len(set(column)) > 1 for column in zip(*p, strict=True))))
def test_spearman_agrees_with_scipy(pairs):
    x, y = columns(pairs)
    expected = scipy.stats.spearmanr(x, y).statistic
    assert ranks.spearman(x, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("statistic", [tau_b, ranks.spearman, ranks.pearson])
@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0, 2.0], [0.1] * 7])
def test_a_side_without_an_order_gives_nan(statistic, x):
    x = np.array(x, dtype=np.float32)
    assert math.isnan(statistic(x, np.arange(len(x), dtype=np.float32)))


@given(PAIRS)
def test_percentiles_share_ties_and_average_one_half(pairs):
    x, _ = columns(pairs)
    shares = [(np.sum(x < v) + np.sum(x == v) / 2) / len(x) for v in x]
    np.testing.assert_allclose(ranks.percentiles(x), shares)
    assert ranks.percentiles(x).mean() == pytest.approx(0.5)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=30), st.integers(1, 40), st.booleans())
def test_extremes_are_the_head_of_a_stable_sort(values, count, highest):
    x = np.array(values, dtype=np.float32)
    expected = np.argsort(-x if highest else x, kind="stable")[:count]
    assert ranks.extremes(x, count, highest).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint32])
def test_estimators_compute_in_float64_whatever_comes_in(dtype):
    """SciPy 1.18 ranks float32 in float32, and a table's columns would follow it."""
    x, y = np.array([1, 1, 2, 5], dtype=dtype), np.array([3, 1, 1, 4], dtype=dtype)
    for array in (ranks.average_ranks(x), ranks.percentiles(x), ranking(x).positions):
        assert array.dtype == np.float64
    assert tau_b(x, y) == pytest.approx(0.4, abs=1e-12)
    assert ranking(x).positions.tolist() == [[2, 2, 1, 0], [2, 2, 1, 1]]


@given(st.lists(st.sampled_from([-2.5, -0.0, 0.0, 1.0, 7.0, math.inf]), max_size=20))
def test_average_ranks_are_those_of_scipy(values):
    expected = scipy.stats.rankdata(np.array(values, dtype=np.float64))
    np.testing.assert_array_equal(ranks.average_ranks(np.array(values)), expected)
    if values:
        np.testing.assert_array_equal(ranking(np.array(values)).average, expected)


@given(st.lists(st.integers(-3, 3), max_size=20), st.randoms())
def test_the_ranking_of_some_values_is_taken_from_that_of_all(values, random):
    x = np.array(values, dtype=np.float32)
    some = np.array(random.sample(range(len(x)), len(x) // 2), dtype=np.int64)
    of_all, of_some = ranking(x).at(some), ranking(x[some])
    for field in ("ranks", "counts", "average", "percentiles"):
        np.testing.assert_array_equal(getattr(of_all, field), getattr(of_some, field))
    assert (np.diff(x[some][of_all.order]) >= 0).all()


@given(TABLES)
def test_matrices_of_correlations_are_those_of_each_pair(rows):
    columns = np.array(rows, dtype=np.float32).reshape(-1, 3).T
    matrix = ranks.pearson_matrix(columns)
    for i, x in enumerate(columns):
        for j, y in enumerate(columns):
            np.testing.assert_array_equal(matrix[i, j], ranks.pearson(x, y))


VALUES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)


def overlap_of(x, y, p):
    return rank_biased_overlap(ranking(x).positions, ranking(y).positions, p)


def loop_rbo(first, second, p):
    """Webber, Moffat & Zobel 2010, equation 32, for two orders of the same things."""
    n = len(first)
    shared = [len(set(first[:d]) & set(second[:d])) for d in range(1, n + 1)]
    terms = sum(shared[d - 1] / d * p**d for d in range(1, n + 1))
    return shared[-1] / n * p**n + (1 - p) / p * terms


def orders(x):
    """Every order of the things by falling value, ties broken in every way."""
    ordered = sorted(range(len(x)), key=lambda i: -x[i])
    falling = [list(group) for _, group in itertools.groupby(ordered, lambda i: x[i])]
    for parts in itertools.product(*(itertools.permutations(group) for group in falling)):
        yield [i for part in parts for i in part]


@given(st.permutations(range(9)), st.sampled_from([0.5, 0.9, 0.98]))
def test_without_ties_it_is_the_extrapolated_overlap_of_webber(second, p):
    x, y = -np.arange(9.0), np.empty(9)
    y[list(second)] = -np.arange(9.0)
    expected = loop_rbo(list(range(9)), list(second), p)
    assert overlap_of(x, y, p) == pytest.approx(expected, abs=1e-12)


@given(VALUES)
def test_with_ties_it_is_the_mean_over_all_ways_to_break_them(pairs):
    x, y = np.array(pairs, dtype=float).T
    ways = [loop_rbo(a, b, 0.8) for a in orders(x) for b in orders(y)]
    assert overlap_of(x, y, 0.8) == pytest.approx(np.mean(ways), abs=1e-12)


def test_depths_that_weigh_nothing_are_not_walked(rng):
    x, y = rng.normal(size=1000), rng.normal(size=1000)
    head = loop_rbo(np.argsort(-x).tolist(), np.argsort(-y).tolist(), 0.9)
    assert overlap_of(x, y, 0.9) == pytest.approx(head, abs=1e-12)
    assert overlap_of(x, x, 0.9) == pytest.approx(1.0)
