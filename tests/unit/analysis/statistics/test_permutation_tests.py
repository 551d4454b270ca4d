import itertools
import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics import permutation_tests
from analysis.statistics.permutation_tests import mean_place_test, permutation_test


def apart(x, y, axis):
    return abs(x.mean(axis=axis) - y.mean(axis=axis))


@pytest.mark.parametrize(("n", "m"), [(4, 6), (3, 3), (2, 5)])
def test_every_assignment_is_compared_as_scipy_does(rng, n, m):
    values = rng.normal(size=(n + m, 5)) + np.linspace(0, 2, 5)
    values[:n] += 1.0
    first = np.arange(n + m) < n
    found = permutation_test(values, first, rng, draws=9_999)
    theirs = scipy.stats.permutation_test(
        (values[first], values[~first]), apart, n_resamples=np.inf, alternative="greater", axis=0
    )
    np.testing.assert_allclose(np.abs(found.value), theirs.statistic)
    np.testing.assert_allclose(found.p, theirs.pvalue)
    assert found.assignments == math.comb(n + m, n)


@pytest.mark.parametrize(("n", "m", "least"), [(4, 6, 1 / 210), (4, 4, 2 / 70), (2, 2, 1 / 3)])
def test_the_smallest_p_is_that_of_groups_wholly_apart(rng, n, m, least):
    first = np.arange(n + m) < n
    values = (np.where(first, 10.0, 0.0) + rng.normal(size=n + m))[:, None]
    found = permutation_test(values, first, rng, draws=999)
    assert found.p[0] == pytest.approx(found.least_p) == pytest.approx(least)


def test_many_assignments_are_drawn_at_random(rng):
    first = np.arange(30) < 15
    values = np.stack([np.where(first, 3.0, 0.0), np.zeros(30)], axis=1) + rng.normal(size=(30, 2))
    found = permutation_test(values, first, rng, draws=499)
    assert found.assignments == 499
    assert found.p[0] == found.least_p == 1 / 500
    assert 0.05 < found.p[1] <= 1.0
    alike = permutation_test(np.full((6, 1), 0.1), np.arange(6) < 2, rng, draws=999)
    assert alike.p[0] == 1.0


def test_the_interval_is_welchs(rng):
    values, first = rng.normal(size=(11, 3)), np.arange(11) < 4
    values[first] *= 3.0
    difference, low, high, _ = permutation_tests.welch_interval(values, first)
    theirs = scipy.stats.ttest_ind(values[first], values[~first], equal_var=False)
    expected = theirs.confidence_interval(0.95)
    np.testing.assert_allclose((low, high), (expected.low, expected.high))
    np.testing.assert_allclose(difference, values[first].mean(axis=0) - values[~first].mean(axis=0))
    assert np.isnan(permutation_tests.welch_interval(values[2:], first[2:])[1:3]).all()


def test_p_is_that_of_all_permutations():
    places = np.array([[0.1, 0.3, 0.5, 0.7, 0.9], [0.3, 0.1, 0.5, 0.7, 0.9]])
    means = [np.mean(pair) for pair in itertools.product(*places)]
    found = places.mean(axis=0)
    expected = [np.mean(np.abs(np.subtract(means, 0.5)) >= abs(x - 0.5) - 1e-9) for x in found]
    p = mean_place_test(places, np.random.default_rng(0), 200_000)
    assert p == pytest.approx(expected, abs=0.002)
    assert expected[4] == pytest.approx(2 / 25)
    assert np.isnan(mean_place_test(places[:1], np.random.default_rng(0), 99)).all()
