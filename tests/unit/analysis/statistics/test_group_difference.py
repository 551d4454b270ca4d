import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics.permutation_tests import permutation_test, welch_interval


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def apart(x, y, axis):
    return abs(x.mean(axis=axis) - y.mean(axis=axis))


@pytest.mark.parametrize(("one", "other"), [(4, 6), (3, 3), (2, 5)])
def test_every_assignment_is_compared_as_scipy_does(rng, one, other):
    values = rng.normal(size=(one + other, 5)) + np.linspace(0, 2, 5)
    values[:one] += 1.0
    first = np.arange(one + other) < one
    found = permutation_test(values, first, rng, draws=9_999)
    theirs = scipy.stats.permutation_test(
        (values[first], values[~first]), apart, n_resamples=np.inf, alternative="greater", axis=0
    )
    np.testing.assert_allclose(np.abs(found.difference), theirs.statistic)
    np.testing.assert_allclose(found.p, theirs.pvalue)
    assert found.exact
    assert found.assignments == math.comb(one + other, one)


@pytest.mark.parametrize(
    ("one", "other", "least"), [(4, 6, 1 / 210), (4, 4, 2 / 70), (2, 2, 1 / 3)]
)
def test_the_smallest_p_is_that_of_groups_wholly_apart(rng, one, other, least):
    first = np.arange(one + other) < one
    values = (np.where(first, 10.0, 0.0) + rng.normal(size=one + other))[:, None]
    found = permutation_test(values, first, rng, draws=999)
    assert found.p[0] == pytest.approx(found.least_p) == pytest.approx(least)


def test_many_assignments_are_drawn_at_random(rng):
    first = np.arange(30) < 15
    values = np.stack([np.where(first, 3.0, 0.0), np.zeros(30)], axis=1) + rng.normal(size=(30, 2))
    found = permutation_test(values, first, rng, draws=499)
    assert not found.exact
    assert found.assignments == 499
    assert found.p[0] == found.least_p == 1 / 500
    assert 0.05 < found.p[1] <= 1.0


def test_models_that_are_all_alike_have_a_p_of_one(rng):
    found = permutation_test(np.full((6, 1), 0.1), np.arange(6) < 2, rng, draws=999)
    assert found.p[0] == 1.0


def test_an_empty_group_is_refused(rng):
    with pytest.raises(ValueError, match="a group is empty"):
        permutation_test(np.zeros((3, 1)), np.zeros(3, dtype=bool), rng, draws=99)


def test_the_interval_is_welchs(rng):
    values, first = rng.normal(size=(11, 3)), np.arange(11) < 4
    values[first] *= 3.0
    low, high = welch_interval(values, first)
    theirs = scipy.stats.ttest_ind(values[first], values[~first], equal_var=False)
    expected = theirs.confidence_interval(0.95)
    np.testing.assert_allclose(low, expected.low)
    np.testing.assert_allclose(high, expected.high)
    assert np.isnan(welch_interval(values[3:], first[3:])).all()
