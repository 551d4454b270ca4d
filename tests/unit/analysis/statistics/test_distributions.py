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
    assert [len(each) for each in distributions.density(np.float32(values))] == [1, 1]
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


FEW_NUMBERS = st.lists(st.integers(-5, 5), min_size=5, max_size=12)


def auc_of_single_words(x, y):
    return distributions.auc(x, y, np.arange(len(x)), np.arange(len(y)))


@given(FEW_NUMBERS, FEW_NUMBERS)
def test_auc_is_the_written_out_double_loop(x, y):
    wins = [(a > b) + (a == b) / 2 for a in x for b in y]
    found, low, high, _ = auc_of_single_words(np.array(x, float), np.array(y, float))
    assert found == pytest.approx(np.mean(wins))
    assert 0 <= low <= found <= high <= 1


def test_the_draws_of_auc_have_delongs_error_and_its_p_is_of_its_interval(rng):
    x, y = rng.normal(0.5, scale=9.0, size=40), rng.normal(size=30)
    wins = (x[:, None] > y).astype(float)
    a, b = wins.mean(1).var(ddof=1) / 40, wins.mean(0).var(ddof=1) / 30
    t = scipy.stats.t((a + b) ** 2 / (a**2 / 39 + b**2 / 29))
    found, low, high, p = auc_of_single_words(x, y)
    draws = found * (1 - found) / (a + b)
    for end in (low, high):  # a score test of an end is significant at 5 %, just
        assert abs(found - end) / math.sqrt(end * (1 - end) / draws) == pytest.approx(t.ppf(0.975))
    assert p == pytest.approx(2 * t.sf(abs(found - 0.5) / math.sqrt(0.25 / draws)))


@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 7), (8, 8)])
def test_few_words_have_the_exact_p_of_mann_and_whitney(rng, n, m):
    x, y = rng.normal(1.0, size=n), rng.normal(size=m)
    expected = scipy.stats.mannwhitneyu(x, y, method="exact").pvalue
    assert auc_of_single_words(x, y).p == pytest.approx(expected)
    value, low, high, p = auc_of_single_words(np.arange(n) + 9.0, np.arange(m))
    assert (value, high, p) == pytest.approx((1, 1, 2 / math.comb(n + m, n)))
    assert 0.5 < low < 0.9
    found = distributions.auc(np.arange(40) + 40.0, np.arange(40), *[np.arange(40)] * 2)
    assert found.p < 1e-4 < 1 - found.low


def test_few_words_on_a_side_have_no_interval_of_auc(rng):
    x, y = rng.normal(size=8), rng.normal(size=8)
    found, *rest = distributions.auc(x, y, np.arange(8) // 2, np.arange(8))
    assert 0 <= found <= 1
    assert all(math.isnan(number) for number in rest)
    known = distributions.auc(x, y, np.minimum(np.arange(8), 4), np.arange(8))
    assert not any(math.isnan(number) for number in known)


def test_cohens_d_divides_by_the_pooled_deviation():
    x, y = np.array([2.0, 4.0, 6.0]), np.array([1.0, 1.0, 4.0])
    assert distributions.cohens_d(x, y) == pytest.approx(2.0 / math.sqrt((2 * 4 + 2 * 3) / 4))
    assert math.isnan(distributions.cohens_d(x[:1], y))
    assert math.isnan(distributions.cohens_d(np.ones(3), np.ones(3)))
