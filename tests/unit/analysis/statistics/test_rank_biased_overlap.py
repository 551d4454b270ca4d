import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from analysis.statistics import ranks as overlap

VALUES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)


def overlap_of(x, y, p):
    return overlap.rank_biased_overlap(overlap.positions(x), overlap.positions(y), p)


def loop_rbo(first, second, p):
    """Webber, Moffat & Zobel 2010, equation 32, for two orders of the same things."""
    n = len(first)
    shared = [len(set(first[:d]) & set(second[:d])) for d in range(1, n + 1)]
    terms = sum(shared[d - 1] / d * p**d for d in range(1, n + 1))
    return shared[-1] / n * p**n + (1 - p) / p * terms


def orders(x):
    """Every order of the things by falling value, ties broken in every way."""
    things = range(len(x))
    falling = [
        list(g) for _, g in itertools.groupby(sorted(things, key=lambda i: -x[i]), lambda i: x[i])
    ]
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


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_one_order_overlaps_wholly(n):
    x = np.random.default_rng(0).normal(size=n)
    assert overlap_of(x, x, 0.9) == pytest.approx(1.0)


def test_depths_that_weigh_nothing_are_not_walked():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=1000), rng.normal(size=1000)
    head = loop_rbo(np.argsort(-x).tolist(), np.argsort(-y).tolist(), 0.9)
    assert overlap_of(x, y, 0.9) == pytest.approx(head, abs=1e-12)


def test_nothing_has_no_overlap():
    assert math.isnan(overlap_of(np.array([]), np.array([]), 0.9))
