import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import distribution_shape

SAMPLES = st.lists(st.integers(-20, 20).map(lambda i: i / 4), min_size=2, max_size=60).filter(
    lambda values: len(set(values)) > 1
)


@given(SAMPLES)
def test_moments_are_scipys_biased_ones(values):
    found = distribution_shape.moments(np.array(values, dtype=np.float32))
    assert found["n"] == len(values)
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-12)
    assert found["variance"] == pytest.approx(np.var(values, ddof=0))
    assert found["skewness"] == pytest.approx(scipy.stats.skew(values), abs=1e-9)
    assert found["kurtosis"] == pytest.approx(scipy.stats.kurtosis(values), abs=1e-9)
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert found["distinct_rewards"] == len(set(values))


@pytest.mark.parametrize("values", [[0.1], [0.1] * 7])
def test_equal_rewards_have_no_shape(values):
    found = distribution_shape.moments(np.array(values, dtype=np.float32))
    assert found["variance"] == 0.0
    assert math.isnan(found["skewness"])
    assert math.isnan(found["kurtosis"])
    assert found["distinct_rewards"] == 1


def test_float32_rewards_far_from_zero_keep_their_variance():
    x = (10_000 + np.linspace(-1, 1, 1001)).astype(np.float32)
    expected = np.var(x.astype(np.float64))
    assert distribution_shape.moments(x)["variance"] == pytest.approx(expected, rel=1e-9)


def test_density_agrees_with_scipys_kernel_estimate():
    x = np.random.default_rng(0).normal(size=2000)
    grid, height = distribution_shape.density(x)
    expected = scipy.stats.gaussian_kde(x)(grid)
    np.testing.assert_allclose(height, expected, atol=0.01 * expected.max())


def test_density_of_equal_rewards_is_one_point():
    grid, height = distribution_shape.density(np.full(5, 0.1, dtype=np.float32))
    assert (len(grid), len(height)) == (1, 1)
