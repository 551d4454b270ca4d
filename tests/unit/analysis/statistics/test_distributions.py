import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from analysis.statistics import distributions

SAMPLES = st.lists(st.integers(-20, 20).map(lambda i: i / 4), min_size=2, max_size=60).filter(
    lambda values: len(set(values)) > 1
)


@given(SAMPLES)
def test_moments_are_scipys_biased_ones(values):
    found = distributions.moments(np.array(values, dtype=np.float32))
    assert found["n"] == len(values)
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-12)
    assert found["variance"] == pytest.approx(np.var(values, ddof=0))
    assert found["skewness"] == pytest.approx(scipy.stats.skew(values), abs=1e-9)
    assert found["kurtosis"] == pytest.approx(scipy.stats.kurtosis(values), abs=1e-9)
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert found["distinct_rewards"] == len(set(values))


@pytest.mark.parametrize("values", [[0.1], [0.1] * 7])
def test_equal_rewards_have_no_shape(values):
    found = distributions.moments(np.array(values, dtype=np.float32))
    assert found["variance"] == 0.0
    assert math.isnan(found["skewness"])
    assert math.isnan(found["kurtosis"])
    assert found["distinct_rewards"] == 1
    assert [len(axis) for axis in distributions.density(np.float32(values))] == [1, 1]
    assert math.isnan(distributions.skewness_p(np.ones(5), np.arange(5)))
    assert math.isnan(distributions.skewness_p(np.arange(5), np.zeros(5, int)))


def test_float32_rewards_far_from_zero_keep_their_variance():
    x = (10_000 + np.linspace(-1, 1, 1001)).astype(np.float32)
    expected = np.var(x.astype(np.float64))
    assert distributions.moments(x)["variance"] == pytest.approx(expected, rel=1e-9)


def test_density_agrees_with_scipys_kernel_estimate():
    x = np.random.default_rng(0).normal(size=2000)
    grid, height = distributions.density(x)
    expected = scipy.stats.gaussian_kde(x)(grid)
    np.testing.assert_allclose(height, expected, atol=0.01 * expected.max())


@pytest.mark.parametrize("shape", ["normal", "laplace", "standard_t"])
@pytest.mark.parametrize("words", [20, 300])
def test_symmetric_distributions_are_rarely_called_skewed(shape, words, rng):
    given_ = {"df": 4} if shape == "standard_t" else {}
    word, alarms = np.repeat(np.arange(words), 2), 0
    for _ in range(200):
        x = getattr(rng, shape)(size=words, **given_)[word]
        alarms += distributions.skewness_p(x, word) < 0.05
    assert 3 * (shape == "normal" and words == 300) <= alarms <= 20
    assert distributions.skewness_p(rng.gamma(4.0, size=2000), np.arange(2000) // 2) < 0.01
