import math

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given

import analysis
from analysis import distributions

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


def test_float32_rewards_far_from_zero_keep_their_variance():
    x = (10_000 + np.linspace(-1, 1, 1001)).astype(np.float32)
    expected = np.var(x.astype(np.float64))
    assert distributions.moments(x)["variance"] == pytest.approx(expected, rel=1e-9)


def test_density_agrees_with_scipys_kernel_estimate():
    x = np.random.default_rng(0).normal(size=2000)
    grid, height = distributions.density(x)
    expected = scipy.stats.gaussian_kde(x)(grid)
    np.testing.assert_allclose(height, expected, atol=0.01 * expected.max())


def test_density_of_equal_rewards_is_one_point():
    grid, height = distributions.density(np.full(5, 0.1, dtype=np.float32))
    assert (len(grid), len(height)) == (1, 1)


def test_moments_cover_the_shared_vocabulary(small_run):
    run = analysis.load(small_run)
    shared = analysis.shared_vocabulary(run)
    rewards = {"greatest": analysis.shared_rewards(run, shared, "greatest")}
    table = analysis.moments_table(analysis.samples(run, rewards))
    assert table.columns == [
        "model",
        "prompt",
        "n",
        "mean",
        "variance",
        "skewness",
        "kurtosis",
        "min",
        "max",
        "distinct_rewards",
    ]
    assert table.select("model", "n", "mean").row(0) == ("m-one", 4, -0.75)


def test_without_shared_tokens_each_models_whole_vocabulary_stands_in(small_run):
    run = analysis.load(small_run)
    nothing = pl.DataFrame(schema={"token": pl.String, "m-one": pl.Float32})
    (sample,) = analysis.samples(run, {"greatest": nothing})
    assert len(sample[2]) == 7
