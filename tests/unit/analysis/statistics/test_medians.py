import math

import numpy as np
import pytest
import scipy.stats

from analysis.statistics.ranks import median_interval


@pytest.mark.parametrize("size", [6, 7, 20, 33, 265])
def test_the_interval_of_a_median_is_that_of_the_sign_test(size):
    x = np.random.default_rng(size).normal(size=size)
    theirs = scipy.stats.quantile_test(x, p=0.5).confidence_interval(0.95)
    assert median_interval(x) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_few_values_have_none(size):
    assert all(math.isnan(end) for end in median_interval(np.arange(size)))
